"""Writes data/verify/precision.json: the figures that `everyo verify precision` holds the library against, each with its
tolerance and the reason for it. Computed with NumPy alone, in float64, from the same draws; run it again only when a check
changes:

    python3 tests/oracle/make_verify_reference.py
"""

import json
import pathlib

import numpy as np

WIDTH, INPUTS, ROWS = 16, 4, 32
EXPONENTS = (0, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56)  # of the loss scale, powers of two


def layers(depth):
    """Weights [in, out] and biases of `depth` hidden layers and the output, as float32 values held in float64."""
    sizes = [INPUTS] + [WIDTH] * depth + [1]
    out = []
    for k, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
        bound = 1 / np.sqrt(fan_in)
        weight = np.random.default_rng(k).uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32)
        out.append((weight.astype(np.float64), np.zeros(fan_out)))
    return out


def gradients(depth):
    """Gradients of the mean squared error, [(dW, db)] from the first layer on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, INPUTS)).astype(np.float32).astype(np.float64)
    y = rng.normal(size=(ROWS, 1)).astype(np.float32).astype(np.float64)
    net = layers(depth)
    activations = [x]
    for i, (w, b) in enumerate(net):
        z = activations[-1] @ w + b
        activations.append(z if i == depth else 1 / (1 + np.exp(-z)))
    grad = 2 * (activations[-1] - y) / y.size  # of the last layer's output
    out = []
    for i in reversed(range(depth + 1)):
        w = net[i][0]
        out.append((activations[i].T @ grad, grad.sum(0)))
        if i > 0:
            grad = (grad @ w.T) * activations[i] * (1 - activations[i])
    return out[::-1]


def to_float16(values):
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float16).astype(np.float64)


def half_gradients(depth, factor):
    """The same of the loss times `factor` under autocast: every op's result is rounded to float16, forward and backward."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, INPUTS)).astype(np.float32).astype(np.float64)
    y = rng.normal(size=(ROWS, 1)).astype(np.float32).astype(np.float64)
    net = [(to_float16(w), to_float16(b)) for w, b in layers(depth)]
    activations = [to_float16(x)]
    for i, (w, b) in enumerate(net):
        z = to_float16(to_float16(activations[-1] @ w) + b)
        activations.append(z if i == depth else to_float16(1 / (1 + np.exp(-z))))
    grad = to_float16(2 * (activations[-1] - y) / y.size * factor)  # the loss is float32; its prediction is not
    out = []
    with np.errstate(invalid="ignore"):
        for i in reversed(range(depth + 1)):
            out.append((to_float16(activations[i].T @ grad), to_float16(grad.sum(0))))
            if i > 0:
                grad = to_float16(to_float16(grad @ net[i][0].T) * activations[i] * (1 - activations[i]))
    return out[::-1]


def flat(layer):
    return np.concatenate([part.ravel() for part in layer])


def fractions(values, exponent):
    """Of zero and of infinity after a cast of values * 2^exponent to float16."""
    with np.errstate(over="ignore"):
        half = (values * 2.0**exponent).astype(np.float32).astype(np.float16)
    return float(np.mean(half == 0)), float(np.mean(np.isinf(half)))


def main():
    figures = {}

    def figure(name, reference, tolerance, reason):
        figures[name] = {"reference": reference, "tolerance": tolerance, "reason": reason}

    exact = "a cast has one right result"
    small = np.array([1e-6, 1e-7, 1e-8, 1e-9], np.float32)
    figure("float16_small_values", small.astype(np.float16).astype(np.float64).tolist(), 0.0, exact)
    figure("float16_wrong_casts", 0.0, 0.0, exact + ", for every bit pattern and every midpoint of two neighbours")
    figure("bfloat16_wrong_casts", 0.0, 0.0, exact + ", for every bit pattern and every midpoint of two neighbours")
    half, single = np.finfo(np.float16), np.finfo(np.float32)
    defined = "a constant of the format"
    figure("float16_limits", [float(v) for v in (half.eps, half.tiny, half.smallest_subnormal, half.max)], 0.0, defined)
    figure("float32_limits", [float(v) for v in (single.eps, single.tiny, single.smallest_subnormal, single.max)], 0.0, defined)
    # bfloat16 is the upper half of a float32: 7 bits of mantissa, the same exponents.
    figure("bfloat16_limits", [2.0**-7, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127], 0.0, defined)

    deep, shallow = gradients(12), gradients(4)
    first, last = flat(deep[0]), flat(deep[-1])
    everything = np.concatenate([flat(layer) for layer in deep])
    rounding = "some thousand float32 roundings of 6e-8 on the way through the layers and back; a fault in a layer changes far more"
    norm = float(np.linalg.norm(first))
    figure("deep_first_layer_norm", norm, 1e-4 * norm, rounding)
    count = "a count; no gradient lies near the threshold"
    figure("deep_zero_in_float32", 0.0, 0.0, count)
    figure("deep_zero_in_float16", float(np.sum(first.astype(np.float16) == 0)), 0.0, count)
    shallow_first = flat(shallow[0])
    norm = float(np.linalg.norm(shallow_first))
    figure("shallow_first_layer_norm", norm, 1e-4 * norm, rounding)
    figure("shallow_zero_in_float16", float(np.sum(shallow_first.astype(np.float16) == 0)), 0.0, count)

    for name, values in (("first", first), ("last", last), ("all", everything)):
        near = int(np.sum([np.abs(np.abs(values) * 2.0**e / t - 1) < 1e-4 for e in EXPONENTS for t in (2.0**-25, 65520.0)]))
        reason = f"{near} of {values.size} gradients lie within float32 rounding of a threshold at some scale"
        for i, kind in enumerate(("zero", "inf")):
            table = [fractions(values, e)[i] for e in EXPONENTS]
            figure(f"scale_{name}_{kind}", table, near / values.size, reason)

    tables = {name: ([], []) for name in ("first", "last", "all")}
    for exponent in EXPONENTS:
        layers_of = half_gradients(12, 2.0**exponent)
        whole = np.concatenate([flat(layer) for layer in layers_of])
        for name, values in (("first", flat(layers_of[0])), ("last", flat(layers_of[-1])), ("all", whole)):
            tables[name][0].append(float(np.mean(values == 0)))
            tables[name][1].append(float(np.mean(~np.isfinite(values))))
    for name, size in (("first", first.size), ("last", last.size), ("all", everything.size)):
        moved = 0 if name == "last" else 4
        reason = "a float32 sum in another order may round a gradient to its other neighbour, half or twice as large next to 0: "
        reason += f"room for {moved} of {size}" if moved else "room for none, since these are far from 0"
        for kind, table in zip(("zero", "lost"), tables[name]):
            figure(f"half_scale_{name}_{kind}", table, moved / size, reason)
    figure("bfloat16_zero", 0.0, 0.0, count)
    figure("bfloat16_distance", 0.0, 0.05, "the requirement's bar; NumPy's own run with the same roundings is 1.5 % away")

    rule = "a count; the rule has no exceptions"
    figure("autocast_strangers", 0.0, 0.0, rule)
    figure("dtype_rule", [0.0] * 6, 0.0, rule)
    figure("dtype_promotion", [0.0] * 4, 0.0, rule)
    figure("small_net_dtypes", [1.0, 4.0, 4.0, 3.0], 0.0, "dtypes are right or wrong")
    figure("leaf_gradients", [1.0] * 4, 0.0, "dtypes are right or wrong, and a cast has one right result")
    figure("stale_outputs", [0.0] * 4, 0.0, "the same bits, or other weights")
    figure("scopes", [1.0] * 8 + [5.0], 0.0, "dtypes are right or wrong")
    figure("step_inside", 0.0, 0.0, "autocast reaches neither backward nor the step, so the bits are the same")

    exact_scale = "powers of two and small whole numbers are exact"
    figure("scaler_scales", [8.0, 16.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 2.0], 0.0, exact_scale)
    figure("scaler_steps", [-1.0, 4.0, 5.0], 0.0, exact_scale)
    figure("scaler_unscaled", 0.0, 0.0, "a product with a power of two is exact while nothing leaves float32's normal range")
    figure("scaler_clipped", [0.5, 0.5], 1e-6, "the norm's reciprocal is rounded")
    figure("scaler_refusals", [1.0] * 4, 0.0, "a wrong move is refused or not")
    figure("scaler_resumed", 0.0, 0.0, exact_scale)
    figure("scaler_disabled", [1.0, 1.0, 0.5], 0.0, exact_scale)
    figure("scaler_backward", 0.0, 0.0, "the same operations in the same order")

    bar = "the bar of the requirement"
    figure("recipe_zeros_unscaled", 193.0, 0.0, "all lie below half of float16's smallest value")
    figure("recipe_zeros_scaled", 1.0, 1.0, bar + ": at most 2")
    figure("recipe_zeros_float32", 0.0, 0.0, count)
    figure("recipe_error_unscaled", 6.33, 0.01, bar + "; nothing is trained")
    figure("recipe_error_scaled", 0.047, 0.0006, bar)
    figure("recipe_error_float32", 0.0474, 0.00005, bar + ", to three digits")
    figure("activation_bytes", [0.5, 0.5], 0.05, "the requirement's bar is 0.55; statistics, loss and the input's half are small")

    same = "a product with a power of two is exact while nothing leaves float32's normal range"
    figure("power_of_two_gradients", [0.0] * 4, 0.0, same)
    figure("power_of_two_step", [0.0] * 4, 0.0, same)

    path = pathlib.Path(__file__).parents[2] / "data" / "verify" / "precision.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

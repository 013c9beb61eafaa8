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

    same = "a product with a power of two is exact while nothing leaves float32's normal range"
    figure("power_of_two_gradients", [0.0] * 4, 0.0, same)
    figure("power_of_two_step", [0.0] * 4, 0.0, same)

    path = pathlib.Path(__file__).parents[2] / "data" / "verify" / "precision.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

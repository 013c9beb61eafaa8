"""Writes data/verify/parallel.json: the figures that `everyo verify parallel` holds the library against, each with its
tolerance and the reason for it. Computed with NumPy alone, in float64, from the same draws; run it again only when a check
changes:

    python3 tests/oracle/make_verify_parallel_reference.py
"""

import json
import pathlib

import numpy as np


def gradient(x, y):
    """Of the mean squared error of an 8-16-1 network with tanh, all parameters one after the other."""
    layers = []
    for k, (fan_in, fan_out) in enumerate(((8, 16), (16, 1))):
        bound = 1 / np.sqrt(fan_in)
        layers.append(np.random.default_rng(k).uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32).astype(np.float64))
    hidden = np.tanh(x @ layers[0])
    out = 2 * (hidden @ layers[1] - y) / y.size
    back = out @ layers[1].T * (1 - hidden**2)
    return np.concatenate([part.ravel() for part in (x.T @ back, back.sum(0), hidden.T @ out, out.sum(0))])


def main():
    figures = {}

    def figure(name, reference, tolerance, reason):
        figures[name] = {"reference": reference, "tolerance": tolerance, "reason": reason}

    rng = np.random.default_rng(0)
    x = rng.normal(size=(65, 8)).astype(np.float32).astype(np.float64)
    y = rng.normal(size=(65, 1)).astype(np.float32).astype(np.float64)
    whole = gradient(x, y)
    parts = [slice(0, 22), slice(22, 44), slice(44, 65)]
    unweighted = np.mean([gradient(x[rows], y[rows]) for rows in parts], axis=0)
    unit = 2.0**-24 * 2 ** np.ceil(np.log2(np.abs(whole).max()))  # half a unit of float32's last place

    rounding = "one process sums rows in another order: units of float32's last place of the largest gradient, {:.2g}"
    figure("even_shards", [0.0] * 3, 4 * unit, rounding.format(4 * unit))
    figure("uneven_shards", [0.0] * 2, 4 * unit, rounding.format(4 * unit))
    figure("unweighted_mean", [float(np.abs(unweighted - whole).max())] * 2, 8 * unit, "the same roundings on both sides")
    figure("summed_loss", [60.0, 30.0, 60.0], 0.0, "small whole numbers are exact")
    count = "a count"
    figure("shard_sizes", [4.0, 3.0, 3.0], 0.0, count)
    figure("shard_sizes_dropped", [3.0, 3.0, 3.0], 0.0, count)
    figure("absent_gradients", [1.0, 0.0, 0.0], 0.0, "small whole numbers are exact")
    figure("results_and_errors", [3.0, 1.0, 1.0, 1.0, 0.0], 0.0, count)
    figure("diverging_calls", [3.0, 3.0, 3.0, 1.0], 0.0, count)
    figure("rows_per_worker", [4096.0, 2048.0, 1366.0, 1024.0], 0.0, count)
    figure("drift", [0.0] * 4, 5e-7, "two to four units of the last place of the weights after 60 steps of rounded gradients")
    figure("differing_ranks", [0.0] * 4, 0.0, "every rank has the same sums")
    figure("virtual_shards", [0.0] * 5, 0.0, "the tree of sums does not depend on who computes its leaves")
    figure("overlap", [4.0, 3.0], 0.0, "backward ends with the first layer, in the last bucket; all others are given before")

    path = pathlib.Path(__file__).parents[2] / "data" / "verify" / "parallel.json"
    path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

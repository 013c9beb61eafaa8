"""Parts of arrays and datasets, drawn from `numpy.random.default_rng(seed)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everyo._core import EveryOShapeError
from everyo.core.checks import real
from everyo.data.dataset import Array, Dataset, Subset, as_array

Seed = int | np.random.Generator | None


def _same_length(what: str, arrays: tuple[Any, ...]) -> list[Array]:
    if not arrays:
        raise ValueError(f"[{what}] no arrays were given; give at least one")
    found = [as_array(array) for array in arrays]
    if any(array.ndim == 0 for array in found) or len({len(array) for array in found}) > 1:
        shapes = ", ".join(str(array.shape) for array in found)
        raise EveryOShapeError(f"[{what}] arrays of shapes {shapes}; they must have the same number of samples")
    return found


def _held_out(what: str, count: int, test_size: float) -> int:
    """How many of `count` samples are held out: at least one, and never all."""
    if not 0 < real(f"[{what}] test_size", test_size) < 1:
        raise ValueError(f"[{what}] test_size is {test_size}; it must lie in (0, 1)")
    if count < 2:
        raise ValueError(f"[{what}] {count} sample(s) cannot be split by test_size; at least two are needed")
    return min(max(round(count * test_size), 1), count - 1)


def train_test_split(
    *arrays: Any, test_size: float = 0.2, seed: Seed = None, shuffle: bool = True
) -> tuple[Array, ...]:
    """a_train, a_test, b_train, b_test, ... of arrays [N, ..]; the same rows of each.

    The held-out rows are the last round(N test_size) of the order. Raises ValueError "test_size", EveryOShapeError for
    arrays of different lengths.
    """
    found = _same_length("train_test_split", arrays)
    count = len(found[0])
    held_out = _held_out("train_test_split", count, test_size)
    order = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
    train, test = order[: count - held_out], order[count - held_out :]
    return tuple(array[rows] for array in found for rows in (train, test))


def random_split(dataset: Dataset, fractions: Sequence[float], *, seed: Seed = None) -> list[Subset]:
    """Disjoint random parts of a dataset, one a fraction; fractions are positive and sum to 1, so each sample is in one part.

    Parts end where the running sum of fractions, times N, rounds to. Raises ValueError otherwise.
    """
    if not fractions or any(not fraction > 0 for fraction in fractions) or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f"[random_split] fractions are {list(fractions)}; they must be positive and sum to 1")
    count = len(dataset)
    order = np.random.default_rng(seed).permutation(count)
    ends = np.rint(np.cumsum(fractions) * count).astype(np.int64)
    return [Subset(dataset, part) for part in np.split(order, ends[:-1])]


def stratified_split(x: Any, y: Any, *, test_size: float = 0.2, seed: Seed = None) -> tuple[Array, Array, Array, Array]:
    """x_train, x_test, y_train, y_test of features [N, ..] and labels [N], with each class in both parts in nearly its share.

    A class of one sample stays in the training part. Raises as train_test_split.
    """
    features, labels = _same_length("stratified_split", (x, y))
    _held_out("stratified_split", len(features), test_size)
    classes = labels.reshape(len(labels), -1)
    if classes.shape[1] != 1:
        raise EveryOShapeError(
            f"[stratified_split] labels have shape {labels.shape}; they must be one a sample, (N,) or (N, 1)"
        )
    generator = np.random.default_rng(seed)
    train: list[Array] = []
    test: list[Array] = []
    for label in np.unique(classes):
        rows = generator.permutation(np.flatnonzero(classes[:, 0] == label))
        held_out = _held_out("stratified_split", len(rows), test_size) if len(rows) > 1 else 0
        train.append(rows[: len(rows) - held_out])
        test.append(rows[len(rows) - held_out :])
    rows_train = generator.permutation(np.concatenate(train))
    rows_test = generator.permutation(np.concatenate(test))
    return features[rows_train], features[rows_test], labels[rows_train], labels[rows_test]


def shuffle_arrays(*arrays: Any, seed: Seed = None) -> tuple[Array, ...]:
    """The arrays [N, ..] with their rows in one random order."""
    found = _same_length("shuffle_arrays", arrays)
    order = np.random.default_rng(seed).permutation(len(found[0]))
    return tuple(array[order] for array in found)

"""Scaling and encoding of arrays before training. Letters: N samples, D features.

Statistics are taken in float64 whatever the array's dtype, so that a float16 column does not overflow its own sum;
results have the array's dtype when it is floating, else float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from everyo._core import EveryOShapeError
from everyo.data.dataset import Array, as_array

Axis = int | tuple[int, ...] | None


def _result_dtype(array: Array) -> np.dtype[Any]:
    return array.dtype if array.dtype.kind == "f" else np.dtype(np.float32)


def _safe(scale: Array) -> Array:
    """Zeros become ones: what does not vary is only shifted."""
    return np.where(scale == 0, 1.0, scale)


def _deviation(wide: Array, axis: Axis, keepdims: bool = False) -> Array:
    """Population deviation; exactly 0 of equal values, whose mean may round to another one."""
    deviation = wide.std(axis=axis, keepdims=keepdims)
    if not wide.size:
        return np.asarray(deviation)
    varies = wide.max(axis=axis, keepdims=keepdims) != wide.min(axis=axis, keepdims=keepdims)
    return np.where(varies, deviation, 0.0)


def standardize(data: Any, axis: Axis = 0) -> Array:
    """(x - mean) / deviation along an axis; a constant becomes 0."""
    array = as_array(data)
    wide = array.astype(np.float64)
    scaled: Array = (wide - wide.mean(axis=axis, keepdims=True)) / _safe(_deviation(wide, axis, keepdims=True))
    return scaled.astype(_result_dtype(array))


def normalize(data: Any, axis: int = 1, order: float = 2) -> Array:
    """x divided by its norm of that order along an axis; zeros stay zeros."""
    array = as_array(data)
    wide = array.astype(np.float64)
    scaled: Array = wide / _safe(np.linalg.norm(wide, ord=order, axis=axis, keepdims=True))
    return scaled.astype(_result_dtype(array))


def _checked_range(what: str, feature_range: tuple[float, float]) -> tuple[float, float]:
    low, high = feature_range
    if not low < high:
        raise ValueError(f"[{what}] feature_range is ({low}, {high}); it must be increasing")
    return low, high


def min_max_scale(data: Any, feature_range: tuple[float, float] = (0.0, 1.0), axis: Axis = 0) -> Array:
    """x into a range by its own least and greatest along an axis; a constant becomes the range's low end."""
    low, high = _checked_range("min_max_scale", feature_range)
    array = as_array(data)
    wide = array.astype(np.float64)
    least = wide.min(axis=axis, keepdims=True)
    scaled: Array = (wide - least) / _safe(wide.max(axis=axis, keepdims=True) - least) * (high - low) + low
    return scaled.astype(_result_dtype(array))


def one_hot_encode(labels: Any, num_classes: int | None = None) -> npt.NDArray[np.float32]:
    """Labels [N] or [N, 1] as rows of 0 and 1: float32 [N, num_classes], by default as many as the largest label needs.

    Raises EveryOShapeError for labels that are not whole, and "out of range" for those outside 0..num_classes-1.
    """
    given = as_array(labels).reshape(-1)
    numbers = given.astype(np.int64)
    if not np.array_equal(numbers, given):
        raise EveryOShapeError("[one_hot_encode] labels must be whole numbers")
    classes = num_classes if num_classes is not None else int(numbers.max(initial=-1)) + 1
    outside = np.flatnonzero((numbers < 0) | (numbers >= classes))
    if outside.size:
        raise EveryOShapeError(
            f"[one_hot_encode] label {numbers[outside[0]]} at {outside[0]} is out of range for {classes} classes"
        )
    rows: npt.NDArray[np.float32] = np.zeros((len(numbers), classes), dtype=np.float32)
    rows[np.arange(len(numbers)), numbers] = 1
    return rows


class _Scaler:
    """x * scale + offset, column by column, once fit has found both."""

    _scale: Array | None = None
    _offset: Array | None = None

    def fit(self, data: Any) -> Any:
        raise NotImplementedError

    def _fitted(self, array: Array, doing: str) -> tuple[Array, Array]:
        name = type(self).__name__
        if self._scale is None or self._offset is None:
            raise EveryOShapeError(f"[{name}] {doing} was called before fit; fit it to training data first")
        if array.shape[-len(self._scale.shape) :] != self._scale.shape and self._scale.ndim:
            raise EveryOShapeError(
                f"[{name}] an array of shape {array.shape}; it was fit to samples of shape {self._scale.shape}"
            )
        return self._scale, self._offset

    def transform(self, data: Any) -> Array:
        """The scaled array. Raises EveryOShapeError "before fit"."""
        array = as_array(data)
        scale, offset = self._fitted(array, "transform")
        scaled: Array = (array.astype(np.float64) - offset) / scale
        return scaled.astype(_result_dtype(array))

    def fit_transform(self, data: Any) -> Array:
        """fit, then transform."""
        self.fit(data)
        return self.transform(data)

    def inverse_transform(self, data: Any) -> Array:
        """What transform made scaled back. Raises EveryOShapeError "before fit"."""
        array = as_array(data)
        scale, offset = self._fitted(array, "inverse_transform")
        restored: Array = array.astype(np.float64) * scale + offset
        return restored.astype(_result_dtype(array))


class StandardScaler(_Scaler):
    """Columns of [N, D] to mean 0 and deviation 1, by the statistics of the array it was fit to.

    `mean_` and `std_` are those statistics, float64 [D]; a constant column has a deviation of 1.
    """

    mean_: Array | None = None
    std_: Array | None = None

    def fit(self, data: Any) -> StandardScaler:
        """Takes the mean and the population deviation of each column; returns self."""
        wide = as_array(data).astype(np.float64)
        self.mean_ = self._offset = np.asarray(wide.mean(axis=0))
        self.std_ = self._scale = np.asarray(_safe(_deviation(wide, axis=0)))
        return self


class MinMaxScaler(_Scaler):
    """Columns of [N, D] into `feature_range`, by the least and greatest of the array it was fit to: `min_`, `max_` [D].

    Raises ValueError "increasing" for a range that is not.
    """

    min_: Array | None = None
    max_: Array | None = None

    def __init__(self, feature_range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.feature_range = _checked_range("MinMaxScaler", feature_range)

    def fit(self, data: Any) -> MinMaxScaler:
        """Takes the least and the greatest of each column; returns self."""
        low, high = self.feature_range
        wide = as_array(data).astype(np.float64)
        self.min_ = np.asarray(wide.min(axis=0))
        self.max_ = np.asarray(wide.max(axis=0))
        scale = np.asarray(_safe(self.max_ - self.min_) / (high - low))
        self._scale = scale
        self._offset = np.asarray(self.min_ - low * scale)
        return self

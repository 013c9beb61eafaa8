"""How good predictions are. Letters: N samples, K classes. Sides may be tensors, arrays or lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOShapeError, Tensor

Metric = Callable[[Any, Any], float]


def _tensor(side: Any) -> Tensor:
    """Outside the graph; whole numbers stay whole."""
    if isinstance(side, Tensor):
        return side.detach()
    array = np.asarray(side)
    return _core.as_tensor(array, dtype="int64") if array.dtype.kind in "iu" else _core.as_tensor(array)


def _pair(name: str, prediction: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Two sides of one shape in float64; columns [N, 1] and vectors [N] are the same."""
    p, t = _tensor(prediction).astype("float64"), _tensor(target).astype("float64")
    if p.shape != t.shape and p.size == t.size and {p.shape, t.shape} == {(p.size,), (p.size, 1)}:
        p, t = p.reshape(p.size), t.reshape(t.size)
    if p.shape != t.shape:
        raise EveryOShapeError(f"[{name}] prediction {p.shape} and target {t.shape} must have the same shape")
    return p, t


def accuracy(prediction: Any, target: Any) -> float:
    """Fraction of rows whose class is right. Each side is scores or one-hot rows [N, K], or class numbers [N] or [N, 1].

    Raises EveryOShapeError for other ranks and for different N.
    """
    return float(_core.accuracy(_tensor(prediction), _tensor(target)))


def binary_accuracy(prediction: Any, target: Any, threshold: float = 0.5) -> float:
    """Fraction of elements on the right side: prediction >= threshold where the target is >= 0.5."""
    p, t = _pair("binary_accuracy", prediction, target)
    right = _core.equal(_core.greater_equal(p, threshold), _core.greater_equal(t, 0.5))
    return float(right.astype("float64").mean().item()) if p.size else 0.0


def mean_absolute_error(prediction: Any, target: Any) -> float:
    """Mean of |prediction - target|."""
    p, t = _pair("mean_absolute_error", prediction, target)
    return float(_core.mae_loss(p, t).item())


def mean_squared_error(prediction: Any, target: Any) -> float:
    """Mean of (prediction - target)^2."""
    p, t = _pair("mean_squared_error", prediction, target)
    return float(_core.mse_loss(p, t).item())


def r2_score(prediction: Any, target: Any) -> float:
    """1 - squared error / squared deviation of the target from its mean; 0.0 for a target that does not vary."""
    p, t = _pair("r2_score", prediction, target)
    if p.size and t.max().item() == t.min().item():
        return 0.0  # the mean of equal values may round to another one
    deviation = _core.mse_loss(t, t * 0.0 + t.mean()).item()
    return 1.0 - _core.mse_loss(p, t).item() / deviation if deviation else 0.0


def _classes(side: Tensor) -> int:
    return int(side.shape[1]) if side.ndim == 2 and side.shape[1] > 1 else int(side.max().item()) + 1


def confusion_matrix(prediction: Any, target: Any, num_classes: int | None = None) -> npt.NDArray[np.int64]:
    """How often each class was taken for each: int64 [K, K], row the target's class, column the prediction's.

    Sides as in accuracy(); K is by default as many as either side shows. Raises as accuracy, and EveryOShapeError for a
    class that is no whole number of 0..K-1.
    """
    p, t = _tensor(prediction), _tensor(target)
    classes = num_classes if num_classes is not None else max(_classes(p), _classes(t))
    matrix: npt.NDArray[np.int64] = _core.confusion_matrix(p, t, classes)
    return matrix


_METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "binary_accuracy": binary_accuracy,
    "mae": mean_absolute_error,
    "mse": mean_squared_error,
    "r2": r2_score,
}


def get_metric(name: str) -> Metric:
    """The metric of a name: accuracy, binary_accuracy, mae, mse, r2. Raises ValueError "Unknown metric"."""
    if name not in _METRICS:
        raise ValueError(f"[get_metric] Unknown metric {name!r}; there are {', '.join(_METRICS)}")
    return _METRICS[name]

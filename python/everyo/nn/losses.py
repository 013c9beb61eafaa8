"""Losses, as modules and as functions. Letters: N batch, K classes.

Prediction and target have the same shape, but for cross-entropy: EveryOShapeError "same shape". `reduction` is "mean",
"sum" or "none": ValueError "Unknown reduction". Halves are computed in float32.
"""

from __future__ import annotations

from typing import Any

from everyo import _core
from everyo._core import Tensor
from everyo.nn.layers import as_input
from everyo.nn.module import Module, register_module


def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Squared difference."""
    return _core.mse_loss(as_input(prediction), as_input(target), reduction)


def mae_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Absolute difference."""
    return _core.mae_loss(as_input(prediction), as_input(target), reduction)


def binary_cross_entropy(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Of probabilities in [0, 1], clipped to [1e-7, 1 - 1e-7]. Raises EveryOShapeError "probabilities"."""
    return _core.binary_cross_entropy(as_input(prediction), as_input(target), reduction)


def binary_cross_entropy_with_logits(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Of logits."""
    return _core.binary_cross_entropy_with_logits(as_input(prediction), as_input(target), reduction)


def cross_entropy(prediction: Any, target: Any, reduction: str = "mean", *, ignore_index: int | None = None) -> Tensor:
    """Softmax cross-entropy of raw logits [N, K]; targets are class numbers [N] or [N, 1], or rows of shares [N, K].

    Rows of class `ignore_index` count for nothing. Raises EveryOShapeError "(batch, classes)", "targets", and for class
    numbers that are not whole or out of range, naming the first and its row.
    """
    return _core.cross_entropy(as_input(prediction), target, reduction, ignore_index=ignore_index)


class Loss(Module):
    """Base of losses: called with prediction and target."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(
                f'[{type(self).__name__}] Unknown reduction {reduction!r}; it must be "mean", "sum" or "none"'
            )
        self.reduction = reduction

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"

    def get_config(self) -> dict[str, Any]:
        return {"reduction": self.reduction}


@register_module
class MSELoss(Loss):
    """mse_loss as a module."""

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return mse_loss(prediction, target, self.reduction)


@register_module
class MAELoss(Loss):
    """mae_loss as a module."""

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return mae_loss(prediction, target, self.reduction)


@register_module
class BCELoss(Loss):
    """binary_cross_entropy, of probabilities, as a module."""

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return binary_cross_entropy(prediction, target, self.reduction)


@register_module
class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of logits as a module."""

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return binary_cross_entropy_with_logits(prediction, target, self.reduction)


@register_module
class CrossEntropyLoss(Loss):
    """cross_entropy as a module."""

    def __init__(self, reduction: str = "mean", *, ignore_index: int | None = None) -> None:
        super().__init__(reduction)
        self.ignore_index = ignore_index

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **({} if self.ignore_index is None else {"ignore_index": self.ignore_index})}

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return cross_entropy(prediction, target, self.reduction, ignore_index=self.ignore_index)

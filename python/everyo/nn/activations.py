"""Activations as modules: the output has the input's shape."""

from __future__ import annotations

from typing import Any

from everyo import _core
from everyo._core import Tensor
from everyo.core.checks import whole
from everyo.nn.module import Module, register_module


@register_module
class ReLU(Module):
    """max(x, 0); the gradient at 0 is 0."""

    def forward(self, x: Any) -> Tensor:
        return _core.relu(x)


@register_module
class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Any) -> Tensor:
        return _core.sigmoid(x)


@register_module
class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Tensor:
        return _core.tanh(x)


@register_module
class GELU(Module):
    """x times the normal distribution function, exact."""

    def forward(self, x: Any) -> Tensor:
        return _core.gelu(x)


@register_module
class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Any) -> Tensor:
        return _core.silu(x)


class _AlongAxis(Module):
    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = whole(f"[{type(self).__name__}] axis", axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"

    def get_config(self) -> dict[str, Any]:
        return {"axis": self.axis}


@register_module
class Softmax(_AlongAxis):
    """Shares of exp(x) along an axis: they sum to 1."""

    def forward(self, x: Any) -> Tensor:
        return _core.softmax(x, self.axis)


@register_module
class LogSoftmax(_AlongAxis):
    """The logarithm of softmax."""

    def forward(self, x: Any) -> Tensor:
        return _core.log_softmax(x, self.axis)

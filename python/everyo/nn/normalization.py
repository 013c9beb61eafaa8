"""Norms: y = weight (x - mean) / sqrt(variance + eps) + bias. Letters: N batch, H W image, C features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOShapeError, Tensor
from everyo.core.checks import real, whole
from everyo.nn.initialization import first_values
from everyo.nn.layers import as_input
from everyo.nn.module import Module, register_module
from everyo.nn.parameter import Parameter


def _check_eps(name: str, eps: float) -> None:
    if not real(f"[{name}] eps", eps) > 0:
        raise ValueError(f"[{name}] eps is {eps}; it must be positive")


class _BatchNorm(Module):
    _rank: int
    _axes: str

    weight: Parameter | None
    bias: Parameter | None
    running_mean: npt.NDArray[np.float32]
    running_var: npt.NDArray[np.float32]
    num_batches_tracked: npt.NDArray[np.int64]

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        num_features = whole(f"[{name}] num_features", num_features)
        if num_features <= 0:
            raise EveryOShapeError(f"[{name}] num_features is {num_features}; it must be positive")
        _check_eps(name, eps)
        if not 0 <= real(f"[{name}] momentum", momentum) <= 1:
            raise ValueError(f"[{name}] momentum is {momentum}; it must be in [0, 1]")
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = bool(affine)
        self.track_running_stats = bool(track_running_stats)
        self.weight = Parameter(first_values("ones", (num_features,))) if affine else None
        self.bias = Parameter(first_values("zeros", (num_features,))) if affine else None
        if track_running_stats:
            self.register_buffer("running_mean", np.zeros(num_features, np.float32))
            self.register_buffer("running_var", np.ones(num_features, np.float32))
            self.register_buffer("num_batches_tracked", np.zeros((), np.int64))

    def forward(self, x: Any, activation: str | None = None) -> Tensor:
        """y; with an activation (such as "relu") the bits of that activation of y, in one op."""
        x = as_input(x)
        name, shape = type(self).__name__, x.shape
        if len(shape) != self._rank:
            raise EveryOShapeError(f"[{name}] x is {shape}; it takes {self._rank}-D input, {self._axes}")
        if shape[-1] != self.num_features:
            raise EveryOShapeError(
                f"[{name}] x is {shape}; its last axis must be {self.num_features}, the layer's num_features"
            )
        if not self.track_running_stats:
            return _core.batch_norm(x, None, None, self.weight, self.bias, eps=self.eps, activation=activation)
        if self.training and x.size:
            self.num_batches_tracked += 1
        return _core.batch_norm(
            x,
            Tensor(self.running_mean),  # over the buffer's own memory
            Tensor(self.running_var),
            self.weight,
            self.bias,
            training=self.training,
            momentum=self.momentum,
            eps=self.eps,
            activation=activation,
        )

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

    def get_config(self) -> dict[str, Any]:
        return {
            "num_features": self.num_features,
            "eps": self.eps,
            "momentum": self.momentum,
            "affine": self.affine,
            "track_running_stats": self.track_running_stats,
        }


@register_module
class BatchNorm1D(_BatchNorm):
    """Batch norm of x [N, C]: in training by the batch's own mean and biased variance, in evaluation by the running ones.

    running = (1 - momentum) running + momentum batch, with the unbiased variance; buffers running_mean, running_var [C]
    and num_batches_tracked. Raises ValueError "eps", "momentum"; EveryOShapeError "2-D input", "last axis", and for one row
    in training.
    """

    _rank, _axes = 2, "(batch, features)"


@register_module
class BatchNorm2D(_BatchNorm):
    """The same for images x [N, H, W, C], each feature over batch and image. Raises EveryOShapeError "4-D input"."""

    _rank, _axes = 4, "(batch, height, width, channels)"


@register_module
class LayerNorm(Module):
    """Layer norm of x [.., D], each D by its own mean and variance; D stands for the trailing axes `normalized_shape`.

    Raises EveryOShapeError "positive normalized_shape" and, in forward, "trailing axes"; ValueError "eps".
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], *, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        sizes = normalized_shape if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
        shape = tuple(whole("[LayerNorm] normalized_shape", size) for size in sizes)
        if not shape or min(shape) <= 0:
            raise EveryOShapeError(
                f"[LayerNorm] the normalized shape is {shape}; it must be a positive normalized_shape"
            )
        _check_eps("LayerNorm", eps)
        self.normalized_shape = shape
        self.eps = eps
        self.affine = bool(affine)
        self.weight = Parameter(first_values("ones", shape)) if affine else None
        self.bias = Parameter(first_values("zeros", shape)) if affine else None

    def forward(self, x: Any, activation: str | None = None) -> Tensor:
        """y; with an activation (such as "relu") the bits of that activation of y, in one op."""
        return _core.layer_norm(
            as_input(x), self.normalized_shape, self.weight, self.bias, eps=self.eps, activation=activation
        )

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"

    def get_config(self) -> dict[str, Any]:
        return {"normalized_shape": self.normalized_shape, "eps": self.eps, "affine": self.affine}


@register_module
class GroupNorm(Module):
    """Group norm of x [N, .., C], each sample's groups of neighbouring features by their own mean and variance.

    Raises EveryOShapeError unless groups divide features, and "last axis" in forward; ValueError "eps".
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, groups: int, num_features: int, *, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        groups, num_features = whole("[GroupNorm] groups", groups), whole("[GroupNorm] num_features", num_features)
        if groups <= 0 or num_features <= 0 or num_features % groups:
            raise EveryOShapeError(
                f"[GroupNorm] {groups} groups of {num_features} features; both must be positive, and groups divide features"
            )
        _check_eps("GroupNorm", eps)
        self.groups = groups
        self.num_features = num_features
        self.eps = eps
        self.affine = bool(affine)
        self.weight = Parameter(first_values("ones", (num_features,))) if affine else None
        self.bias = Parameter(first_values("zeros", (num_features,))) if affine else None

    def forward(self, x: Any, activation: str | None = None) -> Tensor:
        """y; with an activation (such as "relu") the bits of that activation of y, in one op."""
        x = as_input(x)
        if x.ndim < 2 or x.shape[-1] != self.num_features:
            raise EveryOShapeError(
                f"[GroupNorm] x is {x.shape}; it must have a batch, and its last axis {self.num_features}, num_features"
            )
        return _core.group_norm(x, self.groups, self.weight, self.bias, eps=self.eps, activation=activation)

    def extra_repr(self) -> str:
        return f"{self.groups}, {self.num_features}, eps={self.eps}"

    def get_config(self) -> dict[str, Any]:
        return {"groups": self.groups, "num_features": self.num_features, "eps": self.eps, "affine": self.affine}

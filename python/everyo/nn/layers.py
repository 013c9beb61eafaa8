"""Linear and image layers, dropout. Letters: N batch, D and K widths, H W image, C channels; "[..]" any leading sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from everyo import _core
from everyo._core import EveryOShapeError, Tensor
from everyo.nn.initialization import InitializerLike, checked_seed, first_values
from everyo.nn.module import Module, register_module
from everyo.nn.parameter import Parameter

Size = int | tuple[int, int]
Padding = str | int

_WHOLE = frozenset(("bool", "uint8", "int32", "int64"))


def as_input(x: Any) -> Tensor:
    """x as a tensor that a layer computes on: whole numbers and bool become float32."""
    tensor = x if isinstance(x, Tensor) else _core.as_tensor(x)
    return tensor.astype("float32") if tensor.dtype in _WHOLE else tensor


def pair(what: str, value: Size) -> tuple[int, int]:
    """Two positive sizes from one or two. Raises EveryOShapeError "must be positive"."""
    sizes = (int(value),) * 2 if isinstance(value, (int, np.integer)) else tuple(int(size) for size in value)
    if len(sizes) != 2 or min(sizes) <= 0:
        raise EveryOShapeError(f"{what} is {value}; it must be positive, one size or a pair")
    return sizes[0], sizes[1]


def checked_padding(what: str, padding: Padding) -> Padding:
    """ "valid", "same" or cells from 0 up. Raises EveryOShapeError "Unknown padding"."""
    if isinstance(padding, str) and padding.lower() in ("valid", "same"):
        return padding.lower()
    if isinstance(padding, (int, np.integer)) and not isinstance(padding, bool) and padding >= 0:
        return int(padding)
    raise EveryOShapeError(f'[{what}] Unknown padding {padding!r}; it must be "valid", "same" or a number of cells')


@register_module
class Linear(Module):
    """y = x W + b: x [.., D] -> [.., K], weight [D, K], bias [K] of zeros.

    Raises EveryOShapeError unless both widths are positive, and "must be <in_features>" for another x; ValueError "Unknown
    initializer". Weights are those of `numpy.random.default_rng(seed)`.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        initializer: InitializerLike = "he_uniform",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if in_features <= 0 or out_features <= 0:
            raise EveryOShapeError(
                f"[Linear] in_features {in_features} and out_features {out_features}; both must be positive"
            )
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bool(bias)
        self.initializer = initializer
        self.weight = Parameter(first_values(initializer, (in_features, out_features), seed))
        self.bias = Parameter(first_values("zeros", (out_features,))) if bias else None

    def forward(self, x: Any, activation: str | None = None) -> Tensor:
        """y; with an activation ("relu", "sigmoid", "tanh") the bits of that activation of y, in one op."""
        return _core.linear(x, self.weight, self.bias, activation=activation)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.use_bias}"

    def get_config(self) -> dict[str, Any]:
        return {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "bias": self.use_bias,
            "initializer": self.initializer,
        }


@register_module
class Flatten(Module):
    """All axes from `start_dim` on as one: [N, 8, 8] -> [N, 64]."""

    def __init__(self, start_dim: int = 1) -> None:
        super().__init__()
        self.start_dim = start_dim

    def forward(self, x: Any) -> Tensor:
        return _core.flatten(x if isinstance(x, Tensor) else _core.as_tensor(x), self.start_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}"

    def get_config(self) -> dict[str, Any]:
        return {"start_dim": self.start_dim}


@register_module
class Dropout(Module):
    """In training zeroes elements with probability p and scales the others by 1 / (1 - p); in evaluation the identity.

    A mask is a function of the seed (without one, of the thread's), the thread's step, the module's path, and how often it was
    called in that step; so every run has the same masks. Raises ValueError "[0, 1)".
    """

    def __init__(self, p: float = 0.5, *, seed: int | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"[Dropout] p is {p}; it must be in [0, 1)")
        self.p = p
        self.seed = checked_seed(seed)
        self._step = -1
        self._calls = 0  # in that step

    def forward(self, x: Any) -> Tensor:
        tensor = as_input(x)
        if not self.training or self.p == 0:
            return tensor
        step = _core.get_step()
        own = self.__dict__  # past the registration of attributes, which costs time
        own["_calls"] = self._calls + 1 if step == self._step else 0
        own["_step"] = step
        if self.seed is None:
            return _core.dropout(tensor, self.p, site=self._calls)
        outer = _core.get_seed()
        _core.set_seed(self.seed)
        try:
            return _core.dropout(tensor, self.p, site=self._calls)
        finally:
            _core.set_seed(outer)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def get_config(self) -> dict[str, Any]:
        return {"p": self.p}


@register_module
class Conv2D(Module):
    """Convolution of images, channels last: x [N, H, W, C] -> [N, OH, OW, K], weight [KH, KW, C, K], bias [K] of zeros.

    `padding` is "valid", "same" or cells on each side. Raises EveryOShapeError "positive channel counts", "must be positive",
    "Unknown padding", and in forward "4-D tensor", "must be <C> channel", "does not fit".
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size = 3,
        *,
        stride: Size = 1,
        padding: Padding = "valid",
        bias: bool = True,
        initializer: InitializerLike = "he_uniform",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if in_channels <= 0 or out_channels <= 0:
            raise EveryOShapeError(
                f"[Conv2D] in_channels {in_channels} and out_channels {out_channels}; the layer needs positive channel counts"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair("[Conv2D] kernel_size", kernel_size)
        self.stride = pair("[Conv2D] stride", stride)
        self.padding = checked_padding("Conv2D", padding)
        self.use_bias = bool(bias)
        self.initializer = initializer
        shape = (*self.kernel_size, in_channels, out_channels)
        self.weight = Parameter(first_values(initializer, shape, seed))
        self.bias = Parameter(first_values("zeros", (out_channels,))) if bias else None

    def forward(self, x: Any, activation: str | None = None) -> Tensor:
        """y; with an activation ("relu", "sigmoid", "tanh") the bits of that activation of y, in one op."""
        x = as_input(x)
        shape = x.shape
        if len(shape) != 4:
            raise EveryOShapeError(f"[Conv2D] x has shape {shape}; it must be a 4-D tensor, (N, H, W, C)")
        if shape[3] != self.in_channels:
            raise EveryOShapeError(
                f"[Conv2D] x has shape {shape}; its last dimension must be {self.in_channels} channel(s), the layer's in_channels"
            )
        return _core.conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding, activation=activation)

    def extra_repr(self) -> str:
        sizes = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding!r}"
        return f"{self.in_channels}, {self.out_channels}, {sizes}"

    def get_config(self) -> dict[str, Any]:
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "bias": self.use_bias,
            "initializer": self.initializer,
        }


class _Pool2D(Module):
    def __init__(self, pool_size: Size = 2, *, stride: Size | None = None, padding: Padding = "valid") -> None:
        super().__init__()
        name = type(self).__name__
        self.pool_size = pair(f"[{name}] pool_size", pool_size)
        self.stride = self.pool_size if stride is None else pair(f"[{name}] stride", stride)
        self.padding = checked_padding(name, padding)
        if isinstance(self.padding, int) and self.padding >= min(self.pool_size):
            raise EveryOShapeError(
                f"[{name}] padding is {padding} and pool_size {self.pool_size}; a window could lie wholly in the padding, "
                "so padding must be smaller than the window"
            )

    def extra_repr(self) -> str:
        return f"pool_size={self.pool_size}, stride={self.stride}, padding={self.padding!r}"

    def get_config(self) -> dict[str, Any]:
        return {"pool_size": self.pool_size, "stride": self.stride, "padding": self.padding}


@register_module
class MaxPool2D(_Pool2D):
    """Greatest of each window: x [N, H, W, C] -> [N, OH, OW, C]; the stride is the window's size unless given.

    Raises EveryOShapeError "must be positive", "Unknown padding", a window that could lie wholly in the padding, and in
    forward "larger than the padded".
    """

    def forward(self, x: Any) -> Tensor:
        return _core.max_pool2d(as_input(x), self.pool_size, stride=self.stride, padding=self.padding)


@register_module
class AvgPool2D(_Pool2D):
    """Mean of each window's cells in the image: x [N, H, W, C] -> [N, OH, OW, C]. Raises as MaxPool2D."""

    def forward(self, x: Any) -> Tensor:
        return _core.avg_pool2d(as_input(x), self.pool_size, stride=self.stride, padding=self.padding)

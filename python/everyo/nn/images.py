"""Layers of images, channels last. Letters: N images, H and W cells, C and K channels."""

from __future__ import annotations

from typing import Any, SupportsIndex

from everyo import _core
from everyo._core import EveryOShapeError, Tensor
from everyo.core.checks import whole
from everyo.nn.initialization import InitializerLike, Seed, first_values
from everyo.nn.layers import as_input
from everyo.nn.module import Module, register_module
from everyo.nn.parameter import Parameter

Size = int | tuple[int, int]
Padding = str | int


def pair(what: str, value: Size) -> tuple[int, int]:
    """Two positive sizes from one or two. Raises EveryOShapeError "must be positive"."""
    if isinstance(value, (tuple, list)):
        sizes = tuple(whole(what, size) for size in value)
    else:
        sizes = (whole(what, value),) * 2
    if len(sizes) != 2 or min(sizes) <= 0:
        raise EveryOShapeError(f"{what} is {value}; it must be positive, one size or a pair")
    return sizes[0], sizes[1]


def checked_padding(what: str, padding: Padding) -> Padding:
    """ "valid", "same" or cells from 0 up. Raises EveryOShapeError "Unknown padding"."""
    if isinstance(padding, str) and padding.lower() in ("valid", "same"):
        return padding.lower()
    if isinstance(padding, SupportsIndex) and not isinstance(padding, bool) and whole(f"[{what}] padding", padding) >= 0:
        return int(padding)
    raise EveryOShapeError(f'[{what}] Unknown padding {padding!r}; it must be "valid", "same" or a number of cells')


@register_module
class Conv2D(Module):
    """Convolution of images, channels last: x [N, H, W, C] -> [N, OH, OW, K], weight [KH, KW, C / groups, K], bias [K] of zeros.

    `padding` is "valid", "same" or cells on each side. Raises EveryOShapeError "positive channel counts", "must be positive",
    "do not divide", "Unknown padding", and in forward "4-D tensor", "must be <C> channel", "does not fit".
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
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        initializer: InitializerLike = "he_uniform",
        seed: Seed = None,
    ) -> None:
        super().__init__()
        in_channels, out_channels = whole("[Conv2D] in_channels", in_channels), whole("[Conv2D] out_channels", out_channels)
        groups = whole("[Conv2D] groups", groups)
        if in_channels <= 0 or out_channels <= 0:
            raise EveryOShapeError(
                f"[Conv2D] in_channels {in_channels} and out_channels {out_channels}; the layer needs positive channel counts"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair("[Conv2D] kernel_size", kernel_size)
        self.stride = pair("[Conv2D] stride", stride)
        self.padding = checked_padding("Conv2D", padding)
        self.dilation = pair("[Conv2D] dilation", dilation)
        if groups <= 0:
            raise EveryOShapeError(f"[Conv2D] groups is {groups}; it must be positive")
        if in_channels % groups or out_channels % groups:
            raise EveryOShapeError(
                f"[Conv2D] {groups} groups do not divide in_channels {in_channels} and out_channels {out_channels}"
            )
        self.groups = groups
        self.use_bias = bool(bias)
        self.initializer = initializer
        shape = (*self.kernel_size, in_channels // groups, out_channels)
        self.weight = Parameter(first_values(initializer, shape, seed))
        self.bias = Parameter(first_values("zeros", (out_channels,))) if bias else None

    def forward(self, x: Any, activation: str | None = None) -> Tensor:
        """y; with an activation (such as "relu") the bits of that activation of y, in one op."""
        x = as_input(x)
        shape = x.shape
        if len(shape) != 4:
            raise EveryOShapeError(f"[Conv2D] x has shape {shape}; it must be a 4-D tensor, (N, H, W, C)")
        if shape[3] != self.in_channels:
            raise EveryOShapeError(
                f"[Conv2D] x has shape {shape}; its last dimension must be {self.in_channels} channel(s), the layer's in_channels"
            )
        return _core.conv2d(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            activation=activation,
        )

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
            "dilation": self.dilation,
            "groups": self.groups,
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


@register_module
class AdaptiveAvgPool2D(Module):
    """Means of as many windows as the output has cells: x [N, H, W, C] -> [N, *output_size, C].

    Raises EveryOShapeError "must be positive".
    """

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = pair("[AdaptiveAvgPool2D] output_size", output_size)

    def forward(self, x: Any) -> Tensor:
        return _core.adaptive_avg_pool2d(as_input(x), self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"

    def get_config(self) -> dict[str, Any]:
        return {"output_size": self.output_size}


@register_module
class GlobalAvgPool2D(Module):
    """Mean of each channel: x [N, H, W, C] -> [N, C]."""

    def forward(self, x: Any) -> Tensor:
        return _core.global_avg_pool2d(as_input(x))

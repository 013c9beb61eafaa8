"""Linear, shape and dropout layers. Letters: N batch, D and K widths; "[..]" any leading sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from everyo import _core
from everyo._core import EveryOShapeError, Tensor
from everyo.core.checks import real, whole
from everyo.nn.initialization import InitializerLike, Seed, first_values
from everyo.nn.module import Module, register_module
from everyo.nn.parameter import Parameter

_WHOLE = frozenset(("bool", "uint8", "int32", "int64"))


def as_input(x: Any) -> Tensor:
    """x as a tensor that a layer computes on: whole numbers and bool become float32."""
    tensor = x if isinstance(x, Tensor) else _core.as_tensor(x)
    return tensor.astype("float32") if tensor.dtype in _WHOLE else tensor


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
        seed: Seed = None,
    ) -> None:
        super().__init__()
        in_features, out_features = whole("[Linear] in_features", in_features), whole("[Linear] out_features", out_features)
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
        """y; with an activation (such as "relu") the bits of that activation of y, in one op."""
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
        self.start_dim = whole("[Flatten] start_dim", start_dim)

    def forward(self, x: Any) -> Tensor:
        return _core.flatten(x if isinstance(x, Tensor) else _core.as_tensor(x), self.start_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}"

    def get_config(self) -> dict[str, Any]:
        return {"start_dim": self.start_dim}


@register_module
class Unflatten(Module):
    """The last axis as several: Unflatten((8, 8, 1)) makes [N, 64] an image [N, 8, 8, 1]. Raises EveryOShapeError "must be"."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(whole("[Unflatten] size", size) for size in sizes)

    def forward(self, x: Any) -> Tensor:
        x = x if isinstance(x, Tensor) else _core.as_tensor(x)
        if x.ndim == 0 or x.shape[-1] != prod(self.sizes):
            raise EveryOShapeError(
                f"[Unflatten] x has shape {x.shape}; its last dimension must be {prod(self.sizes)}, to become {self.sizes}"
            )
        return _core.reshape(x, (*x.shape[:-1], *self.sizes))

    def extra_repr(self) -> str:
        return f"{self.sizes}"

    def get_config(self) -> dict[str, Any]:
        return {"sizes": self.sizes}


@register_module
class Dropout(Module):
    """In training zeroes elements with probability p and scales the others by 1 / (1 - p); in evaluation the identity.

    A mask is a function of the seed (without one, of the thread's), the thread's step and micro-batch, the module's path, and
    how often it was called for these; so every run has the same masks. Raises ValueError "[0, 1)".
    """

    def __init__(self, p: float = 0.5, *, seed: Seed = None) -> None:
        super().__init__()
        p = real("[Dropout] p", p)
        if not 0 <= p < 1:
            raise ValueError(f"[Dropout] p is {p}; it must be in [0, 1)")
        self.p = p
        self.seed: Seed = None if seed is None else _core.seed_word(seed)
        self._calls: dict[tuple[int, int], int] = {}  # of one step: by step and micro-batch

    def forward(self, x: Any) -> Tensor:
        tensor = as_input(x)
        if not self.training or self.p == 0:
            return tensor
        site = self._count(_core.get_step(), _core.get_micro_batch())
        if self.seed is None:
            return _core.dropout(tensor, self.p, site=site)
        outer = _core.get_seed()
        _core.set_seed(self.seed)
        try:
            return _core.dropout(tensor, self.p, site=site)
        finally:
            _core.set_seed(outer)

    def _count(self, step: int, micro_batch: int) -> int:
        """Calls before this one; threads may run micro-batches side by side."""
        place, calls = (step, micro_batch), self._calls
        before = calls.get(place)
        if before is None:
            for old in [key for key in tuple(calls) if key[0] != step]:
                calls.pop(old, None)
            before = 0
        calls[place] = before + 1
        return before

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def get_config(self) -> dict[str, Any]:
        return {"p": self.p}

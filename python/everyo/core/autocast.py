"""Reduced precision: products in halves for a scope, and the scaling of losses that float16 needs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from .. import _core
from .._core import Tensor, is_autocast_enabled
from .checks import real, whole
from .dtype import resolve_dtype
from .scope import Scope

__all__ = [
    "AUTOCAST_OPS",
    "GradScaler",
    "PrecisionReport",
    "PrecisionRow",
    "autocast",
    "autocast_dtype",
    "is_autocast_enabled",
    "precision_report",
]

#: The ops whose operands autocast turns into halves. Linear is a matmul, and its bias goes with it.
AUTOCAST_OPS = frozenset({"matmul", "conv2d"})


def autocast_dtype() -> Any:
    """The dtype of products under autocast: NumPy's, or "bfloat16", which NumPy has not."""
    name = _core.autocast_dtype_name()
    return name if name == "bfloat16" else resolve_dtype(name)


class autocast(Scope):
    """Products of this thread in a half, while inside: a context manager, which may be entered again, and a decorator.

    Each operand is cast by a node of the graph, so weights and their gradients stay float32. `enabled=False` is an island
    of ordinary dtypes. Raises EveryOError "floating" for a dtype that is no floating half, TypeError for one in the place of
    `enabled`.
    """

    def __init__(self, enabled: bool = True, *, dtype: Any = "float16") -> None:
        if isinstance(enabled, (str, type)):
            raise TypeError(f"[autocast] enabled is {enabled!r}; it must be True or False, and a dtype is given as dtype=")
        if dtype is None:
            raise TypeError("[autocast] dtype is None; give float16 or bfloat16, or enabled=False")
        super().__init__(functools.partial(_core.AutocastMode, bool(enabled), dtype))


class PrecisionRow(NamedTuple):
    """Calls of one op in one module that had the same dtypes."""

    module: str  # its dotted path, "" outside any
    op: str  # the library's, such as "linear_activation" for a Linear and the ReLU behind it
    policy: str  # what autocast does with it: "low", "follow", "keep32" or "promote"
    operands: tuple[str, ...]
    results: tuple[str, ...]
    calls: int


class PrecisionReport(list[PrecisionRow]):
    """What ran in which dtype, in the order of first calls. str() is a table."""

    def __init__(self, rows: list[PrecisionRow], table: str) -> None:
        super().__init__(rows)
        self._table = table

    def __str__(self) -> str:
        return self._table


def precision_report(function: Callable[..., object], *arguments: Any, **options: Any) -> PrecisionReport:
    """Calls a model, or any function, and says which ops ran in which dtype: `print(precision_report(model, x))`."""
    rows, table = _core.precision_report(functools.partial(function, *arguments, **options))
    return PrecisionReport([PrecisionRow(*row) for row in rows], table)


class GradScaler:
    """Keeps small float16 gradients from becoming zero: scales the loss, unscales gradients, and leaves out a step whose
    gradients overflowed.

        scaler.backward(loss)
        scaler.unscale_(optimizer)          # only to look at gradients, or to clip them
        applied = scaler.step(optimizer)
        scaler.update()                     # once, after the steps of all optimizers

    The scale falls by backoff_factor, to 1.0 at the least, after a step that was left out, and grows by growth_factor after
    growth_interval clean ones. After most_skips steps left out in a row, update() raises EveryOError with the name of the
    first parameter that overflowed; 0 never does. Raises ValueError for arguments out of range.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        most_skips: int = 200,
        enabled: bool = True,
    ) -> None:
        self._options = (
            real("[GradScaler] init_scale", init_scale),
            real("[GradScaler] growth_factor", growth_factor),
            real("[GradScaler] backoff_factor", backoff_factor),
            whole("[GradScaler] growth_interval", growth_interval),
            whole("[GradScaler] most_skips", most_skips),
            bool(enabled),
        )
        self._scaler = _core.GradScaler(*self._options)
        self.enabled = bool(enabled)
        self.growth_factor = float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = int(growth_interval)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scaler": self.state_dict()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self._scaler = _core.GradScaler(*self._options)
        self.load_state_dict(saved["_scaler"])

    def get_scale(self) -> float:
        """The scale now; 1.0 when disabled."""
        return self._scaler.get_scale()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale; when disabled, the loss itself."""
        if not isinstance(loss, Tensor):
            raise TypeError(f"[GradScaler] the loss is of type {type(loss).__name__}; it must be a Tensor")
        return self._scaler.scaled(loss) if self.enabled else loss

    def backward(self, loss: Tensor) -> None:
        """self.scale(loss).backward()."""
        self.scale(loss).backward()

    def unscale_(self, optimizer: Any) -> bool:
        """Divides the optimizer's gradients by their scale; are all finite? Once a step."""
        return self._scaler.unscale(_parameters(optimizer), optimizer, type(optimizer).__name__)

    def step(self, optimizer: Any) -> bool:
        """Unscales what is not, and steps unless a gradient is infinite or NaN; whether it did."""
        return self._scaler.step(_parameters(optimizer), optimizer, type(optimizer).__name__, optimizer.step)

    def update(self, new_scale: Optional[float] = None) -> None:
        """Adapts the scale to what the steps found, or sets it."""
        self._scaler.update(None if new_scale is None else real("[GradScaler] new_scale", new_scale))

    @property
    def skipped_steps(self) -> int:
        """Steps left out so far."""
        return self._scaler.skipped_steps

    @property
    def applied_steps(self) -> int:
        """Steps made so far."""
        return self._scaler.applied_steps

    @property
    def overflowed(self) -> str:
        """The first parameter whose gradient was not finite when a step was last left out, "" before."""
        return self._scaler.overflowed

    def state_dict(self) -> dict[str, Any]:
        """Scale and counts: scale, good_steps, skipped_steps, applied_steps, skips_in_a_row."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what state_dict() gave. Raises EveryOError when it does not fit."""
        if not isinstance(state, dict):
            raise TypeError(f"[GradScaler] the state is of type {type(state).__name__}; it must be a dict")
        self._scaler.load_state_dict(state)


def _parameters(optimizer: Any) -> list[Tensor]:
    parameters = getattr(optimizer, "parameters", None)
    if not isinstance(parameters, list) or not callable(getattr(optimizer, "step", None)):
        raise TypeError(f"[GradScaler] {type(optimizer).__name__} is no optimizer; it needs parameters and step()")
    return parameters

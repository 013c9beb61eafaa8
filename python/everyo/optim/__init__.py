"""Optimizers: what turns gradients into steps. The native ones update each parameter in one pass over memory."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from everyo import _core
from everyo._core import (
    EveryOError,
    EveryOSerializationError,
    Schedule,
    Tensor,
    clip_grad_norm,
    clip_grad_value,
    constant_schedule,
    cosine_schedule,
    first_nonfinite,
    step_schedule,
    warm_up,
)
from everyo.core.checks import real

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "Schedule",
    "Scheduler",
    "clip_grad_norm",
    "clip_grad_value",
    "constant_schedule",
    "cosine_schedule",
    "first_nonfinite",
    "step_schedule",
    "warm_up",
]


# What get_config() leaves out: the earlier library had neither.
_OWN_OPTIONS = ("state_dtype", "master_weights")


def _each_once(name: str, parameters: Iterable[Any]) -> list[Tensor]:
    """The parameters, tied ones once. Raises EveryOError "no parameters" and "EveryO tensor"."""
    found = list({id(each): each for each in parameters}.values())
    if not found:
        raise EveryOError(f"[{name}] there are no parameters; give model.parameters()")
    for i, parameter in enumerate(found):
        if not isinstance(parameter, Tensor):
            raise EveryOError(
                f"[{name}] entry {i} is {type(parameter).__name__}, not an EveryO tensor; give model.parameters()"
            )
    return found


class Optimizer:
    """Base of optimizers; one of your own defines `step()`, and ends it with `self.step_count += 1`.

    Raises EveryOError "no parameters" and "EveryO tensor", ValueError for a learning rate that is not positive.
    """

    parameters: list[Tensor]

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        name = type(self).__name__
        if not isinstance(parameters, Iterable):
            raise EveryOError(
                f"[{name}] parameters are a {type(parameters).__name__}, which is not an EveryO tensor nor a list of them; "
                "give model.parameters()"
            )
        self.parameters = _each_once(name, [parameters] if isinstance(parameters, Tensor) else parameters)
        self.lr = lr
        self.step_count = 0

    @property
    def lr(self) -> float:
        """Learning rate, positive."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        value = real(f"[{type(self).__name__}] lr", value)
        if not value > 0:
            raise ValueError(f"[{type(self).__name__}] lr {value} must be positive and finite")
        self._lr = float(value)

    @property
    def state(self) -> dict[int, dict[str, Any]]:
        """Copies of what is kept for each parameter, by its id()."""
        return {}

    def zero_grad(self) -> None:
        """Clears all gradients."""
        for parameter in self.parameters:
            parameter.zero_grad()

    def step(self) -> None:
        """One update of every parameter that has a gradient and is not frozen; to be defined by each class."""
        raise NotImplementedError(f"[Optimizer] {type(self).__name__} does not define step()")

    def get_config(self) -> dict[str, Any]:
        """The options, by the names of the arguments."""
        return {"lr": self.lr}


class _NativeOptimizer(Optimizer):
    """An optimizer of the library, and the options it was made with; it steps `parameters` as that list is at the time.

    float16 and bfloat16 parameters have float32 masters, unless `master_weights` is false: steps are made on them, and the
    parameter is their rounding. One that is set to something else is what its master begins anew from.
    """

    def __init__(
        self,
        kind: type[_core.Optimizer],
        parameters: Iterable[Tensor],
        lr: float,
        options: dict[str, Any],
        state_dtype: Any,
        master_weights: bool,
    ) -> None:
        self._native: _core.Optimizer | None = None
        super().__init__(parameters, lr)
        self._kind = kind
        numbers = {
            name: value if isinstance(value, (bool, tuple)) else real(f"[{type(self).__name__}] {name}", value)
            for name, value in options.items()
        }
        self._options = {**numbers, "state_dtype": state_dtype, "master_weights": bool(master_weights)}
        self._native = self._made(lr)

    def _made(self, lr: float) -> _core.Optimizer:
        make: Any = self._kind
        made = make(self.parameters, lr, **self._options)
        self._stepped = list(self.parameters)
        return made  # type: ignore[no-any-return]

    def _current(self) -> _core.Optimizer:
        """The native one; after a change of `parameters` one of the new list, where those that stay keep their states."""
        native, before = self._native, self._stepped
        assert native is not None
        if len(before) == len(self.parameters) and all(map(operator.is_, before, self.parameters)):
            return native
        self.parameters = _each_once(type(self).__name__, self.parameters)
        old = native.state()
        new = self._made(native.lr)
        state = {**new.state(), "step_count": old["step_count"]}
        place = {id(parameter): str(i) for i, parameter in enumerate(before)}
        for i, parameter in enumerate(self.parameters):
            entry = state["parameters"][str(i)]
            state["parameters"][str(i)] = {**old["parameters"].get(place.get(id(parameter)), entry), "name": entry["name"]}
        new.load(state)
        self._native = new
        return new

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """For copy and pickle: a copy of a model and its optimizer together steps the copied model."""
        state = self.state_dict()
        return {name: value for name, value in self.__dict__.items() if name not in ("_native", "_stepped")}, state

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        own, steps = state
        self.__dict__.update(own)
        self._native = self._made(self._lr)
        self._native.load(steps)

    @property
    def lr(self) -> float:
        """Learning rate, positive."""
        return self._native.lr if self._native is not None else self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        value = real(f"[{type(self).__name__}] lr", value)
        if self._native is None:
            self._lr = value  # checked by the native one
        else:
            self._native.lr = value

    @property
    def step_count(self) -> int:
        """Steps taken."""
        return self._native.step_count if self._native is not None else 0

    @step_count.setter
    def step_count(self, value: int) -> None:
        if value:
            raise AttributeError(f"[{type(self).__name__}] step_count is counted by step(); load_state_dict() sets it")

    def zero_grad(self) -> None:
        self._current().zero_grad()

    def step(self) -> None:
        """One update of every parameter that has a gradient and is not frozen."""
        self._current().step()

    @property
    def state(self) -> dict[int, dict[str, Any]]:
        """Copies of what is kept for each parameter that was stepped, by its id(): its steps, and arrays of its shape."""
        saved = self.state_dict()["parameters"]
        entries = ((parameter, saved[str(i)]) for i, parameter in enumerate(self.parameters))
        return {
            id(parameter): {key: value for key, value in entry.items() if key != "name"}
            for parameter, entry in entries
            if entry["steps"]
        }

    def state_dict(self) -> dict[str, Any]:
        """Steps, learning rates and each parameter's arrays, as nested dicts."""
        return self._current().state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what state_dict() gave. Raises EveryOError when it does not fit; nothing is changed then."""
        if not isinstance(state, dict):
            raise EveryOSerializationError(
                f"[{type(self).__name__}] the state is a {type(state).__name__}; it must be a dict of state_dict()"
            )
        self._current().load(state)

    def get_config(self) -> dict[str, Any]:
        return {"lr": self.lr, **{name: value for name, value in self._options.items() if name not in _OWN_OPTIONS}}


class SGD(_NativeOptimizer):
    """v = momentum v + g, v = g at first; p -= lr v, with Nesterov p -= lr (g + momentum v). Weight decay joins the gradient.

    Half parameters have float32 masters unless `master_weights` is false. Raises ValueError "[0, 1)" for momentum and "Nesterov"
    without it.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 0.01,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        state_dtype: str = "float32",
        master_weights: bool = True,
    ) -> None:
        options = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(_core.SGD, parameters, lr, options, state_dtype, master_weights)


def _two_betas(name: str, betas: Any) -> tuple[float, float]:
    if not isinstance(betas, Iterable) or isinstance(betas, (str, bytes)):
        raise TypeError(f"[{name}] betas are {betas!r:.60}, of type {type(betas).__name__}; give two numbers")
    numbers = tuple(real(f"[{name}] betas: beta{i}", beta) for i, beta in enumerate(betas, 1))
    if len(numbers) != 2:
        raise ValueError(f"[{name}] betas are {numbers}; there must be two, beta1 and beta2")
    return numbers[0], numbers[1]


class Adam(_NativeOptimizer):
    """Adam (Kingma and Ba 2015), bias-corrected, eps outside the root; weight decay joins the gradient.

    Moments are float32, or bfloat16 or float64 by `state_dtype`; in bfloat16 take betas[1] up to 0.99, or the mean of squares
    cannot fall. Half parameters have float32 masters unless `master_weights` is false. Raises ValueError "beta1", "beta2", "eps".
    """

    _kind: type[_core.Optimizer] = _core.Adam

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        state_dtype: str = "float32",
        master_weights: bool = True,
    ) -> None:
        options = {"betas": _two_betas(type(self).__name__, betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(self._kind, parameters, lr, options, state_dtype, master_weights)


class AdamW(Adam):
    """Adam with weight decay on the weight itself (Loshchilov and Hutter 2019). Raises as Adam."""

    _kind = _core.AdamW

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        state_dtype: str = "float32",
        master_weights: bool = True,
    ) -> None:
        super().__init__(
            parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, state_dtype=state_dtype,
            master_weights=master_weights,
        )


class Scheduler(_core.Scheduler):
    """Applies a schedule to the learning rate that an optimizer was made with: call step() after each of the optimizer's.

    Raises TypeError for an optimizer that is not the library's.
    """

    def __init__(self, optimizer: Optimizer, schedule: Schedule) -> None:
        if not isinstance(optimizer, _NativeOptimizer) or optimizer._native is None:
            raise TypeError(
                f"[Scheduler] {type(optimizer).__name__} is no SGD, Adam or AdamW; set the lr of your own optimizer instead"
            )
        if not isinstance(schedule, Schedule):
            raise TypeError(f"[Scheduler] schedule is a {type(schedule).__name__}; give one such as cosine_schedule(100)")
        super().__init__(optimizer._native, schedule)
        self._optimizer, self._native = optimizer, optimizer._native

    def step(self) -> None:
        """After each optimizer step that was applied."""
        super().step()
        if self._optimizer._native is not self._native:  # its list of parameters has changed
            self._optimizer.lr = self._native.lr

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "[Scheduler] cannot be copied or pickled; make one for the copied optimizer, and load() what state() gives"
        )

"""A Trainer's whole state as nested dicts of numbers and arrays, and the way back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from everyo._core import EveryOSerializationError
from everyo.data import DataLoader
from everyo.training.history import History

if TYPE_CHECKING:
    from everyo.training.trainer import Trainer

State = dict[str, Any]
#: Of steps, samples or epochs: more than anyone makes, and exact as a float.
_MOST_COUNTED = 2**53


def _refuse(why: str) -> EveryOSerializationError:
    return EveryOSerializationError(f"[Trainer] the state does not fit: {why}")


def state_of(trainer: Trainer) -> State:
    """What Trainer.state() gives."""
    optimizer = trainer.optimizer
    if not hasattr(optimizer, "state_dict"):
        raise _refuse(f"{type(optimizer).__name__} has no state_dict() and load_state_dict()")
    state: State = {
        "model": dict(trainer.model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "precision": trainer.precision,
        "steps": trainer._steps,
        "epoch": trainer._epoch,
        "stopped": trainer.stop_training,
        "history": {str(i): _numbers(row) for i, row in enumerate(trainer.history)},
        "callbacks": {
            str(i): {"class": type(callback).__name__, "state": callback.state()}
            for i, callback in enumerate(trainer._callbacks)
        },
    }
    if trainer.scaler is not None:
        state["scaler"] = trainer.scaler.state_dict()
    if trainer._running is not None:
        state["running"] = {**trainer._running.state(), "batches": trainer._batches, "given": trainer._given}
    loader = trainer._loader
    if isinstance(loader, DataLoader):
        # What counts is what was trained on, whatever was given out. A generator's words have 128 bits, so they go as text.
        order = loader.state_dict()
        state["loader"] = {**order, "position": trainer._given, "generator": json.dumps(order["generator"])}
    return state


def load_loader(loader: Any, state: State) -> None:
    """Puts a DataLoader where the state's stood; others begin anew. Raises EveryOSerializationError for other samples."""
    if not isinstance(loader, DataLoader):
        return
    if "loader" not in state:
        if "running" in state:
            raise _refuse("it is of the middle of an epoch and does not say where a DataLoader stood; give fit what it had then")
        return
    try:
        generator = json.loads(state["loader"]["generator"])
    except (KeyError, TypeError, ValueError) as error:
        raise _refuse(f"its loader is damaged: {error}") from error
    loader.load_state_dict({**state["loader"], "generator": generator})


def _numbers(row: dict[str, Any]) -> State:
    return {key: value if isinstance(value, int) else float(value) for key, value in row.items()}


def check(trainer: Trainer, state: Any) -> None:
    """Raises EveryOSerializationError for what is no state of a Trainer; model and optimizer check their own parts."""
    _check_keys("it", state, {"model": dict, "optimizer": dict, "steps": int, "epoch": int, "stopped": bool, "history": dict,
                              "callbacks": dict})
    precision = state.get("precision", "float32")  # version 0.4 had no other
    if precision != trainer.precision:
        raise _refuse(f"it was saved in {precision!s:.60}, and this trainer's precision is {trainer.precision}")
    if trainer.scaler is not None:
        _check_keys("it", state, {"scaler": dict})
    for row in _numbered(state, "history"):
        _check_keys("a row of its history", row, {"epoch": int})
        _check_keys("a row of its history", row, dict.fromkeys(row, float))
    for callback in _numbered(state, "callbacks"):
        _check_keys("a callback of it", callback, {"class": str, "state": dict})
    if "running" in state:
        _check_running(trainer, state["running"])
    if "loader" in state:
        _check_keys("its loader", state["loader"], {"samples": int, "shuffle": bool, "position": int, "generator": str})
        given = state["running"]["given"] if "running" in state else 0
        if state["loader"]["position"] != given:
            raise _refuse(f"its loader stands at sample {state['loader']['position']}, and its epoch has seen {given}")
    if not hasattr(trainer.optimizer, "load_state_dict"):
        raise _refuse(f"{type(trainer.optimizer).__name__} has no load_state_dict()")


def _check_running(trainer: Trainer, running: Any) -> None:
    """An epoch's sums so far."""
    _check_keys("its epoch", running, {"loss_total": float, "samples": int, "batches": int, "given": int})
    _check_keys("its epoch", running, {"skipped": int} if "skipped" in running else {})
    if ("outputs" in running) != ("targets" in running):
        raise _refuse("its epoch has one of outputs and targets; metrics need both")
    if "outputs" in running:
        shapes = [np.shape(running[key]) for key in ("outputs", "targets")]
        if not all(shapes) or shapes[0][0] != shapes[1][0]:
            raise _refuse(f"its epoch has outputs {shapes[0]} and targets {shapes[1]}; they must have the same rows")
    elif trainer.metrics and running["samples"]:
        raise _refuse("its epoch has kept no outputs for metrics; go on without metrics, or from the end of an epoch")


def _check_keys(what: str, state: Any, kinds: dict[str, type]) -> None:
    """Each key is there and of its kind; a float may be whole, and whole numbers are 0 to _MOST_COUNTED."""
    if not isinstance(state, dict):
        raise _refuse(f"{what} is a {type(state).__name__}, not a dict")
    for key, kind in kinds.items():
        if key not in state:
            raise _refuse(f"{what} has no {key!r}")
        value = state[key]
        if not isinstance(value, (int, float) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
            raise _refuse(f"{what} has a {type(value).__name__} as {key!r}, not a {kind.__name__}")
        if type(value) is int and not (0 if kind is int else -_MOST_COUNTED) <= value <= _MOST_COUNTED:
            number = value if abs(value) < 2**64 else "a number of more than 64 bits"
            raise _refuse(f"{what} has {number} as {key!r}; a count is from 0 to {_MOST_COUNTED}")


def _numbered(state: State, key: str) -> list[Any]:
    """The entries "0" to "n-1" of a part."""
    part = state[key]
    names = [str(i) for i in range(len(part))]
    if set(names) != set(part):
        raise _refuse(f"its {key!r} has the entries {', '.join(map(str, part)):.60}; they must be numbered from 0")
    return [part[name] for name in names]


def history_of(state: State) -> History:
    """The history of a state that was checked."""
    history = History()
    for row in _numbered(state, "history"):
        history.append(**row)
    return history


def load_callbacks(callbacks: list[Any], states: State) -> None:
    """Gives each callback its state. Raises EveryOSerializationError unless they are of the same classes in the same order."""
    names = [states[str(i)]["class"] for i in range(len(states))]
    own = [type(callback).__name__ for callback in callbacks]
    if names != own:
        raise _refuse(f"it was saved with the callbacks {', '.join(names) or 'none'}; fit has {', '.join(own) or 'none'}")
    for i, callback in enumerate(callbacks):
        try:
            callback.load(states[str(i)]["state"])
        except (KeyError, TypeError, ValueError) as error:
            raise _refuse(f"that of callback {i}, {own[i]}, is damaged: {type(error).__name__} {error}") from error


def as_arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a model's state, in memory of their own. Raises TypeError unless it is a dict of arrays."""
    if not isinstance(state, dict):
        raise TypeError(f"a model's state is a {type(state).__name__}, not a dict")
    arrays = {name: np.array(value) for name, value in state.items()}
    for name, array in arrays.items():
        if array.dtype.kind in "OUS":
            raise TypeError(f"{name!r} of a model's state is a {type(state[name]).__name__}, not an array of numbers")
    return arrays

"""A Trainer's whole state as nested dicts of numbers and arrays, and the way back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from everyo._core import EveryOSerializationError
from everyo.data import DataLoader

if TYPE_CHECKING:
    from everyo.training.trainer import Trainer

State = dict[str, Any]


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
        "steps": trainer._steps,
        "epoch": trainer._epoch,
        "stopped": trainer.stop_training,
        "history": {str(i): _numbers(row) for i, row in enumerate(trainer.history)},
        "callbacks": {
            str(i): {"class": type(callback).__name__, "state": callback.state()}
            for i, callback in enumerate(trainer._callbacks)
        },
    }
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
    if "loader" not in state or not isinstance(loader, DataLoader):
        return
    try:
        generator = json.loads(state["loader"]["generator"])
    except (KeyError, TypeError, ValueError) as error:
        raise _refuse(f"its loader is damaged: {error}") from error
    loader.load_state_dict({**state["loader"], "generator": generator})


def _numbers(row: dict[str, Any]) -> State:
    return {key: value if isinstance(value, int) else float(value) for key, value in row.items()}


def check(trainer: Trainer, state: Any) -> None:
    """Raises EveryOSerializationError for what is no state of a Trainer."""
    if not isinstance(state, dict):
        raise _refuse(f"it is a {type(state).__name__}, not a dict")
    for key, kind in (("model", dict), ("optimizer", dict), ("steps", int), ("epoch", int), ("stopped", bool),
                      ("history", dict), ("callbacks", dict)):
        if not isinstance(state.get(key), kind):
            raise _refuse(f"its {key!r} is a {type(state.get(key)).__name__}, not a {kind.__name__}")
    if state["steps"] < 0 or state["epoch"] < 0:
        raise _refuse(f"it has made {state['steps']} steps and {state['epoch']} epochs")
    if not hasattr(trainer.optimizer, "load_state_dict"):
        raise _refuse(f"{type(trainer.optimizer).__name__} has no load_state_dict()")


def load_callbacks(callbacks: list[Any], states: State) -> None:
    """Gives each callback its state. Raises EveryOSerializationError unless they are of the same classes in the same order."""
    names = [states[str(i)]["class"] for i in range(len(states))]
    own = [type(callback).__name__ for callback in callbacks]
    if names != own:
        raise _refuse(f"it was saved with the callbacks {', '.join(names) or 'none'}; fit has {', '.join(own) or 'none'}")
    for i, callback in enumerate(callbacks):
        callback.load(states[str(i)]["state"])


def as_arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a model's state, in memory of their own."""
    return {name: np.array(value) for name, value in state.items()}

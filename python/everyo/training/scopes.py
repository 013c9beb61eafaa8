"""What is set while a Trainer works, and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everyo import _core
from everyo.nn.module import Module


@contextmanager
def mode_of(model: Module, training: bool) -> Iterator[None]:
    """All of the model in one mode; each module's own comes back."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, own in modes:
            module.training = own


@contextmanager
def own_step() -> Iterator[None]:
    """The thread's step is ours within; afterwards it is what it was."""
    outer = _core.get_step()
    try:
        yield
    finally:
        _core.set_step(outer)

"""Modes of a thread for a scope: what `no_grad` and `autocast` share."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Optional, Protocol, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_S = TypeVar("_S", bound="Scope")


class Mode(Protocol):
    """A mode of the library for one with-block of one thread."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...


class Scope:
    """A mode of this thread: a context manager, which may be entered again, and a decorator. `make` makes the mode; each
    thread and each decorated call has its own, so that threads and recursion do not meet."""

    def __init__(self, make: Callable[[], Mode]) -> None:
        self._make = make
        self._here = threading.local()
        self._here.mode = make()  # refuses what is wrong now, and not when it is entered

    def __getstate__(self) -> Callable[[], Mode]:
        return self._make

    def __setstate__(self, make: Callable[[], Mode]) -> None:
        self._make = make
        self._here = threading.local()

    def __enter__(self: _S) -> _S:
        mode = getattr(self._here, "mode", None)
        if mode is None:
            mode = self._here.mode = self._make()
        mode.__enter__()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._here.mode.__exit__(kind, error, trace)

    def __call__(self, function: _F) -> _F:
        make = self._make
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"[{type(self).__name__}] {function.__name__} is async, and its thread runs others while it waits; "
                "use a with-block between the awaits"
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def running(*arguments: Any, **options: Any) -> Any:
                return _run_in_mode(make, function(*arguments, **options))

            return running  # type: ignore[return-value]

        @functools.wraps(function)
        def inside(*arguments: Any, **options: Any) -> Any:
            with make():
                return function(*arguments, **options)

        return inside  # type: ignore[return-value]


def _run_in_mode(make: Callable[[], Mode], generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator's values, with the mode set while it runs and not between."""
    resume: Callable[[], Any] = functools.partial(next, generator)
    try:
        while True:
            with make():
                value = resume()
            try:
                resume = functools.partial(generator.send, (yield value))
            except GeneratorExit:
                with make():
                    generator.close()
                raise
            except BaseException as error:
                resume = functools.partial(generator.throw, error)
    except StopIteration as end:
        return end.value

"""Gradients: modes, backward, and a look at the graph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

from .. import _core
from .._core import Node, Tensor, is_grad_enabled

__all__ = [
    "Node",
    "backward",
    "enable_grad",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
    "topological_order",
    "unbroadcast",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class _GradScope:
    """Recording on or off: a context manager, and a decorator. Of this thread."""

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._scope = _core.GradMode(mode)

    def __enter__(self) -> "_GradScope":
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._scope.__exit__(kind, error, trace)

    def __call__(self, function: _F) -> _F:
        mode = self._mode
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"[{type(self).__name__}] {function.__name__} is async, and its thread runs others while it waits; "
                "use a with-block between the awaits"
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def running(*arguments: Any, **options: Any) -> Any:
                return _run_in_mode(mode, function(*arguments, **options))

            return running  # type: ignore[return-value]

        @functools.wraps(function)
        def inside(*arguments: Any, **options: Any) -> Any:
            with _core.GradMode(mode):
                return function(*arguments, **options)

        return inside  # type: ignore[return-value]


def _run_in_mode(mode: bool, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator's values, with the mode set while it runs and not between."""
    resume: Callable[[], Any] = functools.partial(next, generator)
    try:
        while True:
            with _core.GradMode(mode):
                value = resume()
            try:
                resume = functools.partial(generator.send, (yield value))
            except GeneratorExit:
                with _core.GradMode(mode):
                    generator.close()
                raise
            except BaseException as error:
                resume = functools.partial(generator.throw, error)
    except StopIteration as end:
        return end.value


class no_grad(_GradScope):
    """Nothing is recorded inside."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(_GradScope):
    """Recording again, inside a no_grad."""

    def __init__(self) -> None:
        super().__init__(True)


class set_grad_enabled(_GradScope):
    """Recording as `mode` says."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))


def _checked(what: str, root: Any) -> Tensor:
    if not isinstance(root, Tensor):
        raise TypeError(f"[{what}] root is a {type(root).__name__}; it must be a Tensor")
    return root


def backward(root: Tensor, gradient: Any = None) -> None:
    """root.backward(gradient): adds gradients to every leaf that root was made from."""
    _checked("backward", root).backward(gradient)


def topological_order(root: Tensor) -> list[Node]:
    """The recorded ops behind root, consumers before what they consume."""
    root = _checked("topological_order", root)
    if root.grad_node is None:
        return []
    waiting: dict[Node, int] = {}
    stack = [root.grad_node]
    seen = {root.grad_node}
    while stack:
        for parent in _nodes(stack.pop()):
            waiting[parent] = waiting.get(parent, 0) + 1
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    order: list[Node] = []
    ready = [root.grad_node]
    while ready:
        node = ready.pop()
        order.append(node)
        for parent in _nodes(node):
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    return order


def _nodes(node: Node) -> list[Node]:
    return [parent for parent in node.parents if isinstance(parent, Node)]


def unbroadcast(gradient: Any, shape: Union[int, tuple[int, ...]]) -> Tensor:
    """Sums a gradient back to the shape that broadcasting had stretched."""
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    result = _core.as_tensor(gradient)
    added = result.ndim - len(wanted)
    if added > 0:
        result = result.sum(axis=tuple(range(added)))
    stretched = tuple(i for i, size in enumerate(wanted) if size == 1 and result.shape[i] != 1)
    return result.sum(axis=stretched, keepdims=True) if stretched else result

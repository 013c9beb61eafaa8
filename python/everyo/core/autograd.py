"""Gradients: modes, backward, and a look at the graph."""

from __future__ import annotations

import functools
from typing import Any, Union

from .. import _core
from .._core import Node, Tensor, is_grad_enabled
from .scope import Scope

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


class _GradScope(Scope):
    """Recording on or off."""

    def __init__(self, mode: bool) -> None:
        super().__init__(functools.partial(_core.GradMode, mode))


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

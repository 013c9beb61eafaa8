"""A tensor that a module owns and an optimizer trains."""

from __future__ import annotations

from typing import Any

from everyo._core import Tensor


class Parameter(Tensor):
    """A tensor that requires gradients; as an attribute of a module it is one of its parameters.

    Whole numbers become float32; a writable floating array is shared, not copied.
    """

    __slots__ = ()

    def __init__(self, data: Any, *, requires_grad: bool = True, name: str | None = None) -> None:
        super().__init__(data, requires_grad=requires_grad, name=name)

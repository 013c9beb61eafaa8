"""Checks of what callers give, with the words of the library's errors."""

from __future__ import annotations

import operator
from typing import Any


def whole(what: str, value: Any) -> int:
    """A whole number. Raises TypeError for another kind, naming `what`, such as "[Linear] in_features"."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{what} is {value!r:.60}, of type {type(value).__name__}; it must be a whole number"
        ) from None


def real(what: str, value: Any) -> float:
    """A number. Raises TypeError for another kind; text is none."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{what} is {value!r:.60}, of type {type(value).__name__}; it must be a number")

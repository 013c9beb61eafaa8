"""Names of element types and the NumPy types they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core

DTYPES: dict[str, type] = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "int32": np.int32,
    "int64": np.int64,
    "bool": np.bool_,
}
DEFAULT_FLOAT = np.dtype(np.float32)
DEFAULT_INT = np.dtype(np.int64)


def resolve_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a name (letters in either case), a NumPy type, a dtype or a tensor; float32 for None.

    Raises EveryODTypeError for what is none of DTYPES or uint8.
    """
    if dtype is None:
        return DEFAULT_FLOAT
    name = _core.dtype_name(dtype)
    if name == "bfloat16":
        raise _core.EveryODTypeError("[dtype] NumPy has no bfloat16; name it as text where a tensor takes a dtype")
    return np.dtype(name)


def dtype_name(dtype: Any) -> str:
    """The name of a dtype, such as "float32". Raises EveryODTypeError for what is none."""
    return _core.dtype_name(dtype)


def is_floating(dtype: Any) -> bool:
    """Is it one of the floating dtypes?"""
    return dtype_name(dtype) in ("float16", "bfloat16", "float32", "float64")

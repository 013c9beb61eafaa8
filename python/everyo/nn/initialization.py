"""First values of weights: float32 arrays. Draws are those of `numpy.random.default_rng(seed)` in float64, rounded once.

A shape (in, out) has these fans; (n,) has n and n; a kernel (KH, KW, in, out) counts its cells. Without a seed the draws
come from the system's entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import Tensor
from everyo._core import compute_fans as compute_fans

Array = npt.NDArray[np.float32]
Shape = Sequence[int]
Initializer = Callable[..., Any]
InitializerLike = str | Initializer


def _array(values: Tensor) -> Array:
    array: Array = values.data
    return array


def xavier_uniform(shape: Shape, *, gain: float = 1.0, seed: int | None = None) -> Array:
    """Uniform in ±gain sqrt(6 / (in + out)) (Glorot and Bengio 2010)."""
    return _array(_core.xavier_uniform(shape, checked_seed(seed), gain))


def xavier_normal(shape: Shape, *, gain: float = 1.0, seed: int | None = None) -> Array:
    """Normal with deviation gain sqrt(2 / (in + out))."""
    return _array(_core.xavier_normal(shape, checked_seed(seed), gain))


def he_uniform(shape: Shape, *, gain: float = 1.0, seed: int | None = None) -> Array:
    """Uniform in ±gain sqrt(6 / in) (He et al. 2015)."""
    return _array(_core.he_uniform(shape, checked_seed(seed), gain))


def he_normal(shape: Shape, *, gain: float = 1.0, seed: int | None = None) -> Array:
    """Normal with deviation gain sqrt(2 / in)."""
    return _array(_core.he_normal(shape, checked_seed(seed), gain))


def zeros_init(shape: Shape, *, seed: int | None = None) -> Array:
    """Zeros, whatever the seed."""
    return _array(_core.initialise("zeros", shape, 0))


def ones_init(shape: Shape, *, seed: int | None = None) -> Array:
    """Ones, whatever the seed."""
    return _array(_core.initialise("ones", shape, 0))


def uniform_init(shape: Shape, *, low: float = -0.05, high: float = 0.05, seed: int | None = None) -> Array:
    """Uniform in [low, high)."""
    return _array(_core.uniform_init(shape, checked_seed(seed), low, high))


def normal_init(shape: Shape, *, mean: float = 0.0, std: float = 0.05, seed: int | None = None) -> Array:
    """Normal with that mean and deviation."""
    return _array(_core.normal_init(shape, checked_seed(seed), std, mean))


_BY_NAME: dict[str, Initializer] = {
    "xavier_uniform": xavier_uniform,
    "xavier_normal": xavier_normal,
    "glorot_uniform": xavier_uniform,
    "glorot_normal": xavier_normal,
    "he_uniform": he_uniform,
    "he_normal": he_normal,
    "kaiming_uniform": he_uniform,
    "kaiming_normal": he_normal,
    "zeros": zeros_init,
    "ones": ones_init,
    "uniform": uniform_init,
    "normal": normal_init,
}


def get_initializer(name: InitializerLike) -> Initializer:
    """The function (shape, *, seed) of a name; a function comes back as it is. Raises ValueError "Unknown initializer"."""
    if not isinstance(name, str):
        return name
    if name not in _BY_NAME:
        raise ValueError(f"[get_initializer] Unknown initializer {name!r}; there are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def checked_seed(seed: int | None) -> int | None:
    """The seed itself. Raises ValueError unless it is None or 0..2^64-1."""
    if seed is not None and not 0 <= seed < 2**64:
        raise ValueError(f"[seed] {seed} is no seed; it must be None or a whole number from 0 to 2^64 - 1")
    return seed


def first_values(initializer: InitializerLike, shape: Shape, seed: int | None = None) -> Any:
    """Values of a parameter, in memory that counts as a parameter's."""
    if not isinstance(initializer, str):
        return initializer(shape, seed=seed)
    return _core.initialise(initializer, shape, checked_seed(seed))

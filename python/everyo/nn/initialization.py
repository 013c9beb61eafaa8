"""First values of weights: float32 arrays. Draws are those of `numpy.random.default_rng(seed)` in float64, rounded once.

A shape (in, out) has these fans; (n,) has n and n; a kernel (KH, KW, in, out) counts its cells. Without a seed the draws
come from the system's entropy; a seed is all that default_rng takes: an int of any size, a sequence of them, a SeedSequence, or
a Generator, which moves on. Raises TypeError for another kind, ValueError for a negative number.
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
Seed = Any  # what numpy.random.default_rng takes


def _array(values: Tensor) -> Array:
    array: Array = values.data
    return array


def xavier_uniform(shape: Shape, *, gain: float = 1.0, seed: Seed = None) -> Array:
    """Uniform in ±gain sqrt(6 / (in + out)) (Glorot and Bengio 2010)."""
    return _array(_core.xavier_uniform(shape, seed, gain))


def xavier_normal(shape: Shape, *, gain: float = 1.0, seed: Seed = None) -> Array:
    """Normal with deviation gain sqrt(2 / (in + out))."""
    return _array(_core.xavier_normal(shape, seed, gain))


def he_uniform(shape: Shape, *, gain: float = 1.0, seed: Seed = None) -> Array:
    """Uniform in ±gain sqrt(6 / in) (He et al. 2015)."""
    return _array(_core.he_uniform(shape, seed, gain))


def he_normal(shape: Shape, *, gain: float = 1.0, seed: Seed = None) -> Array:
    """Normal with deviation gain sqrt(2 / in)."""
    return _array(_core.he_normal(shape, seed, gain))


def zeros_init(shape: Shape, *, seed: Seed = None) -> Array:
    """Zeros, whatever the seed."""
    return _array(_core.initialise("zeros", shape, 0))


def ones_init(shape: Shape, *, seed: Seed = None) -> Array:
    """Ones, whatever the seed."""
    return _array(_core.initialise("ones", shape, 0))


def uniform_init(shape: Shape, *, low: float = -0.05, high: float = 0.05, seed: Seed = None) -> Array:
    """Uniform in [low, high)."""
    return _array(_core.uniform_init(shape, seed, low, high))


def normal_init(shape: Shape, *, mean: float = 0.0, std: float = 0.05, seed: Seed = None) -> Array:
    """Normal with that mean and deviation."""
    return _array(_core.normal_init(shape, seed, std, mean))


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


def first_values(initializer: InitializerLike, shape: Shape, seed: Seed = None) -> Any:
    """Values of a parameter, in memory that counts as a parameter's."""
    if not isinstance(initializer, str):
        if not callable(initializer):
            raise TypeError(f"[initializer] a {type(initializer).__name__} is none; give a name or a function (shape, *, seed)")
        return initializer(shape, seed=seed)
    return _core.initialise(initializer, shape, seed)

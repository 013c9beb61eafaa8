"""The handwritten digits that ship with the library, and small made-up data sets.

Each of the latter is a function of its arguments alone: draws come from `numpy.random.default_rng(seed)`.
Letters: N samples, D features, T tokens of a sequence. Features are float32, classes and tokens int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

# One row of cells a string, eight a digit; "#" is ink.
_GLYPHS = (
    "........ ..####.. .##..##. .##..##. .##..##. .##..##. ..####.. ........",
    "........ ...##... ..###... ...##... ...##... ...##... ..####.. ........",
    "........ ..####.. .##..##. ....##.. ...##... ..##.... .######. ........",
    "........ .#####.. .....##. ..####.. .....##. .....##. .#####.. ........",
    "........ ....##.. ...###.. ..#.##.. .######. ....##.. ....##.. ........",
    "........ .######. .##..... .#####.. .....##. .##..##. ..####.. ........",
    "........ ..####.. .##..... .#####.. .##..##. .##..##. ..####.. ........",
    "........ .######. .....##. ....##.. ...##... ...##... ...##... ........",
    "........ ..####.. .##..##. ..####.. .##..##. .##..##. ..####.. ........",
    "........ ..####.. .##..##. .##..##. ..#####. .....##. ..####.. ........",
)


def _check_positive(what: str, **numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"[{what}] {name} is {number}; it must be positive")


def _in_random_order(
    generator: np.random.Generator, features: npt.NDArray[Any], labels: npt.NDArray[Any]
) -> tuple[Any, Any]:
    order = generator.permutation(len(features))
    return features[order], labels[order]


def render_digit(digit: int) -> Features:
    """The glyph of a digit 0..9: float32 [8, 8] of 0 and 1. Raises ValueError for another number."""
    if digit not in range(10):
        raise ValueError(f"[render_digit] digit is {digit}; it must be 0..9")
    return np.array([[cell == "#" for cell in row] for row in _GLYPHS[digit].split()], dtype=np.float32)


def load_handwritten_digits(path: str | None = None) -> tuple[Features, Labels]:
    """1,797 digits that people wrote, 8 by 8 pixels (UCI "Optical Recognition of Handwritten Digits", test set).

    Features float32 [1797, 64] in [0, 1], labels [1797] 0..9. Without a path the file that ships with the library. Raises
    FileNotFoundError, EveryOSerializationError.
    """
    features, labels = _core.load_digits(path)
    return features.numpy(), labels.numpy()


def load_digits(
    *, samples_per_class: int = 200, noise: float = 0.15, max_shift: int = 1, flatten: bool = True, seed: int = 0
) -> tuple[Features, Labels]:
    """Drawn digits: each glyph moved by up to `max_shift` cells each way, with normal noise, cut to [0, 1].

    Features [10 samples_per_class, 64], or [.., 8, 8, 1] with `flatten=False`; labels 0..9, in random order.
    """
    _check_positive("load_digits", samples_per_class=samples_per_class)
    generator = np.random.default_rng(seed)
    labels: Labels = np.repeat(np.arange(10, dtype=np.int64), samples_per_class)
    shifts = generator.integers(-max_shift, max_shift + 1, size=(len(labels), 2))
    padded = np.pad(
        np.stack([render_digit(digit) for digit in range(10)]), ((0, 0), (max_shift,) * 2, (max_shift,) * 2)
    )
    images = np.empty((len(labels), 8, 8))
    for image, label, (down, right) in zip(images, labels, shifts):
        image[:] = padded[label, max_shift - down : max_shift - down + 8, max_shift - right : max_shift - right + 8]
    images += generator.normal(0.0, noise, size=images.shape)
    features: Features = np.clip(images, 0.0, 1.0).astype(np.float32)
    features = features.reshape(len(labels), 64) if flatten else features[..., np.newaxis]
    return _in_random_order(generator, features, labels)


def make_regression(
    *, n_samples: int = 200, n_features: int = 1, noise: float = 0.1, bias: float = 0.0, seed: int = 0
) -> tuple[Features, Features]:
    """A noisy linear relation: x [N, D] standard normal, y [N, 1] = x w + bias + normal noise, w uniform in ±3."""
    _check_positive("make_regression", n_samples=n_samples, n_features=n_features)
    generator = np.random.default_rng(seed)
    x: Features = generator.normal(size=(n_samples, n_features)).astype(np.float32)
    weights: Features = generator.uniform(-3.0, 3.0, size=(n_features, 1)).astype(np.float32)
    y: Features = (x @ weights + bias + generator.normal(0.0, noise, size=(n_samples, 1))).astype(np.float32)
    return x, y


def make_blobs(
    *, n_samples: int = 300, n_features: int = 2, centers: int = 3, spread: float = 0.8, seed: int = 0
) -> tuple[Features, Labels]:
    """Round clouds about `centers` points, uniform in ±5: x [N, D], y the cloud's number."""
    _check_positive("make_blobs", n_samples=n_samples, n_features=n_features, centers=centers)
    generator = np.random.default_rng(seed)
    middles = generator.uniform(-5.0, 5.0, size=(centers, n_features))
    labels: Labels = np.arange(n_samples, dtype=np.int64) % centers
    points = middles[labels] + generator.normal(0.0, spread, size=(n_samples, n_features))
    return _in_random_order(generator, points.astype(np.float32), labels)


def make_moons(*, n_samples: int = 300, noise: float = 0.15, seed: int = 0) -> tuple[Features, Labels]:
    """Two half circles that reach into each other: x [N, 2], y 0 or 1."""
    _check_positive("make_moons", n_samples=n_samples)
    generator = np.random.default_rng(seed)
    labels: Labels = np.arange(n_samples, dtype=np.int64) % 2
    angle = generator.uniform(0.0, np.pi, size=n_samples)
    side = 1.0 - 2.0 * labels  # the second moon hangs upside down, half a unit lower and one to the right
    points = np.stack([side * np.cos(angle) + labels, side * np.sin(angle) + 0.5 * labels], axis=1)
    points += generator.normal(0.0, noise, size=points.shape)
    return _in_random_order(generator, points.astype(np.float32), labels)


def make_spirals(
    *, n_samples: int = 300, classes: int = 3, noise: float = 0.15, turns: float = 1.5, seed: int = 0
) -> tuple[Features, Labels]:
    """Arms of a spiral that wind about each other: x [N, 2] within about ±1, y the arm. `noise` is in radians."""
    _check_positive("make_spirals", n_samples=n_samples, classes=classes)
    generator = np.random.default_rng(seed)
    labels: Labels = np.arange(n_samples, dtype=np.int64) % classes
    radius = generator.uniform(0.05, 1.0, size=n_samples)
    angle = 2.0 * np.pi * (turns * radius + labels / classes) + generator.normal(0.0, noise, size=n_samples)
    points = radius[:, np.newaxis] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _in_random_order(generator, points.astype(np.float32), labels)


def make_xor(*, n_samples: int = 400, noise: float = 0.25, seed: int = 0) -> tuple[Features, Labels]:
    """Clouds about the four corners (±1, ±1): x [N, 2], y 1 where the signs of the corner differ."""
    _check_positive("make_xor", n_samples=n_samples)
    generator = np.random.default_rng(seed)
    corner = np.arange(n_samples, dtype=np.int64) % 4
    signs = np.stack([corner % 2, corner // 2], axis=1)
    labels: Labels = signs[:, 0] ^ signs[:, 1]
    points = 2.0 * signs - 1.0 + generator.normal(0.0, noise, size=(n_samples, 2))
    return _in_random_order(generator, points.astype(np.float32), labels)


def make_recall_task(
    *, n_samples: int = 2000, length: int = 20, num_classes: int = 4, vocab_size: int = 16, seed: int = 0
) -> tuple[Labels, Labels]:
    """Sequences whose label is their first token: x [N, T] tokens, the first in 0..num_classes-1, the others above it.

    Raises ValueError unless vocab_size is greater than num_classes.
    """
    _check_positive("make_recall_task", n_samples=n_samples, length=length, num_classes=num_classes)
    if vocab_size <= num_classes:
        raise ValueError(
            f"[make_recall_task] vocab_size is {vocab_size}; it must be greater than num_classes, {num_classes}"
        )
    generator = np.random.default_rng(seed)
    labels: Labels = generator.integers(0, num_classes, size=n_samples)
    tokens: Labels = generator.integers(num_classes, vocab_size, size=(n_samples, length))
    tokens[:, 0] = labels
    return tokens, labels


def make_copy_task(
    *, n_samples: int = 2000, length: int = 10, vocab_size: int = 8, seed: int = 0
) -> tuple[Labels, Labels]:
    """Sequences to be given back: x [N, T] tokens in 0..vocab_size-1, y the same."""
    _check_positive("make_copy_task", n_samples=n_samples, length=length, vocab_size=vocab_size)
    tokens: Labels = np.random.default_rng(seed).integers(0, vocab_size, size=(n_samples, length))
    return tokens, tokens.copy()


def make_parity_task(*, n_samples: int = 2000, length: int = 10, seed: int = 0) -> tuple[Features, Labels]:
    """Rows of bits: x [N, T, 1] of 0 and 1, y 1 where their number is odd."""
    _check_positive("make_parity_task", n_samples=n_samples, length=length)
    bits = np.random.default_rng(seed).integers(0, 2, size=(n_samples, length))
    labels: Labels = bits.sum(axis=1) % 2
    return bits[..., np.newaxis].astype(np.float32), labels

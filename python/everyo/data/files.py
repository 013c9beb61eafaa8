"""Data sets in files: packed ones, IDX arrays, and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from everyo import _core
from everyo.data.dataset import Array, Dataset, RowDataset, gather

__all__ = ["PackedDataset", "TextDataset", "Vocabulary", "load_idx", "pack", "read_text"]


class PackedDataset(RowDataset):
    """A file that `pack` or `everyo pack` wrote, mapped into memory: no larger part of it is read than is needed.

    Raises FileNotFoundError, and EveryOSerializationError for a file of another kind or a damaged one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._packed = _core.PackedDataset(self.path)
        super().__init__(self._packed)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one sample's features."""
        return self._packed.feature_shape

    @property
    def digests(self) -> tuple[str, str]:
        """SHA-256 of the features and of the targets, as they were packed."""
        return self._packed.digests

    def verify(self) -> None:
        """Reads all of the file and compares its checksums. Raises EveryOSerializationError for one that does not agree."""
        self._packed.verify()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)


def pack(dataset: Dataset, path: str | Path) -> PackedDataset:
    """Writes pairs (features, target) as one file and opens it; the path names the old content or all of the new.

    Raises ValueError without samples, TypeError without targets, EveryOShapeError when samples differ in shape or dtype.
    """

    def rows(first: int, count: int) -> tuple[Array, Array]:
        indices = np.arange(first, first + count)
        batch = gather(dataset, indices)
        if not isinstance(batch, tuple) or len(batch) != 2:
            raise TypeError(f"[pack] {type(dataset).__name__} gives samples without targets; pairs (features, target) are packed")
        return batch

    path = Path(path)
    _core.pack(len(dataset), rows, path)
    return PackedDataset(path)


def load_idx(path: str | Path) -> Array:
    """The array in an IDX file, the format of MNIST. Raises FileNotFoundError, EveryOShapeError for a damaged file."""
    return _core.load_idx(Path(path))


class Vocabulary:
    """Which tokens there are: the 256 bytes, or the characters of a text, a number each in the order of their code points."""

    def __init__(self, characters: str) -> None:
        """The characters of a text. Raises ValueError without any, TypeError for what is no text."""
        self._core = _core.Vocabulary.characters(characters)
        self.known: str | None = self.decode(np.arange(len(self)))

    @classmethod
    def bytes(cls) -> Vocabulary:
        """Any text has these; `known` is None."""
        vocabulary = cls.__new__(cls)
        vocabulary._core = _core.Vocabulary.bytes()
        vocabulary.known = None
        return vocabulary

    def __len__(self) -> int:
        return len(self._core)

    def encode(self, text: str) -> Array:
        """Tokens, uint8 or int32. Raises ValueError for a character that is not known."""
        return self._core.encode(text)

    def decode(self, tokens: Any) -> str:
        """The text of tokens; bytes that are no UTF-8 show as U+FFFD. Raises ValueError for a token outside 0..len-1."""
        return self._core.decode(tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).bytes, ()) if self.known is None else (type(self), (self.known,))


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, as it is: line ends stay."""
    return Path(path).read_bytes().decode("utf-8")


class TextDataset(RowDataset):
    """Windows of T tokens: sample i is tokens[i * stride : i * stride + T], and its target the tokens one further on.

    `stride` 0 stands for T: windows do not overlap. Tokens are what `Vocabulary.encode` gives; samples are int64. Raises
    ValueError for a window below 1, a stride below 0, or fewer than T + 1 tokens.
    """

    def __init__(self, tokens: Any, window: int = 128, *, stride: int = 0) -> None:
        super().__init__(_core.TextDataset(tokens, window, stride))
        self.window = window
        self.stride = stride or window

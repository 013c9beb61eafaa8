"""Datasets: anything with a length and samples by number. Letters: N samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOShapeError

Array = npt.NDArray[Any]


def as_array(data: Any) -> Array:
    """The NumPy array of a tensor, a list or an array; an array comes back as it is."""
    return data if isinstance(data, np.ndarray) else np.asarray(data)


def as_samples(data: Any) -> Array:
    """The same, but numbers that Python wrote become float32, as in a tensor."""
    array = as_array(data)
    return array.astype(np.float32) if isinstance(data, (list, tuple, float)) and array.dtype == np.float64 else array


class Dataset:
    """Base of datasets: `len(dataset)` samples, `dataset[i]` a sample or a pair (features, target)."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")


class ArrayDataset(Dataset):
    """Features [N, ..] and, optionally, targets [N, ..], each in its own dtype: whole numbers stay whole.

    Raises EveryOShapeError "same number of samples" when the lengths differ, or when either has no axis of samples.
    """

    def __init__(self, features: Any, targets: Any = None) -> None:
        self.features: Array = as_samples(features)
        self.targets: Array | None = None if targets is None else as_samples(targets)
        for name, array in (("features", self.features), ("targets", self.targets)):
            if array is not None and array.ndim == 0:
                raise EveryOShapeError(
                    f"[ArrayDataset] {name} have shape (); the first axis must be that of the samples"
                )
        if self.targets is not None and len(self.targets) != len(self.features):
            raise EveryOShapeError(
                f"[ArrayDataset] features {self.features.shape} and targets {self.targets.shape}; "
                "they must have the same number of samples"
            )

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Any) -> Any:
        """A sample by number; several by a slice or an array of numbers."""
        if self.targets is None:
            return self.features[index]
        return self.features[index], self.targets[index]

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one sample's features."""
        return self.features.shape[1:]


class TransformDataset(Dataset):
    """Another dataset whose features and targets pass through functions when they are read."""

    def __init__(
        self,
        dataset: Dataset,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.dataset = dataset
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        sample = self.dataset[index]
        if not isinstance(sample, tuple):
            return sample if self.transform is None else self.transform(sample)
        features, target = sample
        if self.transform is not None:
            features = self.transform(features)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return features, target


class Subset(Dataset):
    """The samples of another dataset at `indices`, in that order. Raises IndexError for an index outside it."""

    def __init__(self, dataset: Dataset, indices: Iterable[int] | Array) -> None:
        self.dataset = dataset
        numbers = indices if isinstance(indices, (np.ndarray, Sequence)) else list(indices)
        self.indices: npt.NDArray[np.int64] = np.asarray(numbers, dtype=np.int64).reshape(-1)
        count = len(dataset)
        outside = np.flatnonzero((self.indices < -count) | (self.indices >= count))
        if outside.size:
            raise IndexError(f"[Subset] index {self.indices[outside[0]]} is outside the dataset of {count} samples")

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[int(chosen)] if np.ndim(chosen) == 0 else self.dataset[chosen]


class RowDataset(Dataset):
    """Base of data sets that the library reads: a sample by a number, several by a slice or an array of numbers."""

    def __init__(self, rows: _core.RowSource) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        """Raises IndexError for a number outside the data set."""
        count = len(self)
        numbers = np.arange(count)[index] if isinstance(index, slice) else np.asarray(index)
        if numbers.dtype == np.bool_:
            numbers = np.arange(count)[numbers]
        if numbers.dtype.kind not in "iu" and numbers.size:
            raise TypeError(f"[{type(self).__name__}] {index!r:.60} is no number of a sample; give whole numbers or a slice")
        outside = (numbers < -count) | (numbers >= count)
        if outside.any():
            raise IndexError(
                f"[{type(self).__name__}] index {numbers[outside].flat[0] if numbers.ndim else int(numbers)} is outside the "
                f"dataset of {count} samples"
            )
        features, targets = self._rows.rows(np.where(numbers < 0, numbers + count, numbers).astype(np.int64).reshape(-1))
        return (features, targets) if numbers.ndim else (features[0], targets[0])


def gather(dataset: Any, indices: Array) -> Any:
    """Samples at `indices` as arrays with an axis of samples in front; rows of arrays are taken at once.

    A subclass with a `__getitem__` of its own is asked for one sample at a time, as any other dataset is.
    """
    read = getattr(type(dataset), "__getitem__", None)
    if read in (ArrayDataset.__getitem__, RowDataset.__getitem__):
        return dataset[indices]
    if isinstance(dataset, Subset) and read is Subset.__getitem__:
        return gather(dataset.dataset, dataset.indices[indices])
    samples = [_sample(dataset, int(i)) for i in indices]
    if isinstance(samples[0], tuple):
        return tuple(np.stack([as_samples(part) for part in parts]) for parts in zip(*samples))
    return np.stack([as_samples(sample) for sample in samples])


def _sample(dataset: Any, index: int) -> Any:
    try:
        return dataset[index]
    except Exception as error:
        note = f"[DataLoader] in sample {index}"
        if hasattr(error, "add_note"):
            error.add_note(note)
        else:  # Python 3.10
            error.__notes__ = [*getattr(error, "__notes__", []), note]
        raise

"""Datasets: anything with a length and samples by number. Letters: N samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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

"""Batches of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from everyo.data.dataset import Array, ArrayDataset, Dataset, Subset, as_samples


def _gather(dataset: Dataset, indices: Array) -> Any:
    """Samples at `indices` as arrays with an axis of samples in front; rows of arrays are taken at once."""
    if isinstance(dataset, ArrayDataset):
        return dataset[indices]
    if isinstance(dataset, Subset):
        return _gather(dataset.dataset, dataset.indices[indices])
    samples = [dataset[int(i)] for i in indices]
    if isinstance(samples[0], tuple):
        return tuple(np.stack([as_samples(part) for part in parts]) for parts in zip(*samples))
    return np.stack([as_samples(sample) for sample in samples])


class DataLoader:
    """NumPy batches of `batch_size` samples: pairs (features, targets) when the dataset has targets, else features.

    With `shuffle` each epoch has a new order, all of them drawn from one generator, `numpy.random.default_rng(seed)`.
    `drop_last` leaves a short last batch out. Raises ValueError "batch_size", and TypeError for what is no dataset.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 32,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int | None = None,
    ) -> None:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or isinstance(
            dataset, (np.ndarray, list, tuple, dict, str)
        ):
            raise TypeError(f"[DataLoader] {type(dataset).__name__} is no Dataset; wrap arrays in an ArrayDataset")
        if not isinstance(batch_size, (int, float, np.number)):
            raise TypeError(
                f"[DataLoader] batch_size is {batch_size!r:.60}, of type {type(batch_size).__name__}; it must be a whole number"
            )
        if isinstance(batch_size, bool) or not np.isfinite(float(batch_size)) or int(batch_size) != batch_size or batch_size < 1:
            raise ValueError(f"[DataLoader] batch_size is {batch_size}; it must be a whole number from 1 up")
        self.dataset = dataset
        self.batch_size = int(batch_size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self._generator = np.random.default_rng(seed)

    @property
    def num_samples(self) -> int:
        """Samples of the dataset."""
        return len(self.dataset)

    def __len__(self) -> int:
        """Batches of an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Any]:
        count = len(self.dataset)
        order = self._generator.permutation(count) if self.shuffle else np.arange(count)
        for batch in range(len(self)):
            yield _gather(self.dataset, order[batch * self.batch_size : (batch + 1) * self.batch_size])

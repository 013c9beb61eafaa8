"""Batches of a dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from everyo._core import EveryOSerializationError
from everyo.data.dataset import Array, ArrayDataset, Dataset, gather

MOST_WORKERS = 256


class DataLoader:
    """NumPy batches of `batch_size` samples: pairs (features, targets) when the dataset has targets, else features.

    With `shuffle` each epoch has a new order, all of them drawn from one generator, `numpy.random.default_rng(seed)`.
    `drop_last` leaves a short last batch out. Raises ValueError "batch_size", and TypeError for what is no dataset.

    `workers` threads make batches ahead of the one asked for, `prefetch` at most (two for each worker when 0); batches and
    their order are the same for any number of them. Threads pay where a sample waits or leaves the interpreter to others, as
    reading files and NumPy's larger operations do. What a sample raises comes when its batch is due, with the sample in a note.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 32,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int | None = None,
        workers: int = 0,
        prefetch: int = 0,
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
        for name, number in (("workers", workers), ("prefetch", prefetch)):
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
                raise TypeError(f"[DataLoader] {name} is {number!r:.60}, of type {type(number).__name__}; it must be a whole number")
            if number < 0:
                raise ValueError(f"[DataLoader] {name} is {number}; it must be 0 or more")
        if workers > MOST_WORKERS:
            raise ValueError(f"[DataLoader] workers is {workers}; it must be at most {MOST_WORKERS}")
        self.dataset = dataset
        self.batch_size = int(batch_size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.workers = int(workers)
        self.prefetch = int(prefetch)
        self._generator = np.random.default_rng(seed)
        self._epoch_start = self._generator.bit_generator.state  # of the epoch that `_position` is in
        self._position = 0
        self._resume = False

    @property
    def num_samples(self) -> int:
        """Samples of the dataset."""
        return len(self.dataset)

    @property
    def _samples(self) -> int:
        """Samples of an epoch."""
        count = len(self.dataset)
        return count // self.batch_size * self.batch_size if self.drop_last else count

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-self._samples // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """The batches of a new epoch; after `load_state_dict`, those that are left of the epoch that was stopped."""
        first = self._position if self._resume else 0
        self._resume = False
        self._epoch_start = self._generator.bit_generator.state
        self._position = first
        count = len(self.dataset)
        order = self._generator.permutation(count) if self.shuffle else np.arange(count)
        parts = [order[start : min(start + self.batch_size, self._samples)] for start in range(first, self._samples, self.batch_size)]
        for part, batch in zip(parts, self._made(parts)):
            self._position += len(part)
            yield batch
        self._epoch_start = self._generator.bit_generator.state
        self._position = 0

    def _made(self, parts: list[Array]) -> Iterator[Any]:
        if self.workers == 0:
            for part in parts:
                yield gather(self.dataset, part)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="everyo-loader")
        ahead = self.prefetch or 2 * self.workers
        waiting: deque[Future[Any]] = deque()
        try:
            for i in range(len(parts)):
                while len(waiting) < ahead and i + len(waiting) < len(parts):
                    waiting.append(pool.submit(gather, self.dataset, parts[i + len(waiting)]))
                batch = waiting.popleft().result()
                if i + len(waiting) + 1 < len(parts):
                    waiting.append(pool.submit(gather, self.dataset, parts[i + len(waiting) + 1]))
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: the samples given out of this epoch, and the generator as the epoch began.

        What workers have made ahead is not part of it; `batch_size`, `workers` and `prefetch` may differ when it is loaded.
        """
        return {
            "samples": len(self.dataset),
            "shuffle": self.shuffle,
            "position": self._position,
            "generator": self._epoch_start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on at the next unseen sample. Raises EveryOSerializationError for a state of other samples."""
        missing = [key for key in ("samples", "shuffle", "position", "generator") if key not in state]
        if missing:
            raise EveryOSerializationError(f"[DataLoader] the state has no {', '.join(missing)}; it is not a DataLoader's")
        for key, here in (("samples", len(self.dataset)), ("shuffle", self.shuffle)):
            if state[key] != here:
                raise EveryOSerializationError(
                    f"[DataLoader] the state was saved with {key} {state[key]}, this loader has {here}; the order of samples "
                    "would not be the same"
                )
        position = state["position"]
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= len(self.dataset):
            raise EveryOSerializationError(
                f"[DataLoader] the state has position {position!r:.60}; there are {len(self.dataset)} samples"
            )
        try:
            self._generator.bit_generator.state = state["generator"]
        except (KeyError, TypeError, ValueError) as error:
            raise EveryOSerializationError(f"[DataLoader] the state's generator is not one of NumPy's: {error}") from error
        if position >= self._samples:  # the epoch was over
            if self.shuffle:
                self._generator.permutation(len(self.dataset))
            position = 0
        self._epoch_start = self._generator.bit_generator.state
        self._position = position
        self._resume = True


def as_loader(data: Any, batch_size: int) -> Iterable[Any]:
    """Batches of a dataset or of what an ArrayDataset takes; anything else that gives some when iterated over, as it is."""
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size)
    held = isinstance(data, (Sequence, Mapping, Set)) or hasattr(data, "__array__")
    if isinstance(data, Iterable) and not held:
        return data
    return DataLoader(ArrayDataset(data), batch_size)

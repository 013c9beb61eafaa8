"""One model on several ranks: each has a part of the samples, and gradients are averaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import Tensor
from ..core.checks import real, whole
from ..nn.module import Module
from .group import ProcessGroup, check_group


def shard_indices(count: int, rank: int, world_size: int, *, drop_last: bool = True) -> npt.NDArray[np.int64]:
    """Which of `count` samples are a rank's: one block of indices, of one size on all ranks; the rest is dropped, or with
    drop_last=False given to the first ranks, one each.

    Raises DistributedError: "at least 1" for the world_size, "rank must be" in it, and "cannot be split" for fewer samples than
    ranks.
    """
    first, end = _core.shard_indices(
        whole("[shard_indices] count", count),
        whole("[shard_indices] rank", rank),
        whole("[shard_indices] world_size", world_size),
        bool(drop_last),
    )
    return np.arange(first, end)


def average_gradients(parameters: Iterable[Tensor], group: ProcessGroup, *, weight: float = 1.0) -> float:
    """The gradient of every parameter becomes the weighted mean over the ranks, the same bits on all. With the number of rows
    or targets that its mean loss was over as each rank's weight, that is the gradient over all samples.

    A parameter without a gradient here counts as zero if it has one on any rank; without one on all it stays so. A loss that is
    a sum gives 1/world_size of the gradient. Returns the sum of the weights; when that is 0, nothing has changed and no step
    should follow. Raises DistributedError for a weight that is neither 0 nor from 1e-30 to 1e30, for gradients multiplied by
    different loss scales, and when the ranks' parameters differ.
    """
    native = check_group("average_gradients", group)._group
    tensors = list(parameters)
    for i, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise TypeError(
                f"[average_gradients] entry {i} is of type {type(each).__name__}; give model.parameters()"
            )
    return _core.average_gradients(tensors, native, real("[average_gradients] weight", weight))


def _module(what: str, model: Any) -> Module:
    if not isinstance(model, Module):
        raise TypeError(f"[{what}] the model is of type {type(model).__name__}; it must be a Module")
    return model


class DataParallel:
    """Averages a model's gradients over a group while backward runs, in buckets: the last parameters first, from the second
    backward on as gradients came in the first. All that average_gradients says holds: unused parameters, weights, bits.

        parallel = DataParallel(model, group)             # rank 0's weights and buffers, on all ranks
        optimizer = eo.SGD(model.parameters(), lr=0.1)
        for features, targets in loader:                  # this rank's part
            optimizer.zero_grad()
            parallel.set_weight(len(features))
            nn.cross_entropy(parallel(features), targets).backward()
            optimizer.step()

    Every rank makes the same number of backward passes; one without samples left calls take_part() instead. `buffers` says
    what becomes of running statistics at each of them: "mean" over the ranks (of integers the largest), rank 0's ("first"), or
    "none": each rank's own. With broadcast_weights=False the weights must be equal already. Raises DistributedError when the
    ranks' models differ, naming the first parameter that does.
    """

    def __init__(
        self,
        model: Module,
        group: ProcessGroup,
        *,
        bucket_bytes: int = 1 << 20,
        buffers: str = "mean",
        broadcast_weights: bool = True,
    ) -> None:
        self.model = _module("DataParallel", model)
        self.group = check_group("DataParallel", group)
        self._parallel = _core.DataParallel(
            group._group,
            list(model.named_parameters()),
            model,
            whole("[DataParallel] bucket_bytes", bucket_bytes),
            buffers,
            bool(broadcast_weights),
        )

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The model's forward."""
        return self.model(*inputs, **options)

    def set_weight(self, weight: float) -> None:
        """How many rows or targets the next losses of this rank are means over. Raises as average_gradients does."""
        self._parallel.set_weight(real("[DataParallel] weight", weight))

    def take_part(self) -> None:
        """Instead of a backward, on a rank without samples: with weight zero."""
        self._parallel.take_part()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward passes only add up here; the first one after it exchanges the sum."""
        self._parallel.hold()
        try:
            yield
        finally:
            self._parallel.release()

    @property
    def total_weight(self) -> float:
        """The sum of the weights of the last exchange; 0: no rank had samples, and no step should follow."""
        return self._parallel.total_weight

    @property
    def exposed_seconds(self) -> float:
        """How long the last exchange went on after backward was over."""
        return self._parallel.exposed_seconds

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of gradients in the last exchange."""
        return self._parallel.exchanged_bytes


class VirtualShards:
    """Cuts each global batch into fixed shards, whoever works on them. Each is a forward and backward of its own, and gradients
    are summed by one fixed tree: a step has the same bits on any number of threads and ranks. Give at least one shard a rank.

        shards = VirtualShards(model, group, 8)
        optimizer.zero_grad()

        def forward_backward(shard):                      # of shards.own_shards, several at once
            rows = shard_indices(len(x), shard, 8, drop_last=False)
            (nn.mse_loss(model(x[rows]), y[rows]) * (len(rows) / len(x))).backward()

        shards.run(forward_backward)
        optimizer.step()

    The function runs on several threads, which take turns in Python and compute side by side: it must only read what it shares.
    """

    def __init__(self, model: Module, group: ProcessGroup, shards: int) -> None:
        self.model = _module("VirtualShards", model)
        self.group = check_group("VirtualShards", group)
        self.shards = whole("[VirtualShards] shards", shards)
        self._shards = _core.VirtualShards(group._group, list(model.named_parameters()), model, self.shards)
        #: Those of this rank.
        self.own_shards = range(*self._shards.own_shards)

    def run(self, forward_backward: Callable[[int], object]) -> None:
        """Calls forward_backward for each shard of this rank; then every gradient is the sum over all shards, the same bits on
        all ranks, and running statistics have taken up the mean of what the shards saw. Raises what it raised."""
        counts = [array for _, array in self.model.named_buffers() if array.dtype.kind in "iu"]
        before = [array.copy() for array in counts]
        self._shards.run(forward_backward)
        # Each shard has counted its batch; together they were one.
        for array, old in zip(counts, before):
            changed = np.array(np.any(array != old), np.uint8)
            self.group.all_reduce(changed, "max")
            array[...] = old + changed.astype(array.dtype)

    def share(self, values: Iterable[float]) -> list[float]:
        """One number a shard, of which each rank knows those of its own shards: all of them."""
        return self._shards.share([real("[VirtualShards] a value", value) for value in values])

"""Gradient accumulation: one optimizer step over a batch that is too large for memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from everyo import _core
from everyo._core import Tensor, count_targets
from everyo.core.checks import whole

__all__ = ["MicroBatch", "count_targets", "micro_batches"]


@dataclass(frozen=True)
class MicroBatch:
    """A part of a batch, with the factor on its mean loss: what its targets count of the whole batch's."""

    features: Tensor
    targets: Tensor
    count: int
    weight: float


def micro_batches(
    features: Any,
    targets: Any,
    accumulation: int,
    *,
    ignore_index: int | None = None,
    count: Callable[[Tensor], int] | None = None,
) -> Iterator[MicroBatch]:
    """A batch cut into `accumulation` contiguous parts, the first ones a row larger where it does not divide.

    Gradients of the weighted losses add up to that of the mean over the whole batch, however uneven the parts are:

        optimizer.zero_grad()
        for part in eo.micro_batches(features, labels, 4):
            (nn.cross_entropy(model(part.features), part.targets) * part.weight).backward()
        optimizer.step()

    Rows count, or with `ignore_index` the labels that are not it, or what `count(targets)` says. Parts without a target that
    counts are left out, so a batch without any gives nothing, and should make no step. Batch norm sees a part, not the batch;
    each part draws a dropout mask of its own. Raises ValueError for `accumulation` below 1, EveryOShapeError unless features
    and targets have the same number of rows.
    """
    parts = whole("[micro_batches] accumulation", accumulation)
    if ignore_index is not None:
        ignore_index = whole("[micro_batches] ignore_index", ignore_index)
    return _each(_core.micro_batches(features, targets, parts, ignore_index=ignore_index, count=count))


def _each(parts: list[tuple[Tensor, Tensor, int, float, int]]) -> Iterator[MicroBatch]:
    """Each keys its draws by its number while it is worked on."""
    outer = _core.get_micro_batch()
    try:
        for part_features, part_targets, counted, weight, number in parts:
            _core.set_micro_batch(number)
            yield MicroBatch(part_features, part_targets, counted, weight)
    finally:
        _core.set_micro_batch(outer)

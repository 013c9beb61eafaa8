"""What the batches of an epoch add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo._core import Tensor
from everyo.training.metrics import Metric

Array = npt.NDArray[Any]


class Epoch:
    """Sums up what the batches of an epoch, or of an evaluation, gave."""

    def __init__(self, metrics: Sequence[tuple[str, Metric]], loss_is_sum: bool, ignore_index: int | None) -> None:
        self.metrics = metrics
        self.loss_is_sum = loss_is_sum
        self.ignore_index = ignore_index
        self.loss_total = 0.0
        self.samples = 0  # those that count
        self.skipped = 0  # steps left out
        self.outputs: list[Array] = []
        self.targets: list[Array] = []

    def add(self, loss: float, counted: int) -> None:
        """A batch by its loss and how many of its targets count."""
        self.loss_total += loss if self.loss_is_sum else loss * counted
        self.samples += counted

    def keep(self, output: Tensor, target: Tensor) -> None:
        """What the metrics need of a batch, or of a part of one."""
        if not self.metrics:
            return
        outputs, targets = output.numpy(), target.numpy()
        if self.ignore_index is not None and targets.ndim and targets.dtype.kind in "iu":
            rows = (targets != self.ignore_index).reshape(len(targets), -1).any(axis=1)
            outputs, targets = outputs[rows], targets[rows]
        self.outputs.append(outputs)
        self.targets.append(targets)

    def state(self) -> dict[str, Any]:
        kept = {"outputs": np.concatenate(self.outputs), "targets": np.concatenate(self.targets)} if self.outputs else {}
        return {"loss_total": self.loss_total, "samples": self.samples, "skipped": self.skipped, **kept}

    def load(self, state: dict[str, Any]) -> None:
        self.loss_total, self.samples = state["loss_total"], state["samples"]
        self.skipped = state.get("skipped", 0)  # version 0.4 had none
        if "outputs" in state:
            self.outputs, self.targets = [np.array(state["outputs"])], [np.array(state["targets"])]

    def values(self) -> dict[str, float]:
        """Loss and metrics; NaN where nothing counts."""
        if not self.samples:
            return dict.fromkeys(["loss", *(name for name, _ in self.metrics)], math.nan)
        values = {"loss": self.loss_total / self.samples}
        if self.metrics:
            outputs, targets = np.concatenate(self.outputs), np.concatenate(self.targets)
            for name, metric in self.metrics:
                values[name] = float(metric(outputs, targets)) if len(targets) else math.nan
        return values

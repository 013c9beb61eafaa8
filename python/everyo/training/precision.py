"""What a Trainer computes in, and what that asks of a step."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from everyo import _core
from everyo._core import Tensor
from everyo.core.autocast import GradScaler, autocast
from everyo.optim import Optimizer, clip_grad_norm

_LOGGER = logging.getLogger("everyo.training")
_NAMES = ("float32", "float16", "bfloat16")
_HALVES = ("float16", "bfloat16")


def _is_half(value: Any) -> bool:
    return _core.dtype_name(value) in _HALVES


class Precision:
    """float32 leaves dtypes as they are; float16 and bfloat16 are under autocast, and float16 scales the loss.

    Raises ValueError for another dtype and for a scaler without float16, TypeError for one that is no GradScaler.
    """

    def __init__(self, dtype: Any, scaler: GradScaler | None) -> None:
        try:
            self.name = _core.dtype_name(dtype)
        except _core.EveryOError:
            self.name = str(dtype)
        if self.name not in _NAMES:
            raise ValueError(f"[Trainer] precision is {self.name!r:.60}; it must be one of {', '.join(_NAMES)}")
        if scaler is not None and not isinstance(scaler, GradScaler):
            raise TypeError(f"[Trainer] scaler is a {type(scaler).__name__}; it must be a GradScaler")
        if scaler is not None and self.name != "float16":
            raise ValueError(f"[Trainer] a scaler goes with precision float16, not with {self.name}; leave it out")
        self.scaler = GradScaler() if scaler is None and self.name == "float16" else scaler

    @property
    def skipped(self) -> int:
        """Steps left out so far."""
        return 0 if self.scaler is None else self.scaler.skipped_steps

    def scope(self) -> AbstractContextManager[Any]:
        """For forward, loss and evaluation."""
        return autocast(dtype=self.name) if self.name in _HALVES else nullcontext()

    def wide(self, value: Tensor) -> Tensor:
        """A loss, or an output that is kept, which products in halves made a half, as float32."""
        return value.astype("float32") if self.name in _HALVES and _is_half(value) else value

    def backward(self, loss: Tensor) -> None:
        """Once for each loss: the graph is gone then."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward(retain_graph=False)

    def step(self, optimizer: Optimizer, gradient_clip: float | None, steps: int) -> bool:
        """Clips unscaled gradients and steps; False, and a line in the log, if a gradient overflowed."""
        scaler = self.scaler
        finite = scaler is None or scaler.unscale_(optimizer)
        if finite and gradient_clip is not None:
            clip_grad_norm(optimizer.parameters, gradient_clip)
        if scaler is None:
            optimizer.step()
            return True
        applied = scaler.step(optimizer)
        if not applied:
            in_a_row = scaler.state_dict()["skips_in_a_row"] + 1
            if in_a_row & (in_a_row - 1) == 0:  # the first, the second, the fourth and so on
                _LOGGER.warning(
                    "[Trainer] after step %d a step is left out, %d in a row: at a loss scale of %g the gradient of '%s' is "
                    "not finite", steps, in_a_row, scaler.get_scale(), scaler.overflowed,
                )
        scaler.update()
        return applied

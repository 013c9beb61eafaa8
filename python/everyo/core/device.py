"""Devices. Buffers live in this machine's memory; there is no CUDA."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any

from .. import _core

_logger = logging.getLogger("everyo")


@dataclass(frozen=True, repr=False)
class Device:
    """Where kernels run: a type, "cpu" or "cuda", and an index."""

    type: str = "cpu"
    index: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.index, int):
            raise _core.EveryODeviceError(f"[device] index {self.index!r} is no whole number; devices count from 0")
        if self.type not in ("cpu", "cuda"):
            raise _core.EveryODeviceError(f"[device] Unknown device type '{self.type}'; use 'cpu' or 'cuda'")
        if self.index < 0:
            raise _core.EveryODeviceError(f"[device] index {self.index} is negative; devices count from 0")
        if self.type == "cpu" and self.index != 0:
            raise _core.EveryODeviceError(f"[device] cpu index {self.index}; the CPU has only index 0")

    @property
    def is_cuda(self) -> bool:
        """Is it a CUDA device?"""
        return self.type == "cuda"

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.is_cuda else "cpu"

    def __repr__(self) -> str:
        return f"device('{self}')"


CPU = Device()


def _parsed(spec: str) -> Device:
    kind, colon, index = spec.strip().lower().partition(":")
    if colon and not re.fullmatch("-?[0-9]{1,6}", index):
        raise _core.EveryODeviceError(f"[device] Invalid device string {spec[:40]!r}; write 'cpu', 'cuda' or 'cuda:0'")
    if kind == "auto":
        return CPU
    return Device("cuda" if kind == "gpu" else kind, int(index) if colon else 0)


def device(spec: Any = "cpu", *, strict: bool = False) -> Device:
    """The device of a name: "cpu", "cuda", "cuda:N", "gpu", "auto"; None is the CPU.

    There is no CUDA here: asking for it gives the CPU and a logged warning, or EveryODeviceError when strict.
    """
    if spec is None:
        return CPU
    if not isinstance(spec, (Device, str)):
        raise _core.EveryODeviceError(f"[device] Invalid device string {spec!r}; write 'cpu', 'cuda' or 'cuda:0'")
    wanted = spec if isinstance(spec, Device) else _parsed(spec)
    if not wanted.is_cuda:
        return wanted
    if strict:
        raise _core.EveryODeviceError(f"[device] '{wanted}' was asked for, and this build has no CUDA; use 'cpu'")
    _logger.warning("[device] '%s' was asked for, and this build has no CUDA; the CPU is used", wanted)
    return CPU

"""Checkpoints: folders that hold the whole state of a run, and are whole themselves at any moment."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from everyo import _core
from everyo._core import Checkpoint
from everyo.core.checks import whole

_LOGGER = logging.getLogger("everyo.training")

__all__ = ["Checkpoint", "CheckpointStore"]


class CheckpointStore:
    """The checkpoints of one run in one folder, with what is latest and best.

    Nothing that is there is ever written over; the last `keep_last` stay (0: all), and the best. Raises ValueError for
    `keep_last` below 0.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep_last: int = 3) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(f"[CheckpointStore] folder is a {type(folder).__name__}; it must be a path")
        self._native = _core.CheckpointStore(Path(folder), keep_last=whole("[CheckpointStore] keep_last", keep_last))

    @property
    def folder(self) -> Path:
        """Where they lie; made when the first is saved."""
        return self._native.folder

    def save(self, state: dict[str, Any], step: int, *, is_best: bool = False) -> Path:
        """Saves a state of nested dicts, numbers, words and arrays, as Trainer.state() gives; its folder.

        What was there before is whole, whatever happens. Raises EveryOSerializationError for what cannot be saved or written,
        ValueError for a negative step.
        """
        if not isinstance(state, dict):
            raise TypeError(f"[CheckpointStore] the state is a {type(state).__name__}; it must be a dict")
        return self._native.save(state, whole("[CheckpointStore] step", step), is_best=bool(is_best))

    def load_latest(self) -> Checkpoint | None:
        """The newest that is whole, every byte checked, or None; that newer ones were passed over is logged."""
        found = self._native.load_latest()
        names = [folder.name for folder in self.list()]
        newer = names[names.index(found.folder.name) + 1 :] if found is not None else names
        if newer:
            _LOGGER.warning(
                "[CheckpointStore] %s in %s passed over; everyo inspect says what is wrong with them",
                ", ".join(newer),
                self.folder,
            )
        return found

    def load_best(self) -> Checkpoint | None:
        """The best, or None. Raises EveryOSerializationError when it is damaged."""
        return self._native.load_best()

    def list(self) -> list[Path]:
        """Folders of checkpoints, oldest first, whole or not."""
        return self._native.list()

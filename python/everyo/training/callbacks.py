"""What a Trainer calls between epochs and batches. Epochs count from 1."""

from __future__ import annotations

import csv
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from everyo.core.checks import real, whole
from everyo.nn.weights import save_arrays
from everyo.serialization.archive import save
from everyo.training.checkpoints import CheckpointStore
from everyo.training.resume import as_arrays

if TYPE_CHECKING:
    from everyo.training.trainer import Trainer

Logs = dict[str, float]


class Callback:
    """Base of callbacks: each method does nothing. `logs` may be changed; later callbacks see it, History does not."""

    def on_train_begin(self, trainer: Trainer) -> None:
        """Before the first epoch."""

    def on_train_end(self, trainer: Trainer) -> None:
        """After the last epoch."""

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        """Before an epoch's first batch."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Logs) -> None:
        """After an epoch and its validation."""

    def on_batch_begin(self, trainer: Trainer, index: int) -> None:
        """Before a batch; the index counts from 0 in each epoch."""

    def on_batch_end(self, trainer: Trainer, index: int, logs: Logs) -> None:
        """After a batch's step, with its loss: NaN, and no step, if none of its targets counts."""

    def state(self) -> dict[str, Any]:
        """What a resumed run needs of it: a dict of numbers, words, arrays and such dicts."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from what state() gave, after on_train_begin."""


class _Monitor(Callback):
    """Watches one value of the logs for its best."""

    def __init__(self, monitor: str, mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f'[{type(self).__name__}] mode is {mode!r}; it must be "min" or "max"')
        self.monitor = monitor
        self.mode = mode
        self.best = np.inf if mode == "min" else -np.inf

    def state(self) -> dict[str, Any]:
        return {"best": float(self.best)}

    def load(self, state: dict[str, Any]) -> None:
        self.best = real(f"[{type(self).__name__}] best", state["best"])

    def _value(self, logs: Logs) -> float:
        if self.monitor not in logs:
            raise KeyError(f"[{type(self).__name__}] No metric {self.monitor!r}; there are {', '.join(logs)}")
        return float(logs[self.monitor])

    def _improves(self, value: float, by: float = 0.0) -> bool:
        return value < self.best - by if self.mode == "min" else value > self.best + by


class EarlyStopping(_Monitor):
    """Stops when a value has not improved by more than `min_delta` for more than `patience` epochs in a row.

    Afterwards the model has the weights of the best epoch, unless `restore_best_weights` is False. `best`, `best_epoch`, `wait`
    and `stopped_epoch` (0 when it did not stop) tell where it stands. Raises KeyError for a value that the logs lack.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int = 5,
        min_delta: float = 0.0,
        mode: str = "min",
        restore_best_weights: bool = True,
        verbose: bool = True,
    ) -> None:
        super().__init__(monitor, mode)
        patience, min_delta = whole("[EarlyStopping] patience", patience), real("[EarlyStopping] min_delta", min_delta)
        if patience < 0 or min_delta < 0:
            raise ValueError(f"[EarlyStopping] patience {patience} and min_delta {min_delta}; neither may be negative")
        self.patience = patience
        self.min_delta = min_delta
        self.restore_best_weights = restore_best_weights
        self.verbose = verbose
        self._start()

    def _start(self) -> None:
        self.best = np.inf if self.mode == "min" else -np.inf
        self.best_epoch = 0
        self.wait = 0
        self.stopped_epoch = 0
        self._best_state: dict[str, Any] | None = None

    def on_train_begin(self, trainer: Trainer) -> None:
        self._start()

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Logs) -> None:
        value = self._value(logs)
        if self._improves(value, self.min_delta):
            self.best, self.best_epoch, self.wait = value, epoch, 0
            if self.restore_best_weights:
                self._best_state = trainer.model.state_dict()
            return
        self.wait += 1
        if self.wait > self.patience:
            self.stopped_epoch = epoch
            trainer.stop_training = True

    def state(self) -> dict[str, Any]:
        numbers = {"best_epoch": self.best_epoch, "wait": self.wait, "stopped_epoch": self.stopped_epoch}
        return {**super().state(), **numbers, "best_state": dict(self._best_state or {})}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.best_epoch, self.wait, self.stopped_epoch = (
            whole(f"[EarlyStopping] {key}", state[key]) for key in ("best_epoch", "wait", "stopped_epoch")
        )
        self._best_state = as_arrays(state["best_state"]) or None

    def on_train_end(self, trainer: Trainer) -> None:
        if self._best_state is not None:
            trainer.model.load_state_dict(self._best_state)
        if self.stopped_epoch and self.verbose:
            print(
                f"stopped after epoch {self.stopped_epoch}: {self.monitor} was best in epoch {self.best_epoch}, {self.best:.6f}"
            )


class ModelCheckpoint(_Monitor):
    """Writes the model after epochs that improve a value, or after every one.

    `path` ends with ".safetensors", for a file of the state, or ".evo", for one that load() makes the model from; it may hold "{epoch}"; `saved_epochs` lists the epochs saved. A file is replaced at once:
    a crash leaves the old one or the new one. Raises ValueError for another ending, KeyError for a value that the logs lack.
    """

    def __init__(
        self, path: str | Path, *, monitor: str = "val_loss", mode: str = "min", save_best_only: bool = True
    ) -> None:
        super().__init__(monitor, mode)
        if Path(path).suffix not in (".safetensors", ".evo"):
            raise ValueError(f'[ModelCheckpoint] path is {str(path)!r}; it must end with ".safetensors" or ".evo"')
        self.path = str(path)
        self.save_best_only = save_best_only
        self.saved_epochs: list[int] = []

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Logs) -> None:
        if self.save_best_only:
            value = self._value(logs)
            if not self._improves(value):
                return
            self.best = value
        path = self.path.replace("{epoch}", str(epoch))
        if path.endswith(".evo"):
            save(trainer.model, path)
        else:
            save_arrays(path, trainer.model.state_dict())
        self.saved_epochs.append(epoch)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "saved_epochs": np.array(self.saved_epochs, dtype=np.int64)}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.saved_epochs = [int(epoch) for epoch in state["saved_epochs"]]


class Checkpoints(_Monitor):
    """Saves the trainer's whole state in a CheckpointStore, or a folder for one, every so many epochs and after the last.

    A run goes on from `store.load_latest()`: `trainer.load(checkpoint.state)`, then `fit` with the same callbacks. With
    `monitor` an epoch that improves that value is saved, too, and is the store's best. It acts after all other callbacks, so
    that their states are those of the epoch's end. Raises KeyError for a value that the logs lack.
    """

    def __init__(
        self, store: CheckpointStore | str | Path, *, monitor: str | None = None, mode: str = "min", every: int = 1
    ) -> None:
        super().__init__(monitor or "", mode)
        every = whole("[Checkpoints] every", every)
        if every < 1:
            raise ValueError(f"[Checkpoints] every is {every}; it must be from 1 up")
        self.store = store if isinstance(store, CheckpointStore) else CheckpointStore(store)
        self.every = every

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Logs) -> None:
        is_best = bool(self.monitor) and self._improves(self._value(logs))
        if is_best:
            self.best = self._value(logs)
        if is_best or epoch % self.every == 0 or epoch == trainer.total_epochs or trainer.stop_training:
            self.store.save(trainer.state(), trainer.steps, is_best=is_best)


class ProgressLogger(Callback):
    """A line every so many epochs, and for the last: printed, or given to the logger "everyo.training" if not `stream`."""

    def __init__(self, every: int = 1, *, stream: bool = True) -> None:
        every = whole("[ProgressLogger] every", every)
        if every < 1:
            raise ValueError(f"[ProgressLogger] every is {every}; it must be from 1 up")
        self.every = every
        self.stream = stream
        self._start = 0.0

    def on_train_begin(self, trainer: Trainer) -> None:
        self._start = time.perf_counter()

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Logs) -> None:
        if epoch % self.every and epoch != trainer.total_epochs and not trainer.stop_training:
            return
        width = len(str(trainer.total_epochs))
        values = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
        line = f"epoch {epoch:{width}}/{trainer.total_epochs}  {values}  {time.perf_counter() - self._start:.2f} s"
        if self.stream:
            print(line)
        else:
            logging.getLogger("everyo.training").info("%s", line)


class CSVLogger(Callback):
    """A line an epoch in a file, below a header; the file is written anew by each fit, and gone on with by a resumed one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None
        self._names: list[str] = []
        self._bytes = 0  # of the lines so far

    def on_train_begin(self, trainer: Trainer) -> None:
        self.on_train_end(trainer)  # a fit that an error ended has left the file open
        self._names, self._bytes = [], 0

    def state(self) -> dict[str, Any]:
        return {"names": {str(i): name for i, name in enumerate(self._names)}, "bytes": self._bytes}

    def load(self, state: dict[str, Any]) -> None:
        names = [state["names"][str(i)] for i in range(len(state["names"]))]
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"[CSVLogger] names are {names!r:.60}; each must be a word")
        self._names = names
        self._bytes = whole("[CSVLogger] bytes", state["bytes"])

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Logs) -> None:
        if self._file is None:
            goes_on = self._bytes > 0 and self.path.is_file()
            self._file = self.path.open("r+" if goes_on else "w", newline="", encoding="utf-8")
            if goes_on:  # lines of epochs that are made again go
                self._file.truncate(self._bytes)
                self._file.seek(0, 2)
            else:
                self._names = list(logs)
                csv.writer(self._file).writerow(["epoch", *self._names])
        csv.writer(self._file).writerow([epoch, *(logs.get(name, "") for name in self._names)])
        self._file.flush()
        self._bytes = self.path.stat().st_size

    def on_train_end(self, trainer: Trainer) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class LearningRateScheduler(Callback):
    """Sets the learning rate at the start of each epoch to `schedule(epoch, lr)`, lr being the one before."""

    def __init__(self, schedule: Callable[[int, float], float]) -> None:
        if not callable(schedule):
            raise TypeError(f"[LearningRateScheduler] {type(schedule).__name__} is no function of (epoch, lr)")
        self.schedule = schedule

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        trainer.optimizer.lr = float(self.schedule(epoch, trainer.optimizer.lr))

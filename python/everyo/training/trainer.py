"""The loop around a model. Letters: N samples, K classes."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOError, Tensor
from everyo.core.autocast import GradScaler
from everyo.core.autograd import no_grad
from everyo.core.checks import real, whole
from everyo.data import DataLoader
from everyo.data.loader import as_loader
from everyo.nn.module import Module
from everyo.optim import Optimizer, first_nonfinite
from everyo.training import resume
from everyo.training.accumulation import MicroBatch, count_targets, micro_batches
from everyo.training.callbacks import Callback, Checkpoints, ProgressLogger
from everyo.training.epoch import Epoch
from everyo.training.history import History
from everyo.training.metrics import Metric, get_metric
from everyo.training.precision import Precision
from everyo.training.scopes import mode_of, own_step

_LOGGER = logging.getLogger("everyo.training")
Array = npt.NDArray[Any]
LossFunction = Callable[[Tensor, Tensor], Tensor]


def _to_tensor(batch: Any) -> Tensor:
    """Whole numbers stay whole: they may be ids or labels."""
    if isinstance(batch, Tensor):
        return batch
    array = np.asarray(batch)
    if array.dtype.kind not in "iu":
        return _core.as_tensor(array)
    return _core.as_tensor(array, dtype=array.dtype if array.dtype.name in ("uint8", "int32") else "int64")


class Trainer:
    """Trains one model with one optimizer.

    `metrics` are names (accuracy, binary_accuracy, mae, mse, r2) or functions of (prediction, target), which take the whole
    epoch's arrays at once, without the rows of the loss's `ignore_index`; `gradient_clip` is the largest global L2 norm of the
    gradients. `count(targets)` says how many targets the loss is a mean over; without it the rows, or those that are not the
    loss's `ignore_index`. `precision` is of products in forward and loss, in training and evaluation: "float32", "bfloat16", or
    "float16", which scales the loss by `scaler` and leaves out steps whose gradients overflowed. Raises TypeError for a model,
    optimizer, loss or scaler of another kind, ValueError "gradient_clip", "Unknown metric", "precision".
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        loss_fn: LossFunction,
        *,
        metrics: Sequence[str | Metric] = (),
        device: Any = "cpu",
        gradient_clip: float | None = None,
        count: Callable[[Tensor], int] | None = None,
        precision: Any = "float32",
        scaler: GradScaler | None = None,
    ) -> None:
        if not isinstance(model, Module):
            raise TypeError(f"[Trainer] model is a {type(model).__name__}; it must be a Module")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[Trainer] optimizer is a {type(optimizer).__name__}; it must be an Optimizer")
        if not callable(loss_fn):
            raise TypeError(
                f"[Trainer] loss_fn is a {type(loss_fn).__name__}; it must be a loss or a function of (prediction, target)"
            )
        if gradient_clip is not None and not real("[Trainer] gradient_clip", gradient_clip) > 0:
            raise ValueError(f"[Trainer] gradient_clip is {gradient_clip}; it must be positive")
        if count is not None and not callable(count):
            raise TypeError(f"[Trainer] count is a {type(count).__name__}; it must be a function of the targets")
        self._precision = Precision(precision, scaler)
        self.model = model.to(device)
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.metrics: list[tuple[str, Metric]] = []
        for metric in metrics:
            if isinstance(metric, str):
                self.metrics.append((metric, get_metric(metric)))
            elif callable(metric):
                self.metrics.append((getattr(metric, "__name__", type(metric).__name__), metric))
            else:
                raise TypeError(f"[Trainer] a metric is a {type(metric).__name__}; it must be a name or a function")
        self.gradient_clip = gradient_clip
        self.count = count
        self.history = History()
        self.stop_training = False
        self.total_epochs = 0
        self._steps = 0
        self._warned = self._said_empty = False
        # Where the run stands, for state().
        self._epoch = 0  # epochs done
        self._batches = self._given = 0  # batches and samples of the epoch that is running
        self._running: Epoch | None = None
        self._callbacks: list[Callback] = []
        self._loader: Any = None
        self._others: list[Tensor] = []  # parameters of the model that the optimizer has not
        self._resumed: dict[str, Any] | None = None

    def fit(
        self,
        train_loader: Iterable[Any],
        *,
        epochs: int = 10,
        validation_loader: Iterable[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: bool = True,
        log_every: int = 1,
        accumulation: int = 1,
    ) -> History:
        """Trains for `epochs` epochs and returns the history, a row each: loss, metrics, and "val_" of both after validation.

        A batch is one optimizer step; with `accumulation` it is cut into so many micro-batches (see micro_batches), to save
        memory. One of whose targets none counts makes no step, and the first of them is logged; an epoch's loss is the mean over
        the targets that count, and all its values are NaN where none does. After load() it goes on to the end of epoch `epochs`,
        with the callbacks the state was saved with.

        The model is in training mode during it, each module in its own mode afterwards. `verbose` prints the effective batch
        and a line every `log_every` epochs; the first loss that is not finite is logged, with the first such gradient. In
        float16 a step that overflowed is left out and logged with the parameter's name; a row has the scale at the epoch's end,
        "loss_scale", and how many steps were left out, "skipped_steps"; `scaler.most_skips` in a row raise EveryOError. Raises
        ValueError "epochs" and "accumulation", TypeError "subclass", EveryOError "(features, targets)" and "no batches".
        """
        epochs = whole("[Trainer] epochs", epochs)
        if epochs <= 0:
            raise ValueError(f"[Trainer] epochs is {epochs}; it must be positive")
        accumulation = whole("[Trainer] accumulation", accumulation)
        if accumulation <= 0:
            raise ValueError(f"[Trainer] accumulation is {accumulation}; it must be positive")
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"[Trainer] a callback is a {type(callback).__name__}; it must be an instance of a subclass of Callback"
                )
        self._callbacks = list(callbacks)
        every = sorted(
            [*callbacks, ProgressLogger(log_every)] if verbose else callbacks, key=lambda each: isinstance(each, Checkpoints)
        )
        self.stop_training = self._warned = self._said_empty = False
        self.total_epochs = epochs
        self._loader = train_loader
        # Theirs are gradients all the same, and those of another loss scale do not add up.
        own = {id(parameter) for parameter in self.optimizer.parameters}
        self._others = [parameter for parameter in self.model.parameters() if id(parameter) not in own]
        announce = [accumulation] if verbose else []
        with mode_of(self.model, training=True), own_step():
            for callback in every:
                callback.on_train_begin(self)
            self._begin()
            while self._epoch < epochs and not self.stop_training:
                epoch = self._epoch + 1
                if self._running is None:
                    for callback in every:
                        callback.on_epoch_begin(self, epoch)
                logs = self._train_epoch(train_loader, every, accumulation, announce)
                if validation_loader is not None:
                    logs.update((f"val_{name}", value) for name, value in self.evaluate(validation_loader).items())
                self.history.append(**logs)
                self._epoch = epoch
                for callback in every:
                    callback.on_epoch_end(self, epoch, logs)
            for callback in every:
                callback.on_train_end(self)
        return self.history

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs to go on with the same bits, as nested dicts of numbers, words and arrays.

        Between steps, so that callbacks may call it, in the middle of an epoch too; CheckpointStore saves it. Model, optimizer,
        steps, history, the epoch's sums, the states of the callbacks, and where a DataLoader stands.
        """
        return resume.state_of(self)

    def load(self, state: dict[str, Any]) -> None:
        """Takes up such a state: the next fit goes on from there.

        Raises EveryOSerializationError for the state of another model or optimizer; nothing is changed then. fit raises it for
        other callbacks and another order of samples.
        """
        resume.check(self, state)
        history = resume.history_of(state)
        before = self.model.state_dict()
        scaled = self.scaler.state_dict() if self.scaler is not None else {}
        try:
            if self.scaler is not None:
                self.scaler.load_state_dict(state["scaler"])
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])  # type: ignore[attr-defined]
        except BaseException:
            self.model.load_state_dict(before)
            if self.scaler is not None:
                self.scaler.load_state_dict(scaled)
            raise
        self._steps = state["steps"]
        self.history = history
        self._resumed = state

    @property
    def steps(self) -> int:
        """Optimizer steps made."""
        return self._steps

    @property
    def precision(self) -> str:
        """The name of the dtype that products are computed in."""
        return self._precision.name

    @property
    def scaler(self) -> GradScaler | None:
        """What scales the loss; None unless in float16."""
        return self._precision.scaler

    def _begin(self) -> None:
        """A run from the start, or from the state that was loaded."""
        state = self._resumed
        self._epoch, self._batches, self._given, self._running = 0, 0, 0, None
        if state is None:
            return
        resume.load_callbacks(self._callbacks, state["callbacks"])
        resume.load_loader(self._loader, state)
        self._epoch = state["epoch"]
        self.stop_training = state["stopped"]
        if "running" in state:
            self._running = self._new_epoch()
            self._running.load(state["running"])
            self._batches, self._given = state["running"]["batches"], state["running"]["given"]
        self._resumed = None

    def _train_epoch(
        self, loader: Iterable[Any], callbacks: Sequence[Callback], accumulation: int, announce: list[int]
    ) -> dict[str, float]:
        if self._running is None:
            self._running, self._batches, self._given = self._new_epoch(), 0, 0
        summed = self._running
        for batch in self._left(loader) if self._batches else loader:
            features, targets = self._split(batch)
            if announce:
                rows = features.shape[0] if features.ndim else 1
                print(f"effective batch {_core.effective_batch(rows, announce.pop())}")
            for callback in callbacks:
                callback.on_batch_begin(self, self._batches)
            value = self._step(features, targets, accumulation, summed)
            self._batches += 1
            self._given += features.shape[0] if features.ndim else 1
            for callback in callbacks:
                callback.on_batch_end(self, self._batches - 1, {"loss": value})
        batches, self._running, self._batches, self._given = self._batches, None, 0, 0
        logs = self._values(summed, batches)
        if self.scaler is not None:
            logs.update(loss_scale=self.scaler.get_scale(), skipped_steps=summed.skipped)
        return logs

    def _left(self, loader: Iterable[Any]) -> Iterable[Any]:
        """What is left of the epoch that a resumed run is in; a DataLoader knows it unless nothing is."""
        if isinstance(loader, DataLoader):
            return loader if self._given < loader._samples else ()
        return itertools.islice(loader, self._batches, None)

    def _step(self, features: Tensor, targets: Tensor, accumulation: int, summed: Epoch) -> float:
        """One optimizer step; the loss of its batch."""
        # Keys dropout's masks, so that a run is the same whatever ran before it; a step that is left out has used its own.
        _core.set_step(self._steps + self._precision.skipped)
        self.optimizer.zero_grad()
        for parameter in self._others:
            parameter.zero_grad()
        value, counted = 0.0, 0
        for part in self._parts(features, targets, accumulation):
            with self._precision.scope():
                output = self.model(part.features)
                loss = self._precision.wide(self.loss_fn(output, part.targets))
            weight = 1.0 if summed.loss_is_sum else part.weight
            self._precision.backward(loss if weight == 1.0 else loss * weight)
            value += loss.item() * weight
            counted += part.count
            self._keep(summed, output, part.targets)
        if not counted:
            if not self._said_empty:
                self._said_empty = True
                _LOGGER.warning("[Trainer] no target of the batch after step %d counts; it makes no step", self._steps)
            return math.nan
        if self._precision.step(self.optimizer, self.gradient_clip, self._steps):
            self._steps += 1
        else:
            summed.skipped += 1
        if not math.isfinite(value) and not self._warned:
            self._warn(value)
        summed.add(value, counted)
        return value

    def _keep(self, summed: Epoch, output: Tensor, targets: Tensor) -> None:
        if self.metrics:
            with no_grad():
                summed.keep(self._precision.wide(output), targets)

    def _parts(self, features: Tensor, targets: Tensor, accumulation: int) -> Iterable[MicroBatch]:
        if accumulation == 1 and self._ignore_index is None and self.count is None:
            return [MicroBatch(features, targets, self._counted(targets), 1.0)]
        return micro_batches(features, targets, accumulation, ignore_index=self._ignore_index, count=self.count)

    @property
    def _ignore_index(self) -> int | None:
        return getattr(self.loss_fn, "ignore_index", None)

    def _counted(self, targets: Tensor) -> int:
        """How many targets the loss of a batch is a mean over."""
        if self.count is None and self._ignore_index is None:
            return targets.shape[0] if targets.ndim else 1
        if self.count is None:
            return count_targets(targets, self._ignore_index)
        counted = whole("[Trainer] count(targets)", self.count(targets))
        if counted < 0:
            raise ValueError(f"[Trainer] count(targets) gave {counted}; it must be 0 or more")
        return counted

    def evaluate(self, loader: Iterable[Any]) -> dict[str, float]:
        """Loss and metrics over a loader, in evaluation mode and without a graph; each module's own mode comes back.

        The loss is the mean over the targets that count, and all values are NaN where none does, which no monitor takes for an
        improvement. Raises EveryOError "(features, targets)" and "no batches".
        """
        summed, batches = self._new_epoch(), 0
        with mode_of(self.model, training=False), no_grad():
            for batch in loader:
                batches += 1
                features, targets = self._split(batch)
                counted = self._counted(targets)
                if not counted:
                    continue  # its mean may be 0 / 0
                with self._precision.scope():
                    output = self.model(features)
                    loss = self.loss_fn(output, targets)
                summed.add(loss.item(), counted)
                self._keep(summed, output, targets)
        return self._values(summed, batches)

    def predict(self, data: Any, *, batch_size: int = 64) -> Array:
        """The model's outputs for an array, a tensor, a dataset or a loader, in evaluation mode; modes come back. What products
        in halves made a half is float32.

        A loader is a DataLoader, or anything that gives batches when iterated over and is no sequence, mapping, set or array.
        Targets that come with the features are left out. Raises EveryOError "no batches".
        """
        outputs: list[Array] = []
        with mode_of(self.model, training=False), no_grad():
            for batch in as_loader(data, batch_size):
                features = batch[0] if isinstance(batch, (tuple, list)) else batch
                with self._precision.scope():
                    output = self.model(_to_tensor(features))
                outputs.append(self._precision.wide(output).numpy())
        if not outputs:
            raise EveryOError("[Trainer] predict was given no batches")
        return np.concatenate(outputs)

    def predict_classes(self, data: Any, *, batch_size: int = 64) -> npt.NDArray[np.int64]:
        """The class of each sample, int64 [N]: the first largest of its row [K], or whether a single column is >= 0.5."""
        outputs = _core.as_tensor(self.predict(data, batch_size=batch_size))
        if outputs.ndim < 2 or outputs.shape[-1] == 1:
            classes = _core.greater_equal(outputs.reshape(len(outputs)), 0.5).astype("int64").numpy()
        else:
            classes = outputs.argmax(axis=-1)
        return np.asarray(classes, dtype=np.int64)

    def _warn(self, loss: float) -> None:
        self._warned = True
        name = first_nonfinite(self.optimizer.parameters)
        what = f"the gradient of '{name}' is not finite" if name else "all gradients are finite"
        _LOGGER.warning("[Trainer] step %d: the loss is %s; %s", self._steps, loss, what)

    def _new_epoch(self) -> Epoch:
        return Epoch(self.metrics, getattr(self.loss_fn, "reduction", "mean") == "sum", self._ignore_index)

    @staticmethod
    def _split(batch: Any) -> tuple[Tensor, Tensor]:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            what = (
                f"{type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list)) else type(batch).__name__
            )
            raise EveryOError(f"[Trainer] a batch is a {what}; it must be a pair (features, targets)")
        return _to_tensor(batch[0]), _to_tensor(batch[1])

    @staticmethod
    def _values(summed: Epoch, batches: int) -> dict[str, float]:
        if not batches:
            raise EveryOError(
                "[Trainer] the loader gave no batches; it needs samples, and without drop_last if they are few"
            )
        return summed.values()

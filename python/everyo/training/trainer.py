"""The loop around a model. Letters: N samples, K classes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOError, Tensor
from everyo.core.autograd import no_grad
from everyo.core.checks import real, whole
from everyo.data import ArrayDataset, DataLoader, Dataset
from everyo.nn.module import Module
from everyo.optim import Optimizer, clip_grad_norm, first_nonfinite
from everyo.training.callbacks import Callback, ProgressLogger
from everyo.training.history import History
from everyo.training.metrics import Metric, get_metric

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


@contextmanager
def _mode(model: Module, training: bool) -> Iterator[None]:
    """All of the model in one mode; each module's own comes back."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, own in modes:
            module.training = own


@contextmanager
def _own_step() -> Iterator[None]:
    """The thread's step is ours within; afterwards it is what it was."""
    outer = _core.get_step()
    try:
        yield
    finally:
        _core.set_step(outer)


class _Epoch:
    """Sums up what the batches of an epoch gave."""

    def __init__(self, metrics: Sequence[tuple[str, Metric]], loss_is_sum: bool) -> None:
        self.metrics = metrics
        self.loss_is_sum = loss_is_sum
        self.loss_total = 0.0
        self.samples = 0
        self.outputs: list[Array] = []
        self.targets: list[Array] = []

    def add(self, loss: float, output: Tensor, target: Tensor) -> None:
        count = target.shape[0] if target.ndim else 1
        self.loss_total += loss if self.loss_is_sum else loss * count
        self.samples += count
        if self.metrics:
            self.outputs.append(output.numpy())
            self.targets.append(target.numpy())

    def values(self) -> dict[str, float]:
        values = {"loss": self.loss_total / self.samples}
        if self.metrics:
            outputs, targets = np.concatenate(self.outputs), np.concatenate(self.targets)
            values.update((name, float(metric(outputs, targets))) for name, metric in self.metrics)
        return values


class Trainer:
    """Trains one model with one optimizer.

    `metrics` are names (accuracy, binary_accuracy, mae, mse, r2) or functions of (prediction, target), which take the whole
    epoch's arrays at once; `gradient_clip` is the largest global L2 norm of the gradients. Raises TypeError for a model,
    optimizer or loss of another kind, ValueError "gradient_clip", "Unknown metric".
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
        self.history = History()
        self.stop_training = False
        self.total_epochs = 0
        self._steps = 0
        self._warned = False

    def fit(
        self,
        train_loader: Iterable[Any],
        *,
        epochs: int = 10,
        validation_loader: Iterable[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: bool = True,
        log_every: int = 1,
    ) -> History:
        """Trains for `epochs` epochs and returns the history, a row each: loss, metrics, and "val_" of both after validation.

        The model is in training mode during it, each module in its own mode afterwards. `verbose` prints a line every
        `log_every` epochs; the first loss that is not finite is logged, with the first such gradient. Raises ValueError
        "epochs", TypeError "subclass", EveryOError "(features, targets)" and "no batches".
        """
        epochs = whole("[Trainer] epochs", epochs)
        if epochs <= 0:
            raise ValueError(f"[Trainer] epochs is {epochs}; it must be positive")
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"[Trainer] a callback is a {type(callback).__name__}; it must be an instance of a subclass of Callback"
                )
        every = [*callbacks, ProgressLogger(log_every)] if verbose else list(callbacks)
        self.stop_training = self._warned = False
        self.total_epochs = epochs
        with _mode(self.model, training=True), _own_step():
            for callback in every:
                callback.on_train_begin(self)
            for epoch in range(1, epochs + 1):
                for callback in every:
                    callback.on_epoch_begin(self, epoch)
                logs = self._train_epoch(train_loader, every)
                if validation_loader is not None:
                    logs.update((f"val_{name}", value) for name, value in self.evaluate(validation_loader).items())
                self.history.append(**logs)
                for callback in every:
                    callback.on_epoch_end(self, epoch, logs)
                if self.stop_training:
                    break
            for callback in every:
                callback.on_train_end(self)
        return self.history

    def _train_epoch(self, loader: Iterable[Any], callbacks: Sequence[Callback]) -> dict[str, float]:
        summed = self._new_epoch()
        for index, batch in enumerate(loader):
            features, targets = self._split(batch)
            for callback in callbacks:
                callback.on_batch_begin(self, index)
            _core.set_step(self._steps)  # keys dropout's masks, so that a run is the same whatever ran before it
            self.optimizer.zero_grad()
            output = self.model(features)
            loss = self.loss_fn(output, targets)
            loss.backward(retain_graph=False)
            if self.gradient_clip is not None:
                clip_grad_norm(self.optimizer.parameters, self.gradient_clip)
            self.optimizer.step()
            self._steps += 1
            value = loss.item()
            if not math.isfinite(value) and not self._warned:
                self._warn(value)
            summed.add(value, output, targets)
            for callback in callbacks:
                callback.on_batch_end(self, index, {"loss": value})
        return self._values(summed)

    def evaluate(self, loader: Iterable[Any]) -> dict[str, float]:
        """Loss and metrics over a loader, in evaluation mode and without a graph; each module's own mode comes back."""
        summed = self._new_epoch()
        with _mode(self.model, training=False), no_grad():
            for batch in loader:
                features, targets = self._split(batch)
                output = self.model(features)
                summed.add(self.loss_fn(output, targets).item(), output, targets)
        return self._values(summed)

    def predict(self, data: Any, *, batch_size: int = 64) -> Array:
        """The model's outputs for an array, a tensor, a dataset or a loader, in evaluation mode; modes come back.

        Targets that come with the features are left out. Raises EveryOError "no batches".
        """
        if isinstance(data, DataLoader):
            loader = data
        elif isinstance(data, Dataset):
            loader = DataLoader(data, batch_size)
        else:
            loader = DataLoader(ArrayDataset(data), batch_size)
        outputs: list[Array] = []
        with _mode(self.model, training=False), no_grad():
            for batch in loader:
                features = batch[0] if isinstance(batch, (tuple, list)) else batch
                outputs.append(self.model(_to_tensor(features)).numpy())
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

    def _new_epoch(self) -> _Epoch:
        return _Epoch(self.metrics, getattr(self.loss_fn, "reduction", "mean") == "sum")

    @staticmethod
    def _split(batch: Any) -> tuple[Tensor, Tensor]:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            what = (
                f"{type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list)) else type(batch).__name__
            )
            raise EveryOError(f"[Trainer] a batch is a {what}; it must be a pair (features, targets)")
        return _to_tensor(batch[0]), _to_tensor(batch[1])

    @staticmethod
    def _values(summed: _Epoch) -> dict[str, float]:
        if not summed.samples:
            raise EveryOError(
                "[Trainer] the loader gave no batches; it needs samples, and without drop_last if they are few"
            )
        return summed.values()

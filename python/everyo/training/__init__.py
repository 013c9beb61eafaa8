"""The training loop, its callbacks and metrics."""

from everyo.training.accumulation import MicroBatch, count_targets, micro_batches
from everyo.training.callbacks import (
    Callback,
    Checkpoints,
    CSVLogger,
    EarlyStopping,
    LearningRateScheduler,
    ModelCheckpoint,
    ProgressLogger,
)
from everyo.training.checkpoints import Checkpoint, CheckpointStore
from everyo.training.history import History
from everyo.training.metrics import (
    accuracy,
    binary_accuracy,
    confusion_matrix,
    get_metric,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
)
from everyo.training.trainer import Trainer

__all__ = [
    "CSVLogger",
    "Callback",
    "Checkpoint",
    "CheckpointStore",
    "Checkpoints",
    "EarlyStopping",
    "History",
    "LearningRateScheduler",
    "MicroBatch",
    "ModelCheckpoint",
    "ProgressLogger",
    "Trainer",
    "accuracy",
    "binary_accuracy",
    "confusion_matrix",
    "count_targets",
    "get_metric",
    "mean_absolute_error",
    "mean_squared_error",
    "micro_batches",
    "r2_score",
]

"""Ranks that train together on one machine: `spawn` starts them, a `ProcessGroup` is what they exchange through,
`DataParallel` and `average_gradients` make their gradients one."""

from .._core import DistributedError, RemoteTraceback
from .data_parallel import DataParallel, VirtualShards, average_gradients, shard_indices
from .group import ProcessGroup, Work, all_reduce_mean, init_process_group
from .ranks import available_workers, spawn

__all__ = [
    "DataParallel",
    "DistributedError",
    "ProcessGroup",
    "RemoteTraceback",
    "VirtualShards",
    "Work",
    "all_reduce_mean",
    "available_workers",
    "average_gradients",
    "init_process_group",
    "shard_indices",
    "spawn",
]

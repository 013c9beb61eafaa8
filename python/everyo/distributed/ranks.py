"""Functions on several ranks at once."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, TypeVar, Union

from .. import _core
from ..core.checks import real, whole
from .group import ProcessGroup

_T = TypeVar("_T")
Answer = Union[bytes, tuple[str, str]]

_START_METHODS = ("fork", "spawn", "thread")
_NO_TIMEOUT = 1e9  # seconds
_MOST_RANKS = 256
_log = logging.getLogger("everyo")

#: True in a fresh interpreter while it imports its parent's program.
_importing = False


def available_workers() -> int:
    """The processors that this process may use, 1 at least."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spawn(
    function: Callable[..., _T],
    world_size: int,
    *,
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    start_method: Optional[str] = None,
    timeout: Optional[float] = 600.0,
    threads: int = 0,
) -> list[_T]:
    """function(group, *args, **kwargs) on world_size ranks at once; what they return, in rank order.

    start_method: "fork" (the default) copies this process, so that any function will do, closures too, and a rank sees the
    memory as it is now; "spawn" starts fresh interpreters, which import the function and get pickled arguments; "thread" runs
    the ranks as threads here. Results of processes are pickled. `threads` is how many a rank's kernels may use; 0 shares the
    processors out.

    When a rank raises, is killed, exits or is stopped, the others' exchanges raise too, all ranks end, and so does the call,
    with DistributedError "rank 0: ValueError: ..", whose `rank` is the rank to blame and whose cause is the traceback there.
    So it does when the run takes longer than `timeout` seconds (None: no limit). Nothing is left running, after Ctrl-C
    neither; threads alone cannot be ended, and the call waits for them. Raises DistributedError "at least 1" for a world_size
    below 1, TypeError for a function that a fresh interpreter cannot import.
    """
    world_size = whole("[spawn] world_size", world_size)
    if not 1 <= world_size <= _MOST_RANKS:
        raise _core.DistributedError(
            f"[spawn] world_size is {world_size}; it must be at least 1 and at most {_MOST_RANKS}"
        )
    if not callable(function):
        raise TypeError(f"[spawn] {function!r:.60} is of type {type(function).__name__}; give a function of the group")
    method = "fork" if start_method is None else start_method
    if method not in _START_METHODS:
        raise ValueError(f'[spawn] start_method is {method!r}; it must be "fork", "spawn" or "thread"')
    if _importing:
        raise _core.DistributedError(
            "[spawn] called while a rank's interpreter imports this program; call it below `if __name__ == '__main__':`"
        )
    seconds = _NO_TIMEOUT if timeout is None else min(real("[spawn] timeout", timeout), _NO_TIMEOUT)
    threads = whole("[spawn] threads", threads)
    _warn_of_threads(world_size, method)
    call = (function, tuple(args), dict(kwargs or {}))
    if method == "thread":
        return _on_threads(call, world_size, seconds, threads)
    results = (_forked if method == "fork" else _fresh)(call, world_size, seconds, threads)
    return [_unpickled(rank, result) for rank, result in enumerate(results)]


def _unpickled(rank: int, result: bytes) -> Any:
    try:
        return pickle.loads(result)
    except Exception as error:
        raised = _core.DistributedError(f"[spawn] rank {rank}: its result cannot be unpickled: {described(error)[0]}")
        raised.rank = rank
        raise raised from error


_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _warn_of_threads(world_size: int, method: str) -> None:
    if world_size < 2 or method == "thread" or any(name.endswith("_NUM_THREADS") for name in os.environ):
        return
    _log.warning(
        "[spawn] no *_NUM_THREADS variable is set: everyo shares the processors out among its %d ranks, but NumPy and other "
        "libraries may use all of them in each; set OMP_NUM_THREADS=1 before Python starts if they compute there",
        world_size,
    )


def _forked(call: _Call, world_size: int, timeout: float, threads: int) -> list[bytes]:
    _flush()  # or each rank would write what is buffered here once more
    return _core.run_processes(world_size, functools.partial(_forked_rank, call), timeout, threads)


def _forked_rank(call: _Call, group: _core.ProcessGroup) -> Answer:
    """A forked rank's life, as that of a process of multiprocessing."""
    sys.stdin = open(os.devnull)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # its queues and locks may be in the function's closure
        util._finalizer_registry.clear()
        util._run_after_forkers()
    answer = _answer(call, group)
    if util is not None:
        util._run_finalizers()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    _flush()
    return answer


def _answer(call: _Call, group: _core.ProcessGroup) -> Answer:
    function, args, kwargs = call
    try:
        result = function(ProcessGroup(group), *args, **kwargs)
    except BaseException as error:
        return described(error)
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        what, details = described(error)
        return f"TypeError: the result, of type {type(result).__name__}, cannot be pickled: {what}", details


def described(error: BaseException) -> tuple[str, str]:
    """What went wrong, and where, without our own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(__package__) and trace.tb_next:
        trace = trace.tb_next
    name, text = type(error).__name__, str(error)
    details = "".join(traceback.format_exception(type(error), error, trace))
    return _sendable(f"{name}: {text}" if text else name), _sendable(details)


def _sendable(text: str) -> str:
    """Without what UTF-8 has no code for, and without zero bytes, which end what a rank says."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # there is none, or nobody reads it
            pass


def _on_threads(call: _Call, world_size: int, timeout: float, threads: int) -> list[Any]:
    function, args, kwargs = call
    results: list[Any] = [None] * world_size

    def rank(group: _core.ProcessGroup) -> Answer:
        own = ProcessGroup(group)
        try:
            results[own.rank] = function(own, *args, **kwargs)
        except BaseException as error:
            return described(error)
        return b""

    _core.run_threads(world_size, rank, timeout, threads)
    return results


def _fresh(call: _Call, world_size: int, timeout: float, threads: int) -> list[bytes]:
    from multiprocessing import spawn as preparing

    try:
        pickled = pickle.dumps(call, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            f"[spawn] start_method 'spawn' hands function and arguments to fresh interpreters, and they cannot be pickled: "
            f"{error}; define the function at the top of a module, or leave start_method at 'fork'"
        ) from error
    preparation = preparing.get_preparation_data("everyo rank")
    preparation["authkey"] = bytes(preparation["authkey"])  # its own class refuses to be pickled; our file is anonymous
    payload = pickle.dumps((preparation, pickled))
    # Inherited by the ranks, and gone with the last of them.
    with open(os.memfd_create("everyo-call", 0), "wb") as file:
        file.write(payload)
        file.flush()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from everyo.distributed.fresh import main; main({file.fileno()})"
        )
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        _flush()
        return _core.run_programs(world_size, [sys.executable, *flags, "-c", program], timeout, threads)

"""What ranks exchange, and how."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Optional, TypeVar, Union

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import EveryODTypeError, EveryOShapeError, Tensor
from ..core.checks import whole

Array = npt.NDArray[Any]
TensorOrArray = Union[Tensor, Array]
_T = TypeVar("_T")

_DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")


def _checked(function: str, value: Any) -> TensorOrArray:
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray):
        raise TypeError(f"[{function}] {value!r:.60} is of type {type(value).__name__}; give a NumPy array or a Tensor")
    array: Array = value
    if array.dtype.name not in _DTYPES:
        raise EveryODTypeError(f"[{function}] the array is {array.dtype.name}; it must be one of {', '.join(_DTYPES)}")
    return array


def _readable(function: str, value: Any) -> TensorOrArray:
    """A tensor or an array whose memory can be read as it lies: a copy where need be."""
    checked = _checked(function, value)
    if isinstance(checked, Tensor) or _in_order(checked):
        return checked
    return _copied(checked)


def _in_order(array: Array) -> bool:
    return array.flags.c_contiguous and array.dtype.isnative and array.flags.aligned


def _copied(array: Array) -> Array:
    return np.array(array, array.dtype.newbyteorder("="), order="C")


class _InPlace:
    """Tensors and arrays to be written: an array that lies in another order is copied there, and back by finish()."""

    def __init__(self, function: str, values: Sequence[Any]) -> None:
        self.places: list[TensorOrArray] = []
        self._copies: list[tuple[Array, Array]] = []
        for value in values:
            value = _checked(function, value)
            if isinstance(value, np.ndarray):
                if not value.flags.writeable:
                    raise ValueError(f"[{function}] an array of shape {value.shape} is read-only; give a copy")
                if not _in_order(value):
                    copied = _copied(value)
                    self._copies.append((value, copied))
                    value = copied
            self.places.append(value)

    def finish(self) -> None:
        for array, copied in self._copies:
            array[...] = copied


def _listed(function: str, arrays: Any) -> list[Any]:
    if isinstance(arrays, (Tensor, np.ndarray)):
        return [arrays]
    try:
        return list(arrays)
    except TypeError:
        raise TypeError(
            f"[{function}] {arrays!r:.60} is of type {type(arrays).__name__}; give an array or a list of them"
        ) from None


def _empty_like(value: TensorOrArray, shape: tuple[int, ...]) -> TensorOrArray:
    if isinstance(value, Tensor):
        return _core.zeros(shape, dtype=value.dtype)
    return np.empty(shape, value.dtype)


def _nothing() -> None:
    pass


class Work(Generic[_T]):
    """An exchange under way. What it was given must stay as it is until wait() has returned."""

    def __init__(self, work: _core.Work, finish: Callable[[], _T]) -> None:
        self._work = work
        self._finish: Optional[Callable[[], _T]] = finish
        self._result: Optional[_T] = None

    def wait(self) -> Optional[_T]:
        """Returns once it is done, with what the exchange gives; raises what it raised. Other threads go on meanwhile. Again:
        the same."""
        self._work.wait()
        finish = self._finish  # another thread may wait, too
        if finish is not None:
            self._result = finish()
            self._finish = None
        return self._result

    def done(self) -> bool:
        """Is it?"""
        return self._work.done()


class ProcessGroup:
    """The ranks of a run, or some of them, as one of them sees it. `spawn` and `init_process_group` make it.

    Every rank calls the same collectives in the same order with arrays of the same sizes. A call that differs is an error
    on all of them, as is a rank that raises, dies, stops, leaves or is late: each raises DistributedError with that rank's
    number as `rank`, and so does every later call. Floating sums are made in float64 in rank order and rounded once: the same
    bits on every rank and every time. Arrays are NumPy's or tensors, of every dtype that a tensor can have; the interpreter is
    free while a rank waits. Collectives may differ in size from one to the next.
    """

    def __init__(self, group: _core.ProcessGroup) -> None:
        self._group = group
        self.rank: int = group.rank
        self.world_size: int = group.world_size
        #: "threads", "shm" (processes), or "one" for a world of one.
        self.transport: str = group.transport

    @property
    def is_main(self) -> bool:
        """Is this rank 0?"""
        return self.rank == 0

    def __repr__(self) -> str:
        return f"ProcessGroup(rank={self.rank}, world_size={self.world_size}, transport={self.transport!r})"

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is not None and not isinstance(error, _core.DistributedError):
            self.abort(f"rank {self.rank} raised {type(error).__name__}: {error}")
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("[ProcessGroup] a group is one rank's own and cannot be pickled; spawn gives each rank its own")

    def close(self) -> None:
        """Leaves the group; what is called later raises. Again: nothing."""
        self._group.close()

    def abort(self, reason: str) -> None:
        """Ends the group on all ranks: whoever waits raises DistributedError with this reason."""
        self._group.end(str(reason))

    # ---- collectives in place ----

    def barrier(self) -> None:
        """Returns once every rank has called it."""
        self._group.barrier()

    def all_reduce(self, arrays: Any, op: str = "sum") -> None:
        """Each element of an array, or of a list of them, combined over the ranks, in place: "sum", "mean", "min", "max".

        Raises EveryODTypeError for a mean of integers and a sum of truth values, ValueError for a read-only array.
        """
        places = _InPlace("all_reduce", _listed("all_reduce", arrays))
        self._group.all_reduce(places.places, op)
        places.finish()

    def all_reduce_mean(self, arrays: Any) -> None:
        """The mean over the ranks of an array, or of each in a list, in place."""
        self.all_reduce(arrays, "mean")

    def broadcast(self, arrays: Any, src: int = 0) -> None:
        """Rank src's elements of an array, or of each in a list, on all ranks, in place."""
        places = _InPlace("broadcast", _listed("broadcast", arrays))
        self._group.broadcast(places.places, whole("[broadcast] src", src))
        places.finish()

    def send(self, array: Any, dst: int) -> None:
        """An array to another rank, which calls receive for one of the same size."""
        self._group.send(_readable("send", array), whole("[send] dst", dst))

    def receive(self, array: Any, src: int) -> None:
        """Another rank's array, in place."""
        places = _InPlace("receive", [array])
        self._group.receive(places.places[0], whole("[receive] src", src))
        places.finish()

    def scatter(self, part: Any, data: Any = None, src: int = 0) -> None:
        """data[i] of rank src in `part` of rank i. Only rank src gives data, [world_size, *part.shape]."""
        places, given, src = self._scattered(part, data, src)
        self._group.scatter(given, places.places[0], src)
        places.finish()

    def _scattered(self, part: Any, data: Any, src: int) -> tuple[_InPlace, Optional[TensorOrArray], int]:
        places = _InPlace("scatter", [part])
        src = whole("[scatter] src", src)
        if self.rank != src:
            return places, None, src
        if data is None:
            raise ValueError(f"[scatter] rank {src} is the source and gives no data; give scatter(part, data)")
        given = _readable("scatter", data)
        wanted = (self.world_size, *places.places[0].shape)
        if tuple(given.shape) != wanted or given.dtype != places.places[0].dtype:
            raise EveryOShapeError(
                f"[scatter] data is {tuple(given.shape)} {given.dtype}; part asks for {wanted} "
                f"{places.places[0].dtype}, one part a rank"
            )
        return places, given, src

    # ---- collectives that give something new ----

    def all_gather(self, array: Any) -> Any:
        """The arrays of all ranks as one, [world_size, *array.shape]; a tensor for a tensor."""
        part, data = self._gathered("all_gather", array)
        self._group.all_gather(part, data)
        return data

    def gather(self, array: Any, dst: int = 0) -> Any:
        """The same on rank dst; None elsewhere."""
        dst = whole("[gather] dst", dst)
        part, data = self._gathered("gather", array, self.rank == dst)
        self._group.gather(part, data, dst)
        return data

    def reduce_scatter(self, array: Any, op: str = "sum") -> Any:
        """array [N, ..] of all ranks combined, of which this rank gets rows [N / world_size, ..]. EveryOShapeError unless N is
        a multiple of world_size."""
        data, part = self._parted(array)
        self._group.reduce_scatter(data, part, op)
        return part

    def _gathered(self, function: str, array: Any, here: bool = True) -> tuple[TensorOrArray, Any]:
        part = _readable(function, array)
        return part, _empty_like(part, (self.world_size, *part.shape)) if here else None

    def _parted(self, array: Any) -> tuple[TensorOrArray, TensorOrArray]:
        data = _readable("reduce_scatter", array)
        shape = tuple(data.shape)
        if not shape or shape[0] % self.world_size != 0:
            raise EveryOShapeError(
                f"[reduce_scatter] the array is {shape}; its rows must be a multiple of the {self.world_size} ranks"
            )
        return data, _empty_like(data, (shape[0] // self.world_size, *shape[1:]))

    def all_gather_object(self, value: Any) -> list[Any]:
        """Anything that can be pickled, from all ranks in rank order."""
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self.all_gather(np.array(own.size, np.int64))
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: own.size] = own
        return [pickle.loads(row[:size].tobytes()) for row, size in zip(self.all_gather(padded), sizes)]

    def broadcast_object(self, value: Any = None, src: int = 0) -> Any:
        """Rank src's value, anything that can be pickled."""
        mine = self.rank == whole("[broadcast_object] src", src)
        data = np.frombuffer(pickle.dumps(value), np.uint8).copy() if mine else np.empty(0, np.uint8)
        size = np.array(data.size, np.int64)
        self.broadcast(size, src)
        if not mine:
            data = np.empty(int(size), np.uint8)
        self.broadcast(data, src)
        return value if mine else pickle.loads(data.tobytes())

    # ---- while the caller goes on ----
    #
    # Each is made by a thread of the group, in the order of the calls; later collectives of either kind come after it.

    def barrier_async(self) -> Work[None]:
        """barrier; wait() returns once every rank has come to it."""
        return Work(self._group.barrier_async(), _nothing)

    def all_reduce_async(self, array: Any, op: str = "sum") -> Work[None]:
        """all_reduce of one array."""
        places = _InPlace("all_reduce", [array])
        return Work(self._group.all_reduce_async(places.places[0], op), places.finish)

    def broadcast_async(self, array: Any, src: int = 0) -> Work[None]:
        """broadcast of one array."""
        places = _InPlace("broadcast", [array])
        return Work(self._group.broadcast_async(places.places[0], whole("[broadcast] src", src)), places.finish)

    def scatter_async(self, part: Any, data: Any = None, src: int = 0) -> Work[None]:
        """scatter."""
        places, given, src = self._scattered(part, data, src)
        return Work(self._group.scatter_async(given, places.places[0], src), places.finish)

    def all_gather_async(self, array: Any) -> Work[Any]:
        """all_gather; wait() gives the array."""
        part, data = self._gathered("all_gather", array)
        return Work(self._group.all_gather_async(part, data), lambda: data)

    def gather_async(self, array: Any, dst: int = 0) -> Work[Any]:
        """gather; wait() gives the array on rank dst, None elsewhere."""
        dst = whole("[gather] dst", dst)
        part, data = self._gathered("gather", array, self.rank == dst)
        return Work(self._group.gather_async(part, data, dst), lambda: data)

    def reduce_scatter_async(self, array: Any, op: str = "sum") -> Work[Any]:
        """reduce_scatter; wait() gives this rank's rows."""
        data, part = self._parted(array)
        return Work(self._group.reduce_scatter_async(data, part, op), lambda: part)

    def split(self, color: int, key: int = 0) -> Optional[ProcessGroup]:
        """The group of the ranks that give the same color, ordered by key, then rank; None for a color below 0. Every rank
        calls it."""
        part = self._group.split(whole("[split] color", color), whole("[split] key", key))
        return None if part is None else ProcessGroup(part)


def check_group(function: str, group: Any) -> ProcessGroup:
    """Raises TypeError for what is none."""
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"[{function}] the group is of type {type(group).__name__}; it must be a ProcessGroup")
    return group


def all_reduce_mean(arrays: Any, group: ProcessGroup) -> None:
    """group.all_reduce_mean(arrays)."""
    check_group("all_reduce_mean", group).all_reduce_mean(arrays)


def init_process_group() -> ProcessGroup:
    """The group of a program that `everyo launch -n N -- python program.py` started; otherwise a group of one. Once."""
    return ProcessGroup(_core.init_process_group())

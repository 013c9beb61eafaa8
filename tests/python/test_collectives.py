"""What ranks exchange: arrays of every dtype, tensors, objects."""

import os

import numpy as np
import pytest

import everyo as eo
from everyo.distributed import DistributedError, all_reduce_mean, init_process_group, spawn

FLOATS = ["float16", "float32", "float64"]
WHOLE = ["int32", "int64", "uint8"]


def values(rank, dtype, shape=(3, 5)):
    return np.random.default_rng(rank).integers(0, 9, shape).astype(dtype)


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_all_reduce_of_every_dtype(method):
    def worker(group):
        got = {}
        for dtype in FLOATS + WHOLE:
            for op in ["sum", "min", "max"] + ["mean"] * (dtype in FLOATS):
                array = values(group.rank, dtype)
                assert group.all_reduce(array, op) is None
                got[dtype, op] = array
        return got

    results = spawn(worker, 3, start_method=method)
    for (dtype, op), got in results[0].items():
        wide = np.stack([values(r, dtype).astype(np.float64) for r in range(3)])
        # Small whole numbers: sums are exact, and a mean is rounded once.
        assert np.array_equal(got, getattr(wide, op)(axis=0).astype(dtype)) and got.dtype == dtype
        assert all(np.array_equal(got, other[dtype, op]) for other in results)


def test_all_reduce_mean_takes_lists_and_changes_in_place():
    def worker(group):
        rank = group.rank
        strided = np.full((4, 6), float(rank))[:, ::2]
        swapped = np.full(3, float(rank), ">f4")
        arrays = [np.full(2, rank, np.float32), strided, np.array(rank, np.float64), swapped, np.empty((0, 3))]
        tensor, parameter = eo.full((2, 2), rank), eo.Parameter(np.full(3, rank, np.float32))
        all_reduce_mean([*arrays, tensor, parameter], group)
        group.all_reduce_mean([np.zeros(9)])  # another size than before
        return [*arrays, tensor.numpy(), parameter.data]

    for result in spawn(worker, 2):
        assert all(np.all(np.asarray(each) == 0.5) for each in result)
        assert result[3].dtype == ">f4"


def test_large_arrays_and_many_small_ones():
    def worker(group):
        large = np.arange(700_000, dtype=np.float32) * (group.rank + 1)
        small = [np.full(3, i + group.rank, np.float32) for i in range(50)]
        group.all_reduce([large, *small])
        return bool(np.all(large == np.arange(700_000, dtype=np.float32) * 3)) and [s[0] for s in small]

    assert spawn(worker, 2) == [[2 * i + 1 for i in range(50)]] * 2


def test_arrays_of_any_order_are_changed_in_place():
    orders = {
        "transposed": lambda a: a.T,
        "stepped": lambda a: a[::2, ::-1],
        "of the other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
        "unaligned": lambda a: np.frombuffer(bytearray(b"1" + a.tobytes()), np.uint8)[1:].view(a.dtype),
    }

    def worker(group):
        wrong = []
        for name, order in orders.items():
            values = order(np.arange(60, dtype=np.float32).reshape(4, 15) * (group.rank + 1))
            group.all_reduce(values)
            if not np.array_equal(values, order(np.arange(60, dtype=np.float32).reshape(4, 15) * 3)):
                wrong.append(name)
        return wrong

    assert spawn(worker, 2) == [[], []]


@pytest.mark.parametrize("method", ["fork", "thread"])
@pytest.mark.parametrize("name", ["broadcast", "all_gather", "gather", "scatter", "send", "broadcast_async", "scatter_async"])
def test_ranks_give_one_dtype(method, name):
    def worker(group):
        array = np.ones(4, "float32" if group.rank == 0 else "int32")
        calls = {
            "broadcast": lambda: group.broadcast(array),
            "all_gather": lambda: group.all_gather(array),
            "gather": lambda: group.gather(array),
            "scatter": lambda: group.scatter(array, np.ones((2, 4), array.dtype) if group.rank == 0 else None),
            "send": lambda: group.receive(array, 1) if group.rank == 0 else group.send(array, 0),
            "broadcast_async": lambda: group.broadcast_async(array).wait(),
            "scatter_async": lambda: group.scatter_async(array, np.ones((2, 4), array.dtype) if group.rank == 0 else None).wait(),
        }
        calls[name]()
        group.barrier()

    with pytest.raises(DistributedError, match="elements of (int32|float32).*the same order with the same sizes and dtypes"):
        spawn(worker, 2, start_method=method)


def test_what_cannot_be_written_is_refused():
    group = init_process_group()
    frozen = np.ones(3)
    frozen.flags.writeable = False
    for call in (group.all_reduce, group.broadcast, lambda a: group.receive(a, 0), group.scatter, group.all_reduce_async):
        with pytest.raises(ValueError, match="read-only"):
            call(frozen)
    for wrong in ([1.0, 2.0], 3.0, "text", [[1.0]]):
        with pytest.raises(TypeError, match="give a"):
            group.all_reduce(wrong)
    with pytest.raises(eo.EveryODTypeError, match="int16"):
        group.broadcast(np.ones(3, np.int16))
    with pytest.raises(eo.EveryODTypeError):
        group.all_reduce_mean(np.ones(3, np.int64))
    with pytest.raises(ValueError, match='"sum", "mean", "min" or "max"'):
        group.all_reduce(np.ones(3), "product")


def test_broadcast_in_place():
    def worker(group):
        one, two, flag = np.full(3, group.rank), eo.full((2,), group.rank, dtype="float16"), np.array(group.rank == 2)
        group.broadcast([one, two, flag], src=2)
        group.broadcast(alone := np.full(2, float(group.rank)))
        return one, two.numpy(), bool(flag), alone

    for one, two, flag, alone in spawn(worker, 3):
        assert np.all(one == 2) and np.all(two == 2) and flag and np.all(alone == 0)


def test_gathering_and_scattering():
    def worker(group):
        rank = group.rank
        own = np.full((2, 2), rank, np.int64)
        part = np.zeros(2)
        group.scatter(part, np.arange(6.0).reshape(3, 2) if rank == 1 else None, src=1)
        tensor = group.all_gather(eo.full((2,), rank))
        reduced = group.reduce_scatter(np.arange(6.0) * (rank + 1))
        return group.all_gather(own), group.gather(own[:, ::2], dst=2), part, tensor.numpy(), reduced

    for rank, (all_of, gathered, part, tensor, reduced) in enumerate(spawn(worker, 3)):
        assert all_of.shape == (3, 2, 2) and [a[0, 0] for a in all_of] == [0, 1, 2]
        assert (gathered is None) == (rank != 2)
        if gathered is not None:
            assert gathered.shape == (3, 2, 1) and gathered[:, 0, 0].tolist() == [0, 1, 2]
        assert part.tolist() == [2.0 * rank, 2.0 * rank + 1]
        assert tensor.tolist() == [[0, 0], [1, 1], [2, 2]]
        assert reduced.tolist() == [12.0 * rank, 12.0 * rank + 6]


def test_shapes_that_do_not_fit_are_refused_before_anything_is_sent():
    def worker(group):
        with pytest.raises(eo.EveryOShapeError, match="multiple of the 2 ranks"):
            group.reduce_scatter(np.ones(3))
        if group.rank == 0:
            with pytest.raises(eo.EveryOShapeError, match="one part a rank"):
                group.scatter(np.ones(3), np.ones(6))
            with pytest.raises(ValueError, match="gives no data"):
                group.scatter(np.ones(3))
        for call in (group.send, group.receive):
            with pytest.raises(DistributedError, match="rank must be another"):
                call(np.ones(2), group.rank)
        with pytest.raises((DistributedError, ValueError), match="rank"):
            group.broadcast(np.ones(2), src=2)
        group.barrier()
        return True

    assert spawn(worker, 2) == [True, True]


@pytest.mark.parametrize("size", [3, 200_000])  # a long message waits for its receiver
def test_send_and_receive(size):
    def worker(group):
        array = np.full(size, float(group.rank))
        if group.rank == 0:
            group.send(array, 1)
        else:
            group.receive(array, 0)
        return bool(np.all(array == 0))

    assert spawn(worker, 2) == [True, True]


def test_async_exchanges_come_in_order():
    def worker(group):
        one, two = np.full(100_000, group.rank + 1.0, np.float32), np.full((4, 4), float(group.rank))[:, ::2]
        own = np.full(1, group.rank)
        works = [group.all_reduce_async(one), group.all_reduce_async(two, "mean"), group.all_gather_async(own)]
        group.barrier()
        assert all(work.done() for work in works)
        gathered = works[2].wait()
        assert works[0].wait() is None and works[1].wait() is None and works[1].wait() is None
        flag = np.array(group.rank)
        group.broadcast_async(flag, src=1).wait()
        group.all_reduce_async(np.ones(10_000))  # nobody waits, and nobody holds the array
        group.barrier()
        return one[0], two[0, 0], gathered.tolist(), int(flag)

    assert spawn(worker, 2) == [(3.0, 0.5, [[0], [1]], 1)] * 2


def test_an_async_exchange_raises_where_it_is_waited_for():
    def worker(group):
        work = group.all_reduce_async(np.ones(5 + group.rank))
        with pytest.raises(DistributedError, match="5 elements of float64.*|6 elements of float64"):
            work.wait()
        raise KeyError("seen")

    with pytest.raises(DistributedError, match="KeyError: 'seen'"):
        spawn(worker, 2)


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_a_rank_may_leave_while_exchanges_that_nobody_holds_are_under_way(method):
    def worker(group):
        for _ in range(20):
            group.all_reduce_async(np.ones(300_000, np.float32))
        return "left"

    for _ in range(3):
        assert spawn(worker, 2, start_method=method) == ["left"] * 2


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_split_makes_groups_of_their_own(method):
    def worker(group):
        part = group.split(group.rank % 2 if group.rank < 3 else -1, key=-group.rank)
        if part is None:
            return None
        with part:
            array = np.array(float(group.rank))
            part.all_reduce(array)
            return part.rank, part.world_size, float(array)

    assert spawn(worker, 4, start_method=method) == [(1, 2, 2.0), (0, 1, 1.0), (0, 2, 2.0), None]


def test_objects():
    def worker(group):
        everyone = group.all_gather_object({"rank": group.rank, "text": "x" * (group.rank * 1000)})
        return [len(each["text"]) for each in everyone], group.broadcast_object(("from", group.rank), src=1)

    assert spawn(worker, 3) == [([0, 1000, 2000], ("from", 1))] * 3


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_a_group_that_is_closed_says_so(method):
    kept = []

    def worker(group):
        kept.append(group)
        with group:
            group.barrier()
        group.close()
        with pytest.raises(DistributedError, match="closed"):
            group.barrier()
        return repr(group)

    assert "world_size=2" in spawn(worker, 2, start_method=method)[0]
    for group in kept:
        with pytest.raises(DistributedError, match="closed"):
            group.all_reduce(np.ones(2))


def test_a_group_of_one_changes_nothing():
    with init_process_group() as group:
        array = np.arange(3.0)
        group.all_reduce(array)
        group.broadcast(array)
        group.all_reduce_async(array, "mean").wait()
        group.barrier()
        assert array.tolist() == [0, 1, 2] and group.all_gather(array).shape == (1, 3) and group.is_main
        assert group.split(0).world_size == 1 and group.split(-1) is None
        with pytest.raises(TypeError, match="pickled"):
            group.__reduce__()


def test_a_rank_may_end_the_group():
    def worker(group):
        if group.rank == 1:
            group.abort("the data are wrong")
        group.barrier()

    with pytest.raises(DistributedError, match="the data are wrong"):
        spawn(worker, 2)


@pytest.mark.parametrize("first, second", [(3, 4), (4, 3), (5000, 5001)])
def test_Y06_FirstCollectivesThatDifferInSizeRaiseOnBoth(first, second):
    def worker(group, report):
        with pytest.raises(DistributedError, match=f"{first} elements.*{second} elements|{second} elements.*{first} elements"):
            group.all_reduce(np.ones(second if group.rank else first, np.float32))
        os.write(report, b"x")

    reader, writer = os.pipe()
    spawn(worker, 2, args=(writer,))
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"xx"


@pytest.mark.parametrize("dtype", FLOATS + WHOLE + ["bool"])
def test_Y07_BroadcastGivesTheSourcesBytes(dtype):
    source = np.random.default_rng(1).integers(0, 256, 64, np.uint8)
    source = (source % 2).view(bool) if dtype == "bool" else source.view(dtype)  # every pattern, NaNs too

    def worker(group):
        if group.rank == 0:
            array = source.copy()
        else:
            array = np.full(source.shape, np.inf if dtype in FLOATS else 1).astype(dtype)
        group.broadcast(array, src=0)
        return array.tobytes()

    assert spawn(worker, 3) == [source.tobytes()] * 3

"""What collectives give, blocking and asynchronous: NumPy's values in float64, rounded once, in every dtype."""

import gc
import threading

import numpy as np
import pytest

import everyo as eo
from everyo.distributed import DistributedError, init_process_group, spawn

FLOATS = ["float16", "bfloat16", "float32", "float64"]
WHOLE = ["int32", "int64", "uint8"]
EVERY = [*FLOATS, *WHOLE, "bool"]
FORMS = ["blocking", "async"]
RANKS = 3


def rounded(wide, dtype):
    """float64 values in a dtype's precision, rounded once, to nearest with ties to even."""
    if dtype != "bfloat16":
        return wide.astype(dtype).astype(np.float64)
    mantissa, exponent = np.frexp(wide)
    return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)


def drawn(rank, dtype, shape):
    """A rank's values, as float64: floats of many magnitudes, whose sum depends on where it is rounded."""
    rng = np.random.default_rng(100 + rank)
    if dtype in FLOATS:
        return rounded(rng.standard_normal(shape) * np.exp(rng.uniform(-3, 3, shape)), dtype)
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(np.float64)


def tensor(wide, dtype):
    return eo.Tensor(wide, dtype=dtype)


def wide(value):
    return np.asarray(value.numpy()).astype(np.float64)


def call(form, group, name, *args, **options):
    if form == "async":
        return getattr(group, f"{name}_async")(*args, **options).wait()
    return getattr(group, name)(*args, **options)


def in_rank_order(dtype, op, shape):
    parts = [drawn(r, dtype, shape) for r in range(RANKS)]
    if op in ("min", "max"):
        return getattr(np.stack(parts), op)(axis=0)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    if dtype == "uint8":
        total = total % 256
    return rounded(total / (RANKS if op == "mean" else 1), dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", EVERY)
def test_reductions_are_made_in_float64_and_rounded_once(dtype, form):
    ops = ["min", "max"] + ["sum"] * (dtype != "bool") + ["mean"] * (dtype in FLOATS)
    shape = (3, 401)

    def worker(group):
        got = {}
        for op in ops:
            value = tensor(drawn(group.rank, dtype, shape), dtype)
            assert call(form, group, "all_reduce", value, op) is None and value.dtype == dtype
            part = call(form, group, "reduce_scatter", tensor(drawn(group.rank, dtype, shape), dtype), op)
            assert part.dtype == dtype and part.shape == (1, 401)
            got[op] = wide(value), wide(part)
        return got

    for rank, got in enumerate(spawn(worker, RANKS)):
        for op in ops:
            right = in_rank_order(dtype, op, shape)
            assert np.array_equal(got[op][0], right), op
            assert np.array_equal(got[op][1], right[rank : rank + 1]), op


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", EVERY)
def test_copies_keep_every_bit(dtype, form):
    shape = (2, 5)

    def worker(group):
        rank = group.rank
        own = tensor(drawn(rank, dtype, shape), dtype)
        all_of = call(form, group, "all_gather", own)
        gathered = call(form, group, "gather", own, dst=1)
        part = tensor(np.zeros(shape), dtype)
        data = tensor(np.stack([drawn(10 + r, dtype, shape) for r in range(RANKS)]), dtype)
        assert call(form, group, "scatter", part, data if rank == 2 else None, src=2) is None
        assert call(form, group, "broadcast", own, src=1) is None
        assert all_of.dtype == own.dtype == dtype and (gathered is None) == (rank != 1)
        return wide(all_of), None if gathered is None else wide(gathered), wide(part), wide(own)

    right = np.stack([drawn(r, dtype, shape) for r in range(RANKS)])
    for rank, (all_of, gathered, part, own) in enumerate(spawn(worker, RANKS)):
        assert np.array_equal(all_of, right) and np.array_equal(own, right[1])
        assert rank != 1 or np.array_equal(gathered, right)
        assert np.array_equal(part, drawn(10 + rank, dtype, shape))


def test_an_array_in_another_order_is_written_when_it_is_waited_for():
    def worker(group):
        strided, swapped = np.zeros((2, 6))[:, ::2], np.zeros((2, 3), ">f8")
        data = np.arange(12.0).reshape(2, 2, 3)
        works = [group.scatter_async(a, data if group.rank == 0 else None) for a in (strided, swapped)]
        gathered = group.gather_async(np.asfortranarray(np.full((2, 3), group.rank)), dst=1)
        for work in works:
            work.wait()
        return strided, swapped, gathered.wait()

    for rank, (strided, swapped, gathered) in enumerate(spawn(worker, 2)):
        right = np.arange(12.0).reshape(2, 2, 3)[rank]
        assert np.array_equal(strided, right) and np.array_equal(swapped, right)
        assert gathered is None if rank == 0 else gathered[:, 0, 0].tolist() == [0, 1]


def every_form(group):
    """One asynchronous call of each collective, and what wait() gives."""
    rank, n = group.rank, group.world_size
    reduced, copied, part = np.full(9000, rank + 1.0), np.full(7, rank), np.zeros(2)
    works = [
        group.barrier_async(),
        group.all_reduce_async(reduced),
        group.broadcast_async(copied, src=n - 1),
        group.scatter_async(part, np.arange(2.0 * n).reshape(n, 2) if rank == 0 else None),
        group.all_gather_async(np.array(rank)),
        group.gather_async(np.array(rank), dst=n - 1),
        group.reduce_scatter_async(np.arange(float(n))),
    ]

    def check(results):
        everyone = list(range(n))
        assert [r is None for r in results] == [True] * 4 + [False, rank != n - 1, False]
        assert np.all(reduced == n * (n + 1) / 2) and np.all(copied == n - 1)
        assert part.tolist() == [2.0 * rank, 2.0 * rank + 1]
        assert results[4].tolist() == everyone and (rank != n - 1 or results[5].tolist() == everyone)
        assert results[6].tolist() == [rank * float(n)]

    return works, check


@pytest.mark.parametrize("method", ["fork", "thread"])
@pytest.mark.parametrize("backwards", [False, True])
def test_works_may_be_waited_for_in_any_order(method, backwards):
    def worker(group):
        works, check = every_form(group)
        results = [None] * len(works)
        for i in reversed(range(len(works))) if backwards else range(len(works)):
            results[i] = works[i].wait()
        assert all(work.done() for work in works)
        check(results)
        check([work.wait() for work in works])  # again: the same
        return True

    assert spawn(worker, 3, start_method=method) == [True] * 3


def test_works_of_a_group_of_one():
    with init_process_group() as group:
        works, check = every_form(group)
        check([work.wait() for work in works])


def test_a_blocking_call_comes_after_those_under_way():
    def worker(group):
        works, check = every_form(group)
        group.barrier()
        assert all(work.done() for work in works)
        check([work.wait() for work in works])
        return True

    assert spawn(worker, 2) == [True, True]


def test_a_rank_goes_on_beside_its_barrier():
    went_on = threading.Event()

    def worker(group):
        if group.rank == 1:
            assert went_on.wait(60)
            group.barrier()
            return None
        work = group.barrier_async()
        assert not work.done()  # rank 1 has not called it
        went_on.set()
        return work.wait()

    assert spawn(worker, 2, start_method="thread") == [None, None]


def test_work_that_nobody_holds_goes_on():
    def worker(group):
        for _ in range(20):
            every_form(group)  # arrays, tensors and works are dropped at once
        gc.collect()
        part = group.reduce_scatter(np.full(2, group.rank + 1.0))
        works, check = every_form(group)
        check([work.wait() for work in works])
        return part.tolist()

    assert spawn(worker, 2) == [[3.0], [3.0]]


FAILING = {
    "all_reduce": lambda group, n: group.all_reduce_async(np.ones(n)),
    "broadcast": lambda group, n: group.broadcast_async(np.ones(n)),
    "all_gather": lambda group, n: group.all_gather_async(np.ones(n)),
    "reduce_scatter": lambda group, n: group.reduce_scatter_async(np.ones(2 * n)),
    "gather": lambda group, n: group.gather_async(np.ones(n)),
    "scatter": lambda group, n: group.scatter_async(np.ones(n), np.ones((2, n)) if group.rank == 0 else None),
}


@pytest.mark.parametrize("name", FAILING)
def test_an_error_is_raised_by_each_wait(name):
    def worker(group):
        work, after = FAILING[name](group, 5 + group.rank), group.barrier_async()
        messages = []
        for each in (work, work, after):
            try:
                each.wait()
                messages.append("nothing")  # a sender may be done before its receiver looks
            except DistributedError as error:
                messages.append(str(error))
        with pytest.raises(DistributedError, match=name):
            group.barrier()
        return messages

    results = spawn(worker, 2)
    for messages in results:
        assert messages[0] == messages[1] and name in messages[2]
    assert any(name in messages[0] for messages in results)


def test_every_thread_that_waits_sees_the_error():
    def worker(group):
        work, seen = group.reduce_scatter_async(np.ones(2 + 2 * group.rank)), []

        def wait():
            try:
                work.wait()
            except DistributedError:
                seen.append(True)

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(seen)

    assert spawn(worker, 2) == [8, 8]


def test_what_does_not_fit_is_refused_where_it_is_called():
    def worker(group):
        frozen = np.ones(3)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            group.scatter_async(frozen)
        with pytest.raises(eo.EveryOShapeError, match="multiple of the 2 ranks"):
            group.reduce_scatter_async(np.ones(3))
        with pytest.raises(ValueError, match='"sum", "mean", "min" or "max"'):
            group.reduce_scatter_async(np.ones(4), "product")
        with pytest.raises(eo.EveryODTypeError):
            group.reduce_scatter_async(np.ones(4, np.int64), "mean")
        for name, args in (("gather", ()), ("scatter", (np.ones((2, 3)),))):
            with pytest.raises((DistributedError, ValueError), match="rank"):
                getattr(group, f"{name}_async")(np.ones(3), *args, 2)
        if group.rank == 0:
            with pytest.raises(ValueError, match="gives no data"):
                group.scatter_async(np.ones(3))
        group.barrier_async().wait()
        return True

    assert spawn(worker, 2) == [True, True]

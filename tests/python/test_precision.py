"""Autocast and the scaler of losses."""

import copy
import logging
import pickle
import threading

import numpy as np
import pytest

import everyo as eo
from everyo import _core
from everyo.core import autocast as module


def product_dtype():
    x = eo.ones(2, 2)
    return (x @ x).dtype


def test_autocast_is_a_scope_and_a_decorator():
    assert not eo.is_autocast_enabled() and product_dtype() == "float32"
    low = eo.autocast()
    with low:
        assert eo.is_autocast_enabled() and product_dtype() == "float16" and eo.autocast_dtype() == np.float16
        with eo.autocast(dtype="bfloat16"):
            assert product_dtype() == "bfloat16" and eo.autocast_dtype() == "bfloat16"
            with eo.autocast(False), low:
                assert product_dtype() == "float16"
        with eo.autocast(enabled=False):
            assert product_dtype() == "float32"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(product_dtype()))
        thread.start()
        thread.join()
        assert seen == ["float32"]
    with pytest.raises(ZeroDivisionError), low:
        raise ZeroDivisionError
    assert product_dtype() == "float32"

    @eo.autocast(dtype=np.float16)
    def inside(depth):
        return inside(depth - 1) if depth else product_dtype()

    assert inside(3) == "float16" and inside.__name__ == "inside" and not eo.is_autocast_enabled()
    assert module.AUTOCAST_OPS == {"matmul", "conv2d"}


def test_a_decorated_generator_keeps_autocast_while_it_runs():
    @eo.autocast()
    def twice():
        yield product_dtype()
        yield product_dtype()

    running = twice()
    assert next(running) == "float16" and product_dtype() == "float32" and next(running) == "float16"


def test_threads_may_call_one_decorated_function():
    meet = threading.Barrier(2, timeout=60)

    @eo.autocast()
    def inside():
        meet.wait()  # both are inside
        return product_dtype()

    def call(seen, outside):
        with eo.autocast(dtype=outside):
            seen.append(inside())
            meet.wait()
            seen.append(product_dtype())

    seen = {dtype: [] for dtype in ("bfloat16", "float16")}
    threads = [threading.Thread(target=call, args=(values, dtype)) for dtype, values in seen.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"bfloat16": ["float16", "bfloat16"], "float16": ["float16", "float16"]}


@pytest.mark.parametrize("scope", [eo.autocast(), eo.no_grad()], ids=["autocast", "no_grad"])
def test_threads_may_enter_one_scope(scope):
    meet = threading.Barrier(2, timeout=60)

    def modes():
        return eo.is_autocast_enabled(), str(eo.autocast_dtype()), eo.core.autograd.is_grad_enabled()

    def enter(outside, seen, first):  # enters first, and leaves first
        with outside:
            before = modes()
            if not first:
                meet.wait()
            with scope:
                if first:
                    meet.wait()
                meet.wait()  # both are inside, each entered from modes of its own
                if not first:
                    meet.wait()
            seen.append(modes() == before)
            if first:
                meet.wait()

    seen = []
    outsides = (eo.autocast(dtype="bfloat16"), eo.no_grad())
    threads = [threading.Thread(target=enter, args=(outside, seen, i == 0)) for i, outside in enumerate(outsides)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True, True] and modes() == (False, "float16", True)


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_autocast_needs_a_floating_half(dtype):
    with pytest.raises(eo.EveryOError, match="floating"):
        eo.autocast(dtype=dtype)


def test_autocast_takes_no_dtype_for_enabled():
    for wrong in ("bfloat16", np.float16):
        with pytest.raises(TypeError, match="dtype="):
            eo.autocast(wrong)
    with pytest.raises(TypeError, match="dtype is None"):
        eo.autocast(dtype=None)


def test_weights_and_their_gradients_stay_float32():
    net = eo.nn.Sequential(eo.nn.Linear(8, 4), eo.nn.ReLU(), eo.nn.Linear(4, 1))
    with eo.autocast():
        y = net(eo.ones(3, 8))
        loss = eo.mean(y)
    assert (y.dtype, loss.dtype) == ("float16", "float32")
    loss.backward()
    assert all(p.dtype == "float32" and p.grad.dtype == np.float32 for p in net.parameters())


def test_a_report_says_what_ran_in_which_dtype():
    net = eo.nn.Sequential(eo.nn.Linear(8, 4), eo.nn.ReLU(), eo.nn.Linear(4, 1))

    def run(x, *, dtype):
        with eo.autocast(dtype=dtype):
            return eo.mean(net(x)), eo.mean(net(x))

    report = eo.precision_report(run, eo.ones(3, 8), dtype="bfloat16")
    products = [row for row in report if row.policy == "low"]
    assert [row.module for row in products] == ["0", "2"]
    assert all(row.operands == ("bfloat16",) * 3 and row.results == ("bfloat16",) and row.calls == 2 for row in products)
    assert report[-1] == ("", "mean", "keep32", ("float32",), ("float32",), 2)
    assert str(report).splitlines()[0].split() == ["module", "op", "policy", "operands", "results", "calls"]
    assert not [row for row in eo.precision_report(net, eo.ones(3, 8)) if "float16" in row.results]
    with pytest.raises(ZeroDivisionError):
        eo.precision_report(lambda: 1 / 0)
    with pytest.raises(TypeError):
        eo.precision_report(3)


def test_the_list_of_ops_is_that_of_the_library():
    built_of_them = {"linear", "linear_activation", "conv2d_relu"}
    assert set(_core.autocast_ops()) == module.AUTOCAST_OPS | built_of_them


def test_a_backward_inside_is_right_and_warns_once(caplog):
    w = eo.Tensor([[2.0]], requires_grad=True)

    def inside():
        for _ in range(3):
            with eo.autocast():
                w.grad = None
                (eo.ones(1, 1) @ w).sum().backward()

    thread = threading.Thread(target=inside)  # one that has not warned yet
    with caplog.at_level(logging.WARNING, logger="everyo"):
        thread.start()
        thread.join()
        for _ in range(1000):  # the main thread says it, soon
            if caplog.records:
                break
    assert w.grad.tolist() == [[1]]
    assert ["within autocast" in record.getMessage() for record in caplog.records] == [True]
    assert caplog.records[0].levelname == "WARNING"


def line(slope):
    w = eo.Tensor([1.0, 1.0], requires_grad=True)
    return w, eo.optim.SGD([w], lr=0.5), lambda: (w * slope).sum()


def test_a_scaled_step_is_the_plain_one():
    w, optimizer, loss = line(1.0)
    scaler = eo.GradScaler(2.0**10, growth_interval=1)
    scaler.backward(loss())
    with pytest.raises(eo.EveryOError, match="unscale"):
        eo.optim.clip_grad_norm([w], 1.0)
    with pytest.raises(eo.EveryOError, match="unscale"):
        optimizer.step()
    assert scaler.unscale_(optimizer)
    assert w.grad.tolist() == [1, 1]
    with pytest.raises(eo.EveryOError, match="update"):
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer) and w.tolist() == [0.5, 0.5]
    with pytest.raises(eo.EveryOError, match="update"):
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2**11 and (scaler.applied_steps, scaler.skipped_steps) == (1, 0)
    scaler.update(4)
    assert scaler.get_scale() == 4


def test_Y02_UnscaleClipAndStepDivideOnce():
    w, optimizer, loss = line(4.0)
    scaler = eo.GradScaler(2.0**8)
    scaler.backward(loss())
    assert w.grad.tolist() == [4 * 2**8] * 2
    assert scaler.unscale_(optimizer) and w.grad.tolist() == [4, 4]
    assert eo.clip_grad_norm([w], 100.0) == pytest.approx(4 * 2**0.5)
    assert scaler.step(optimizer) and w.grad.tolist() == [4, 4] and w.tolist() == [-1, -1]


def test_Y03_ReductionsOfHalvesAreFloat32():
    ones = eo.ones(70000, dtype="float16")
    with eo.autocast():
        for value in (ones.sum(), eo.mean(ones), eo.exp(ones), eo.softmax(ones)):
            assert value.dtype == "float32"
        assert ones.sum().item() == 70000


def test_a_step_that_overflows_is_left_out():
    w, optimizer, loss = line(float("inf"))
    w.name = "w"
    scaler = eo.GradScaler(8, most_skips=4)
    for scale in (4, 2, 1):
        optimizer.zero_grad()
        scaler.backward(loss())
        assert not scaler.step(optimizer) and w.tolist() == [1, 1]
        scaler.update()
        assert scaler.get_scale() == scale
    optimizer.zero_grad()
    scaler.backward(loss())
    assert not scaler.step(optimizer)
    with pytest.raises(eo.EveryOError, match="4 steps in a row"):
        scaler.update()
    assert scaler.get_scale() == 1 and scaler.skipped_steps == 4 and optimizer.step_count == 0


def test_a_disabled_scaler_does_nothing():
    w, optimizer, loss = line(1.0)
    scaler = eo.GradScaler(enabled=False)
    value = loss()
    assert scaler.scale(value) is value and scaler.get_scale() == 1.0
    scaler.backward(value)
    assert scaler.step(optimizer) and w.tolist() == [0.5, 0.5]
    scaler.update()


def test_an_optimizer_of_ones_own_is_scaled_too():
    class Mine(eo.optim.Optimizer):
        def step(self):
            for parameter in self.parameters:
                parameter.data[:] -= parameter.grad
            self.step_count += 1

    w, _, loss = line(0.25)
    optimizer = Mine([w], lr=1.0)
    scaler = eo.GradScaler()
    scaler.backward(loss())
    assert scaler.step(optimizer) and w.tolist() == [0.75, 0.75]


def test_a_step_that_an_optimizer_raised_from_is_made_again():
    class Reluctant(eo.optim.Optimizer):
        willing = False

        def step(self):
            if not self.willing:
                raise KeyError("not yet")
            self.step_count += 1

    w, _, loss = line(0.25)
    optimizer = Reluctant([w], lr=1.0)
    scaler = eo.GradScaler()
    scaler.backward(loss())
    with pytest.raises(KeyError, match="not yet"):
        scaler.step(optimizer)
    assert scaler.applied_steps == 0
    optimizer.willing = True
    assert scaler.step(optimizer) and (scaler.applied_steps, optimizer.step_count) == (1, 1)
    np.testing.assert_array_equal(w.grad, [0.25, 0.25])  # unscaled once


def test_what_overflowed_and_was_frozen_since_stops_no_step():
    w, optimizer, loss = line(1.0)
    frozen = eo.tensor([1.0], requires_grad=True)
    optimizer.parameters.append(frozen)
    (frozen * float("inf")).sum().backward()
    frozen.requires_grad = False
    scaler = eo.GradScaler()
    scaler.backward(loss())
    assert scaler.step(optimizer) and w.tolist() == [0.5, 0.5] and frozen.tolist() == [1.0]


def test_state_goes_round_and_wrong_ones_are_refused():
    _, optimizer, loss = line(1.0)
    scaler = eo.GradScaler(16, growth_interval=3)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.backward(loss())
        scaler.step(optimizer)
        scaler.update()
    state = scaler.state_dict()
    assert state == {"scale": 32.0, "good_steps": 1, "skipped_steps": 0, "applied_steps": 4, "skips_in_a_row": 0}
    again = eo.GradScaler()
    again.load_state_dict(state)
    assert again.state_dict() == state
    again.load_state_dict({"scale": 2.0, "good_steps": 1, "skipped_steps": 3, "applied_steps": 4})  # the earlier library's
    assert again.skipped_steps == 3
    for wrong in ({}, {"scale": 0.0}, {"scale": "a"}, {"scale": 2.0, "good_steps": -1}, {"scale": 2.0, "good_steps": "a"}, {"scale": 2.0, "good_steps": 2**70}):
        with pytest.raises(eo.EveryOError):
            again.load_state_dict(wrong)
    assert again.get_scale() == 2


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_go_their_own_way(again):
    _, optimizer, loss = line(1.0)
    scaler = eo.GradScaler(16, growth_interval=1, growth_factor=4.0)
    twin = again(scaler)
    scaler.backward(loss())
    scaler.step(optimizer)
    scaler.update()
    assert (scaler.get_scale(), twin.get_scale(), twin.growth_factor) == (64, 16, 4)
    assert again(scaler).state_dict() == scaler.state_dict()
    with again(eo.autocast(dtype="bfloat16")):
        assert product_dtype() == "bfloat16"
    assert product_dtype() == "float32"


@pytest.mark.parametrize(
    "wrong",
    [{"init_scale": 0.0}, {"init_scale": float("nan")}, {"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"growth_interval": 0}],
)
def test_arguments_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        eo.GradScaler(**wrong)


def test_arguments_of_wrong_kinds():
    with pytest.raises(TypeError, match="init_scale"):
        eo.GradScaler("a")
    with pytest.raises(TypeError, match="Tensor"):
        eo.GradScaler().scale(1.0)
    with pytest.raises(TypeError, match="optimizer"):
        eo.GradScaler().step(3)
    with pytest.raises(TypeError, match="dict"):
        eo.GradScaler().load_state_dict(3)

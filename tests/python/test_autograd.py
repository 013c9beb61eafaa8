"""Gradients: against differences, modes, hooks, the graph and its memory."""

import gc
import threading
import weakref

import numpy as np
import pytest

import everyo as eo
from everyo import _core
from everyo.core import autograd

UNARY = {
    "exp": (eo.exp, -2, 2), "log": (eo.log, 0.5, 3), "sqrt": (eo.sqrt, 0.5, 3), "abs": (eo.abs, 0.5, 3),
    "relu": (eo.relu, 0.5, 3), "sigmoid": (eo.sigmoid, -3, 3), "tanh": (eo.tanh, -2, 2), "gelu": (eo.gelu, -2, 2),
    "silu": (eo.silu, -2, 2), "softmax": (eo.softmax, -2, 2), "log_softmax": (eo.log_softmax, -2, 2),
    "power": (lambda x: eo.power(x, 3), -2, 2), "clip": (lambda x: eo.clip(x, 0, 1), 0.1, 0.9),
    "sum": (lambda x: eo.sum(x, axis=1), -2, 2), "mean": (lambda x: eo.mean(x, axis=0), -2, 2),
    "max": (lambda x: eo.max(x, axis=1), -2, 2), "variance": (eo.variance, -2, 2),
    "transpose": (eo.transpose, -2, 2), "reshape": (lambda x: eo.reshape(x, (4, 3)), -2, 2),
    "take": (lambda x: eo.take(x, [2, 0, 2]), -2, 2), "concatenate": (lambda x: eo.concatenate([x, x * 2]), -2, 2),
    "stack": (lambda x: eo.stack([x, x * x]), -2, 2), "divide": (lambda x: 1 / x + x / 3, 0.5, 3),
    "where": (lambda x: eo.where(x > 0, x * x, x), -2, 2), "matmul": (lambda x: x @ x.T, -2, 2),
    "layer_norm": (lambda x: _core.layer_norm(x, 4), -2, 2), "mixed": (lambda x: x[1:, ::2] * x[0, 1] + x[None, 2, :2], -2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_gradients_by_differences(name):
    function, low, high = UNARY[name]
    rng = np.random.default_rng(3)
    values = rng.uniform(low, high, (3, 4))
    x = eo.Tensor(values.copy(), requires_grad=True)
    y = function(x)
    seed = rng.normal(size=y.shape)
    y.backward(seed)
    step = 1e-6
    for place in np.ndindex(3, 4):
        moved = [values.copy(), values.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        with eo.no_grad():
            ends = [(function(eo.Tensor(v)).numpy() * seed).sum() for v in moved]
        # Central differences in float64: step^2 of the third derivative, and 1e-16 / step of rounding.
        assert np.isclose(x.grad[place], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_what_backward_refuses():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(eo.EveryOGradientError, match="does not require gradients"):
        eo.Tensor(1.0).backward()
    with pytest.raises(eo.EveryOGradientError, match="explicit gradient"):
        (x * 2).backward()
    with pytest.raises(eo.EveryOGradientError, match="shape"):
        (x * 2).backward(np.ones(3))
    with pytest.raises(eo.EveryOGradientError):
        (x * 2).requires_grad = False


def test_the_graph_stays_unless_told_otherwise():
    x = eo.Tensor([3.0], requires_grad=True)
    loss = x * x
    loss.backward()
    loss.backward(retain_graph=False)
    assert x.grad.tolist() == [12]
    with pytest.raises(eo.EveryOGradientError, match="freed"):
        loss.backward()


def test_gradients_are_of_the_tensors_dtype_and_of_leaves_only():
    x = eo.Tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    hidden = x.astype("float32") * 3
    hidden.sum().backward()
    assert x.grad.dtype == np.float16 and hidden.grad is None
    kept = (x * 2).retain_grad()
    assert kept.retains_grad
    loss = (kept * kept).sum()
    loss.backward()
    assert kept.grad.tolist() == [4, 8]
    loss.backward()
    assert kept.grad.tolist() == [8, 16]
    kept.zero_grad()
    assert kept.grad is None


def test_modes_nest_decorate_and_belong_to_the_thread():
    x = eo.Tensor([1.0], requires_grad=True)
    with eo.no_grad():
        assert not autograd.is_grad_enabled() and not (x * 2).requires_grad
        with eo.enable_grad():
            assert (x * 2).requires_grad
        with eo.set_grad_enabled(True), pytest.raises(KeyError):
            with eo.no_grad():
                raise KeyError
        assert not autograd.is_grad_enabled()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(autograd.is_grad_enabled()))
        thread.start()
        thread.join()
        assert seen == [True]
    assert autograd.is_grad_enabled()

    @eo.no_grad()
    def inside(depth):
        return inside(depth - 1) if depth else (x * 2).requires_grad

    assert not inside(3) and autograd.is_grad_enabled() and inside.__name__ == "inside"
    again = eo.no_grad()
    with again, again:
        assert not autograd.is_grad_enabled()
    assert autograd.is_grad_enabled()


def test_the_graph_can_be_looked_at():
    x, w = eo.Tensor([[1.0, 2.0]], requires_grad=True), eo.Tensor([[1.0], [1.0]], requires_grad=True)
    loss = eo.relu(x @ w).sum()
    order = autograd.topological_order(loss)
    assert [node.operation for node in order] == ["sum", "relu", "matmul"]
    assert loss.grad_node == order[0] and order[0].parents == (order[1],)
    assert [parent.shape for parent in order[2].parents] == [(1, 2), (2, 1)]
    assert autograd.topological_order(eo.Tensor(1.0)) == []
    diamond = x * 2
    names = [node.operation for node in autograd.topological_order((diamond + diamond * diamond).sum())]
    assert names == ["sum", "add", "multiply", "multiply"]


def test_ops_have_the_names_of_the_contract():
    x = eo.Tensor([[1.0, 2.0]], requires_grad=True)
    names = {
        "add": x + 1, "subtract": x - x, "multiply": x * 2, "divide": 1 / x, "negative": -x, "power": x**2, "to": x.to(dtype="float64"),
        "slice": x[:, 1:], "reshape": x.flatten(), "transpose": x.T, "concatenate": eo.concatenate([x, x]), "matmul": x @ x.T,
        "binary_cross_entropy_with_logits": _core.binary_cross_entropy_with_logits(x, [[0.0, 1.0]]),
    }  # fmt: skip
    assert {name: tensor.grad_node.operation for name, tensor in names.items()} == {name: name for name in names}


def test_nodes_tell_what_they_were_told():
    x = eo.Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    told = [
        (x**3, {"exponent": 3.0}),
        (x.clip(0, 2), {"low": 0.0, "high": 2.0}),
        (x.sum(), {"axes": None, "keepdims": False}),
        (x.mean(axis=(0, 1), keepdims=True), {"axes": (0, 1), "keepdims": True}),
        (x.max(axis=-1), {"axes": (1,), "keepdims": False}),
        (x.min(), {"axes": None, "keepdims": False}),
        (x.reshape(3, -1), {"shape": (3, 2)}),
        (x.transpose(1, 0), {"axes": (1, 0)}),
        (eo.concatenate([x, x], axis=-1), {"axis": 1}),
        (eo.softmax(x), {"axis": 1}),
        (eo.log_softmax(x, axis=0), {"axis": 0}),
        (x[1], {"key": (1, slice(0, 3, 1))}),
        (x[:, -1], {"key": (slice(0, 2, 1), 2)}),
        (x[::-1, 1:], {"key": (slice(1, None, -1), slice(1, 3, 1))}),
        (x.to(dtype="float64"), {"from": "float32", "to": "float64"}),
        (eo.relu(x), {}),
    ]
    for result, attributes in told:
        assert result.grad_node.attributes == attributes
    # A key that was told gives the same elements again.
    for result in (x[1], x[:, -1], x[::-1, 1:]):
        assert x[result.grad_node.attributes["key"]].tolist() == result.tolist()


def test_subtracting_a_number_is_called_so():
    x = eo.Tensor([1.0], requires_grad=True)
    assert [y.grad_node.operation for y in (x - 2, 2 - x, 2 + x, x * -1, x * 0 + 1)] == [
        "subtract",
        "subtract",
        "add",
        "multiply",
        "add",
    ]


def cube(x):
    node = autograd.Node("cube", (x,), lambda gradient: 3 * x.data**2 * gradient, {"times": 3})
    y = eo.Tensor(x.data**3)
    y.grad_node = node
    return y


def test_a_node_made_in_python_gives_gradients():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    y = cube(x * 2)
    assert not y.is_leaf and y.requires_grad
    node = y.grad_node
    assert (node.operation, node.attributes) == ("cube", {"times": 3})
    assert node.parents[0].operation == "multiply" and callable(node.backward_fn)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, 24 * np.array([1, 4]))  # (8 x^3)' = 24 x^2
    assert cube(eo.Tensor([1.0])).is_leaf  # no parent wants a gradient
    with eo.no_grad():
        assert cube(x).is_leaf


def test_a_node_of_two_parents_may_leave_one_out():
    a, b = eo.Tensor([1.0], requires_grad=True), eo.Tensor([2.0], requires_grad=True)
    y = eo.Tensor([3.0])
    y.grad_node = autograd.Node("first", [a, b], lambda gradient: (gradient, None))
    (y * 5).backward()
    assert a.grad.tolist() == [5] and b.grad is None


def test_a_wrong_node_says_so():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match="cannot be called"):
        autograd.Node("f", (x,), 3)
    with pytest.raises(TypeError, match="tensors"):
        autograd.Node("f", (1.0,), abs)
    with pytest.raises(TypeError, match="dict"):
        autograd.Node("f", (x,), abs, 3)
    with pytest.raises(eo.EveryOGradientError, match="new tensor"):
        x.grad_node = autograd.Node("f", (x,), abs)
    with pytest.raises(eo.EveryOGradientError, match="another tensor"):
        eo.Tensor([1.0]).grad_node = (x * 2).grad_node
    with pytest.raises(eo.EveryOGradientError, match="floating point"):
        eo.Tensor([1], dtype="int64").grad_node = autograd.Node("f", (x,), abs)

    def result(backward):
        y = eo.Tensor([1.0])
        y.grad_node = autograd.Node("f", (x,), backward)
        return y

    with pytest.raises(eo.EveryOShapeError, match=r"\[f\].*\(1,\).*\(2,\)"):
        result(lambda gradient: gradient).backward()
    with pytest.raises(eo.EveryOShapeError, match="2 gradients for 1 parents"):
        result(lambda gradient: (gradient, gradient)).backward()
    with pytest.raises(ZeroDivisionError):
        result(lambda gradient: 1 / 0).backward()
    assert x.grad is None


def test_a_node_made_in_python_goes_with_its_tensor():
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    x = eo.Tensor([1.0], requires_grad=True)
    y = eo.Tensor([1.0])
    y.grad_node = autograd.Node("f", (x,), lambda gradient, held=held: gradient)
    del held
    y.backward()
    assert gone() is not None
    del y
    assert gone() is None


def test_unbroadcast():
    assert autograd.unbroadcast(np.ones((2, 3, 4), np.float32), (3, 1)).tolist() == [[8], [8], [8]]
    assert autograd.unbroadcast(np.ones((2, 3), np.float32), ()).tolist() == 6


def test_hooks_are_called_while_backward_runs():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    seen = []
    number = _core.on_gradient_ready(x, lambda leaf: seen.append(leaf.grad.tolist()))
    (x * 3).sum().backward()
    _core.remove_ready_hook(x, number)
    (x * 3).sum().backward()
    assert seen == [[3, 3]]

    def fails(leaf):
        raise KeyError("from the hook")

    _core.on_gradient_ready(x, fails)
    with pytest.raises(KeyError, match="from the hook"):
        (x * 3).sum().backward()


def test_threads_run_backward_side_by_side():
    failures = []

    def train(seed):
        w = eo.randn(64, 64, seed=seed, requires_grad=True)
        x = eo.randn(64, 64, seed=seed + 100)
        expected = None
        for _ in range(20):
            w.zero_grad()
            ((x @ w) ** 2).mean().backward()
            if expected is None:
                expected = w.grad.copy()
            if not np.array_equal(w.grad, expected):
                failures.append(seed)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_tape_never_outlives_its_loss():
    x = eo.Tensor(np.ones((64, 64), np.float32), requires_grad=True)

    def used():
        return _core.memory_report()["total"]["now"]

    (eo.tanh(x) * x).sum().backward()
    gc.collect()
    before = used()
    loss = (eo.tanh(x) * eo.exp(x)).sum()
    loss.backward()
    assert used() >= before + 2 * x.size * 4 and _core.saved_bytes(loss) > 0
    del loss
    gc.collect()
    assert used() == before


def test_many_steps_need_no_more_memory():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 16)).astype(np.float32), rng.integers(0, 4, 8)
    w = eo.uniform((16, 4), -0.1, 0.1, seed=0, requires_grad=True)
    optimizer = _core.Adam([w], lr=1e-3)

    def step():
        loss = eo.nn.cross_entropy(eo.relu(eo.Tensor(x) @ w), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(100):
        step()
    before = _core.memory_report()
    for _ in range(2000):
        step()
    after = _core.memory_report()
    assert after["total"]["now"] == before["total"]["now"]
    assert after["system_allocations"] == before["system_allocations"]


@pytest.mark.parametrize("mode", [eo.no_grad, eo.enable_grad, lambda: eo.set_grad_enabled(False)])
def test_a_mode_holds_while_a_generator_runs(mode):
    seen = []

    @mode()
    def numbers(count):
        """Some numbers."""
        seen.append(autograd.is_grad_enabled())
        try:
            for i in range(count):
                sent = yield i
                seen.append((sent, autograd.is_grad_enabled()))
        except KeyError:
            yield "caught"
        finally:
            seen.append(autograd.is_grad_enabled())
        return "end"

    inside = mode is eo.enable_grad
    with eo.set_grad_enabled(not inside):
        running = numbers(2)
        assert numbers.__doc__ == "Some numbers." and next(running) == 0 and autograd.is_grad_enabled() != inside
        assert running.send("x") == 1 and autograd.is_grad_enabled() != inside
        with pytest.raises(StopIteration, match="end"):
            next(running)
        assert seen == [inside, ("x", inside), (None, inside), inside]
        thrown = numbers(2)
        next(thrown)
        assert thrown.throw(KeyError()) == "caught" and autograd.is_grad_enabled() != inside
        thrown.close()
        assert autograd.is_grad_enabled() != inside and seen[-2:] == [inside, inside]
        assert list(numbers(3)) == [0, 1, 2]


def test_modes_refuse_async_functions():
    async def later():
        pass

    async def many():
        yield 1

    for function in (later, many):
        with pytest.raises(TypeError, match="async"):
            eo.no_grad()(function)

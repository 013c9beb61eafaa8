"""Values, broadcasting, dtypes and indices against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import everyo as eo
from everyo import _core

FLOATS = st.floats(-100, 100, width=32)
BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "less": np.less, "equal": np.equal,
}  # fmt: skip


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_binary_ops_broadcast_as_numpy(data):
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4))
    a, b = (data.draw(hnp.arrays(np.float32, shape, elements=FLOATS)) for shape in shapes.input_shapes)
    for name, of_numpy in BINARY.items():
        with np.errstate(all="ignore"):
            expected = of_numpy(a, b)
        # Every op rounds once, as NumPy's does: the same bits.
        assert np.array_equal(getattr(eo, name)(a.copy(), b.copy()).numpy(), expected, equal_nan=True), name


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=FLOATS), st.data())
@settings(max_examples=60, deadline=None)
def test_reductions_as_numpy(array, data):
    axes = data.draw(st.one_of(st.none(), hnp.valid_tuple_axes(array.ndim, min_size=1)))
    keep = data.draw(st.booleans())
    wide = array.astype(np.float64)
    for name, of_numpy in {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "variance": np.var}.items():
        got = getattr(eo, name)(array.copy(), axis=axes, keepdims=keep).numpy()
        expected = of_numpy(wide, axis=axes, keepdims=keep)
        # At most 64 elements of size 100: a few float32 roundings of squares up to 10^4.
        assert got.shape == np.shape(expected) and np.allclose(got, expected, rtol=1e-5, atol=2e-2), name


INDICES = hnp.basic_indices((3, 4, 2), allow_newaxis=True, allow_ellipsis=True, max_dims=6)


@given(INDICES)
@settings(max_examples=200, deadline=None)
def test_basic_indices_as_numpy(key):
    array = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    assert np.array_equal(eo.Tensor(array.copy())[key].numpy(), array[key])


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_integer_arrays_as_numpy(data):
    array = np.arange(120, dtype=np.float32).reshape(3, 4, 2, 5)
    shape = data.draw(hnp.array_shapes(max_dims=2, max_side=3))
    key = tuple(
        data.draw(
            st.one_of(
                st.just(slice(None)),
                st.integers(-size, size - 1),
                hnp.arrays(np.int64, shape, elements=st.integers(-size, size - 1)),
            )
        )
        for size in array.shape
    )
    assert np.array_equal(eo.Tensor(array.copy())[key].numpy(), array[key])


def test_masks():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = eo.Tensor(array.copy())
    for mask in (array > 5, np.array([True, False, True]), (slice(None), np.array([True, False, True, True]))):
        assert np.array_equal(tensor[mask].numpy(), array[mask])

    assert tensor[eo.Tensor([2, 0], dtype="int64")].tolist() == array[[2, 0]].tolist()


def test_Y05_ABoolTensorIsAMask():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = eo.Tensor(array.copy())
    assert np.array_equal(tensor[tensor > 5].numpy(), array[array > 5])
    assert np.array_equal(tensor[eo.Tensor([True, False, True])].numpy(), array[[0, 2]])


@pytest.mark.parametrize("key", [3, -4, (0, 4), (0, 0, 0), ([3],), (np.array([True]),), ([0.5],), (..., ...)])
def test_bad_indices_are_refused(key):
    with pytest.raises(eo.EveryOShapeError):
        eo.zeros(3, 4)[key]


def test_indexing_is_differentiable():
    rng = np.random.default_rng(0)
    for key in (0, (slice(1, 3), 2), ([0, 0, 2], slice(None)), ([0, 1], [3, 3]), (None, ..., -1)):
        x = eo.Tensor(rng.normal(size=(3, 4)).astype(np.float32), requires_grad=True)
        picked = x[key]
        seed = rng.normal(size=picked.shape).astype(np.float32)
        picked.backward(seed)
        expected = np.zeros((3, 4), np.float64)
        np.add.at(expected, key, seed)
        assert np.allclose(x.grad, expected, atol=1e-6), key  # two summands at most


def test_Y01_AnArrayOnTheLeftKeepsTheGraph():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    for left in (np.array([3.0, 3.0], np.float32), np.float32(3), np.float64(3), 3, [3.0, 3.0]):
        product = left * x
        assert isinstance(product, eo.Tensor) and product.grad_node is not None
        x.zero_grad()
        product.sum().backward()
        assert x.grad.tolist() == [3, 3] and product.dtype == "float32"
    assert (np.array([1.0, 1.0], np.float32) - x).tolist() == [0, -1]
    assert (np.eye(2, dtype=np.float32) @ x).grad_node is not None
    assert (1 / x).tolist() == [1, 0.5] and (1 - x).tolist() == [0, -1]


def test_Y04_NumbersAreWeak():
    half, whole = eo.Tensor([1.0], dtype="float16"), eo.Tensor([1], dtype="int64")
    for number in (2, 2.5, np.float64(2.5), True):
        assert (half * number).dtype == (number * half).dtype == "float16"
        assert eo.add(half, number).dtype == eo.maximum(half, number).dtype == "float16"
    assert (whole + 1).dtype == "int64" and (1 - whole).dtype == "int64" and (whole * 2.5).dtype == "float32"
    assert eo.where(half > 0, half, 0).dtype == "float16"
    assert (eo.Tensor([True]) + 1).dtype == "int64" and (eo.Tensor([7], dtype="uint8") + 1).dtype == "uint8"


PROMOTION = {
    ("float16", "float32"): "float32", ("float32", "float64"): "float64", ("int64", "float16"): "float16",
    ("int64", "float32"): "float32", ("int32", "int64"): "int64", ("bool", "int32"): "int32",
    ("uint8", "int32"): "int32", ("float16", "bfloat16"): "float32", ("bool", "float16"): "float16",
}  # fmt: skip


@pytest.mark.parametrize("pair, expected", PROMOTION.items())
def test_promotion(pair, expected):
    a, b = (eo.ones(2, dtype=dtype) for dtype in pair)
    assert (a * b).dtype == (b * a).dtype == expected


def test_Y20_ElementwiseOpsAreThere():
    a, b = eo.Tensor([1.0, 5.0], requires_grad=True), eo.Tensor([2.0, 3.0])
    assert eo.where(a > b, a, b).tolist() == eo.maximum(a, b).tolist() == [2, 5]
    assert eo.minimum(a, b).tolist() == [1, 3]
    eo.where(a > b, a, b).sum().backward()
    assert a.grad.tolist() == [0, 1]
    table = eo.Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    assert _core.gather(table, [[2], [0]], axis=1).tolist() == [[3], [4]]
    picked = _core.gather(table, [[0, 0], [-1, 1]], axis=1)
    assert picked.tolist() == np.take_along_axis(table.numpy(), np.array([[0, 0], [-1, 1]]), 1).tolist()
    picked.sum().backward()
    assert table.grad.tolist() == [[2, 0, 0], [0, 1, 1]]


def test_creation():
    assert eo.zeros((2, 3)).shape == eo.ones(2, 3).shape == (2, 3)
    assert eo.full((2,), 7).tolist() == [7, 7] and eo.full(2, 7, dtype="int64").dtype == "int64"
    assert eo.zeros_like(eo.ones(2, dtype="float64")).dtype == "float64"
    assert np.array_equal(eo.arange(5).numpy(), np.arange(5, dtype=np.float32)) and eo.arange(5).dtype == "float32"
    assert np.array_equal(eo.arange(1, 2, 0.25).numpy(), np.arange(1, 2, 0.25, dtype=np.float32))
    assert np.array_equal(eo.linspace(0, 1, 5).numpy(), np.linspace(0, 1, 5, dtype=np.float32))
    assert np.array_equal(eo.eye(2, 3).numpy(), np.eye(2, 3)) and eo.linspace(0, 1).shape == (50,)
    assert eo.one_hot([[0, 2]], 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert eo.ones(2, requires_grad=True).requires_grad


def test_matmul_of_all_ranks():
    rng = np.random.default_rng(1)
    for a, b in [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (6, 3, 2))]:
        x, y = rng.normal(size=a).astype(np.float32), rng.normal(size=b).astype(np.float32)
        # Three products and two sums in float32.
        assert np.allclose((eo.Tensor(x) @ eo.Tensor(y)).numpy(), x @ y, rtol=1e-5, atol=1e-6)
    assert eo.dot([1, 2], [3, 4]).item() == 11


def test_methods_and_functions_agree():
    x = eo.Tensor([[4.0, 1.0], [9.0, 16.0]])
    for name in ("exp", "log", "sqrt", "abs", "sum", "mean", "max", "min", "transpose", "flatten"):
        assert getattr(x, name)().tolist() == getattr(eo, name)(x).tolist(), name
    assert x.clip(2, 10).tolist() == eo.clip(x, 2, 10).tolist() == [[4, 2], [9, 10]]
    assert x.reshape(4).shape == x.reshape((4,)).shape == x.reshape(-1).shape == eo.reshape(x, (4,)).shape == (4,)
    assert x.transpose(1, 0).tolist() == x.T.tolist() == eo.transpose(x, (1, 0)).tolist()
    assert x.matmul(x).tolist() == x.dot(x).tolist() == (x @ x).tolist()
    assert (x**2).tolist() == eo.power(x, 2).tolist() and (-x).tolist() == eo.negative(x).tolist()
    assert x.argmax() == 3 and x.argmin() == 1
    assert x.argmax(axis=0).tolist() == [1, 1] and x.argmin(axis=1).tolist() == [1, 0]
    assert eo.stack([x, x]).shape == (2, 2, 2) and eo.concatenate([x, x], axis=1).shape == (2, 4)

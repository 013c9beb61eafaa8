"""Whole numbers beyond a dtype or beyond 64 bits: never wrapped around."""

import numpy as np
import pytest

import everyo as eo
from everyo import nn

BEYOND = [2**31, -(2**31) - 1, 2**32 + 1, 2**63 - 1, 2**63, 2**64 + 1, -(2**70)]
COMPARISONS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]
FUNCTIONS = [eo.equal, eo.not_equal, eo.less, eo.less_equal, eo.greater, eo.greater_equal]


@pytest.mark.parametrize("number", [*BEYOND, 0, -1, 255, 256, 1.5, float(2**53), 1e30, -1e30, float("nan"), np.int64(2**40)])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool", "float32"])
def test_comparisons_with_a_number_are_exact(dtype, number):
    array = np.array([0, 1, 2**53 + 1 if dtype == "int64" else 1]).astype(dtype)
    tensor = eo.Tensor(array, dtype=dtype)
    if dtype == "bool":
        array = array.astype("i8")  # NumPy compares truth values with numbers of 64 bits alone
    for method, function in zip(COMPARISONS, FUNCTIONS):
        wanted = getattr(array, method)(number).tolist()
        assert getattr(tensor, method)(number).tolist() == wanted, method
        assert function(tensor, number).tolist() == wanted, method
        assert function(number, tensor).tolist() == getattr(np.asarray(number), method)(array).tolist(), method


@pytest.mark.parametrize("left", ["int32", "int64"])
@pytest.mark.parametrize("right", ["float16", "float32", "float64"])
def test_whole_numbers_and_floats_are_compared_in_float64(left, right):
    a, b = np.array([2049, 16777217], left), np.array([2048, 16777216 if right != "float16" else 2], right)
    for method, function in zip(COMPARISONS, FUNCTIONS):
        wanted = getattr(a, method)(b).tolist()
        assert getattr(eo.Tensor(a, dtype=left), method)(eo.Tensor(b)).tolist() == wanted
        assert getattr(eo.Tensor(a, dtype=left), method)(b).tolist() == wanted
        assert function(a, b).tolist() == wanted
    assert eo.equal([16777217], [16777216]).tolist() == [False]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_arithmetic_refuses_numbers_that_the_dtype_does_not_hold(dtype):
    tensor, limits = eo.Tensor([1, 2], dtype=dtype), np.iinfo(dtype)
    for number in (int(limits.max) + 1, int(limits.min) - 1, 2**80):
        for call in (
            lambda: tensor + number,
            lambda: number - tensor,
            lambda: tensor * number,
            lambda: eo.maximum(tensor, number),
            lambda: eo.minimum(number, tensor),
            lambda: eo.where([True, False], tensor, number),
            lambda: tensor**number,
            lambda: eo.full(2, number, dtype=dtype),
            lambda: eo.Tensor([number], dtype=dtype),
            lambda: eo.Tensor(number, dtype=dtype),
            lambda: eo.Tensor([[1, number]], dtype=dtype),
        ):
            with pytest.raises(OverflowError):
                call()
    assert (tensor + (int(limits.max) - 2)).tolist() == [limits.max - 1, limits.max]
    assert eo.full(1, int(limits.max), dtype=dtype).tolist() == [limits.max]
    assert eo.Tensor([int(limits.min)], dtype=dtype).tolist() == [limits.min]


def test_arrays_of_wider_integers_are_checked():
    for array, dtype in (
        (np.array([2**40]), "int32"),
        (np.array([-1]), "uint8"),
        (np.array([2**63], "u8"), "int64"),
        (np.array([2**64 - 1], "u8"), "int32"),
    ):
        with pytest.raises(OverflowError):
            eo.Tensor(array, dtype=dtype)
    assert eo.Tensor(np.array([2**63], "u8")).tolist() == [2.0**63]  # a float, without a dtype
    assert eo.Tensor([2**63, 1]).tolist() == [2.0**63, 1.0]
    assert eo.Tensor(2**70, dtype="float64").tolist() == 2.0**70
    assert eo.Tensor(np.array([7], "u8"), dtype="int64").tolist() == [7]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5])
def test_powers_of_whole_numbers_are_exact(dtype, exponent):
    values = [0, 1, 1] if dtype == "bool" else [3, 7, 11] if dtype == "uint8" else [3, -7, 46341]
    if dtype == "int64":
        values = [2**31 + 1, -(2**20) - 1, 3]
    powers = (eo.Tensor(values, dtype=dtype) ** exponent).numpy()
    own = "int64" if dtype == "bool" else dtype
    assert powers.dtype == own and powers.tolist() == (np.array(values, own) ** exponent).tolist()


def test_whole_numbers_stay_whole():
    big = 2**53 + 1
    tensor = eo.Tensor([big, -big], dtype="int64")
    assert abs(tensor).tolist() == tensor.abs().tolist() == [big, big]
    assert tensor.clip(-5, big).tolist() == [big, -5]
    assert tensor.clip(None, big - 1).tolist() == [big - 1, -big]
    assert tensor.clip(-(2**70), 2**70).tolist() == [big, -big]
    assert eo.Tensor([200], dtype="uint8").clip(-1, 300).tolist() == [200]
    with pytest.raises(eo.EveryOShapeError, match="low <= high"):
        tensor.clip(2, 1)
    assert eo.full((2,), big, dtype="int64").tolist() == [big, big]
    assert eo.arange(big, big + 2, dtype="int64").tolist() == [big, big + 1]
    assert (eo.Tensor([1], dtype="int64") + np.True_).dtype == "int64"


HUGE = [2**63, 2**64, -(2**63) - 1, 10**30]


@pytest.mark.parametrize("huge", HUGE)
def test_huge_indices_axes_and_sizes_are_shape_errors(huge):
    x = eo.zeros(2, 3)
    for call in (
        lambda: x[huge],
        lambda: x[0, huge],
        lambda: x.sum(axis=huge),
        lambda: x.sum(axis=(0, huge)),
        lambda: x.argmax(axis=huge),
        lambda: eo.softmax(x, huge),
        lambda: eo.concatenate([x, x], huge),
        lambda: eo.stack([x, x], huge),
        lambda: x.flatten(huge),
        lambda: eo.squeeze(x, huge),
        lambda: eo.expand_dims(x, huge),
        lambda: eo.take(x, [0], huge),
        lambda: x.transpose(0, huge),
        lambda: eo.zeros(huge),
        lambda: eo.ones((2, huge)),
        lambda: eo.rand(huge, seed=0),
        lambda: eo.full(huge, 1.0),
        lambda: eo.eye(huge),
        lambda: eo.linspace(0, 1, huge),
        lambda: eo.broadcast_to(x, (huge, 2, 3)),
        lambda: eo.one_hot([0], huge),
        lambda: eo.conv2d(eo.zeros(1, 4, 4, 1), eo.zeros(1, 1, 1, 1), stride=huge),
        lambda: eo.conv2d(eo.zeros(1, 4, 4, 1), eo.zeros(1, 1, 1, 1), padding=huge),
        lambda: eo.max_pool2d(eo.zeros(1, 4, 4, 1), huge),
        lambda: nn.cross_entropy(x, [0, 1], ignore_index=huge),
        lambda: nn.Linear(3, abs(huge)),
    ):
        with pytest.raises(eo.EveryOShapeError):
            call()
    for sizes in ((huge,), (2**40, 2**40), (huge, -1)):
        with pytest.raises(eo.EveryOShapeError, match="Cannot reshape"):
            x.reshape(*sizes)


@pytest.mark.parametrize("huge", HUGE)
def test_slices_may_be_of_any_size(huge):
    array = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    tensor = eo.Tensor(array)
    for key in (
        slice(huge, None),
        slice(None, huge),
        slice(-huge, huge),
        slice(None, None, abs(huge)),
        slice(None, None, -abs(huge)),
        slice(1, huge, 2),
        (slice(-abs(huge), None), slice(0, huge)),
    ):
        assert np.array_equal(tensor[key].numpy(), array[key])


def test_unsigned_indices_do_not_become_negative():
    x = eo.arange(4)
    for key in (np.array([2**63], "u8"), np.uint64(2**64 - 1), [2**63]):
        with pytest.raises(eo.EveryOShapeError):
            x[key]
    with pytest.raises(eo.EveryOShapeError):
        eo.take(x, np.array([2**64 - 1], "u8"))
    with pytest.raises(eo.EveryOShapeError):
        nn.cross_entropy(np.zeros((1, 3)), np.array([2**64 - 1], "u8"))
    assert x[np.array([3], "u8")].tolist() == [3]


KEYS = [
    True,
    False,
    np.True_,
    np.array(True),
    (True, None),
    (0, True),
    (..., False),
    (slice(None), True, [0, 1]),
    (True, slice(None), [0, 1]),
    ([0, 1], True),
    (True, True),
    (True, False),
    (0, 0, True),
    (slice(None), True, 0),
    ([True, False],),
    np.array([], bool),
    np.zeros((0, 3), bool),
    np.zeros((2, 0), bool),
    (slice(None), np.zeros(0, bool)),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_truth_values_are_keys_as_in_numpy(key):
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    picked = eo.Tensor(array)[key].numpy()
    assert picked.shape == array[key].shape and np.array_equal(picked, array[key])


def test_truth_keys_of_scalars_and_gradients():
    scalar = eo.Tensor(3.0, requires_grad=True)
    assert scalar[True].tolist() == [3.0] and scalar[False].shape == (0,) and scalar[eo.Tensor(True)].tolist() == [3.0]
    scalar[True].sum().backward()
    assert scalar.grad == 1.0
    for key in ((False, slice(None), [0, 1]), np.zeros((0, 5), bool), np.ones(3, bool)):
        with pytest.raises(eo.EveryOShapeError):
            eo.zeros(2, 3)[key]

"""The class Tensor: what it is made of, its attributes and Python's protocols."""

import copy
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

import everyo as eo
from everyo import _core


@pytest.mark.parametrize(
    "data, dtype",
    [
        (1.5, "float32"),
        (3, "float32"),
        (True, "bool"),
        ([1, 2], "float32"),
        ([1.0, 2.0], "float32"),
        ([True, False], "bool"),
        (np.float64(2), "float64"),
        (np.float16(2), "float16"),
        (np.ones(2), "float64"),
        (np.ones(2, np.float16), "float16"),
        (np.ones(2, np.int64), "float32"),
        (np.ones(2, np.uint16), "float32"),
        (np.ones(2, np.bool_), "bool"),
        (np.ones(2, ">f4"), "float32"),
    ],
)
def test_dtype_is_inferred(data, dtype):
    tensor = eo.Tensor(data)
    assert tensor.dtype == dtype
    assert np.array_equal(tensor.numpy(), np.asarray(data).astype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_a_dtype_asked_for_is_given(dtype):
    tensor = eo.Tensor([0, 1, 2], dtype=dtype)
    assert tensor.dtype == dtype
    assert tensor.numpy().dtype == np.dtype(dtype)
    assert tensor.numpy().tolist() == np.array([0, 1, 2]).astype(dtype).tolist()
    assert eo.Tensor([0, 1], dtype=np.dtype(dtype)).dtype == dtype
    assert eo.Tensor([0, 1], dtype=dtype.upper()).dtype == dtype


def test_integers_keep_every_digit():
    assert eo.Tensor([16777217], dtype="int64").tolist() == [16777217]
    assert (eo.Tensor([2**62], dtype="int64") + 1).tolist() == [2**62 + 1]
    assert eo.take(np.arange(4.0), np.array([3, 0])).tolist() == [3, 0]


def test_bfloat16_rounds_and_comes_back_as_float32():
    tensor = eo.Tensor([1.0, 1.00390625, 3.0], dtype="bfloat16")
    assert tensor.dtype == "bfloat16"
    assert tensor.numpy().dtype == np.float32
    assert tensor.tolist() == [1.0, 1.0, 3.0]  # 1 + 2^-8 lies halfway, and ties go to even
    with pytest.raises(eo.EveryODTypeError, match="bfloat16"):
        tensor.data


@pytest.mark.parametrize("data", [[[1], [2, 3]], ["a"], [object()], [1j], np.array(["2020-01-01"], "datetime64[D]")])
def test_what_is_no_array_of_numbers_is_refused(data):
    with pytest.raises(eo.EveryODTypeError):
        eo.Tensor(data)


def test_unknown_dtypes_are_refused():
    for dtype in ("float31", "complex64", np.complex64, "nothing", object):
        with pytest.raises(eo.EveryODTypeError):
            eo.Tensor([1.0], dtype=dtype)


def test_attributes():
    tensor = eo.Tensor(np.zeros((2, 3), np.float32), requires_grad=True, name="w")
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.dtype) == ((2, 3), 2, 6, "float32")
    assert tensor.is_leaf and tensor.requires_grad and tensor.grad is None and tensor.grad_node is None
    assert tensor.name == "w" and str(tensor.device) == "cpu" and tensor.T.shape == (3, 2)
    tensor.requires_grad = False
    assert not tensor.requires_grad
    with pytest.raises(eo.EveryOGradientError, match="floating point"):
        eo.Tensor([1], dtype="int64", requires_grad=True)


def test_as_tensor_gives_the_same_object():
    tensor = eo.Tensor([1.0])
    assert eo.as_tensor(tensor) is tensor and eo.as_tensor(tensor, dtype="float32") is tensor
    assert eo.as_tensor(tensor, dtype="float64").dtype == "float64"
    assert eo.is_tensor(tensor) and not eo.is_tensor([1.0])


def test_conversions():
    tensor = eo.Tensor([[1.5, -2.0]])
    assert tensor.tolist() == [[1.5, -2.0]] and eo.Tensor(3.0).item() == 3.0
    assert float(eo.Tensor(3.0)) == 3.0 and int(eo.Tensor(3.7)) == 3
    assert isinstance(eo.Tensor([7], dtype="int64").item(), int)
    assert eo.Tensor([True]).item() is True
    assert tensor.astype("int64").tolist() == [[1, -2]]
    assert tensor.to("cpu") is tensor and tensor.cpu() is tensor and tensor.to(dtype="float16").dtype == "float16"


def test_truth_length_and_iteration():
    assert bool(eo.Tensor([2.0])) and not eo.Tensor(0.0)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(eo.Tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="exactly one element"):
        eo.Tensor([1.0, 2.0]).item()
    with pytest.raises(TypeError):
        len(eo.Tensor(1.0))
    assert len(eo.zeros(3, 2)) == 3
    assert [row.tolist() for row in eo.Tensor([[1.0], [2.0]])] == [[1.0], [2.0]]


def test_representation():
    assert repr(eo.Tensor([1.0, 2.0])) == "Tensor([1., 2.], shape=(2,), dtype=float32)"
    text = repr(eo.zeros(1001, requires_grad=True))
    assert text == "Tensor(<1001 elements>, shape=(1001,), dtype=float32, requires_grad=True)"


def test_hash_is_of_the_object_and_equality_of_the_elements():
    a = eo.Tensor([1.0, 2.0])
    assert {a: "a"}[a] == "a"
    assert (a == eo.Tensor([1.0, 3.0])).tolist() == [True, False]
    assert (a != 1).tolist() == [False, True] and (a < 2).tolist() == [True, False]
    assert (a >= np.array([1.0, 5.0])).tolist() == [True, False]
    assert (2 > a).tolist() == [True, False]
    assert (a == None) is False and (a != None) is True  # noqa: E711
    assert (eo.Tensor([2**53 + 1], dtype="int64") == 2**53 + 1).tolist() == [True]


def test_pickles_and_deep_copies():
    tensor = eo.Tensor(np.arange(6, dtype=np.float16).reshape(2, 3), requires_grad=True, name="w")
    for other in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert np.array_equal(other.numpy(), tensor.numpy()) and other.dtype == "float16"
        assert other.requires_grad and other.name == "w" and other.grad is None
        other.data[0, 0] = 9
        assert tensor.data[0, 0] == 0
    assert pickle.loads(pickle.dumps(eo.Tensor([1.0], dtype="bfloat16"))).dtype == "bfloat16"


def test_subclasses_may_be_made():
    class Weight(eo.Tensor):
        def __init__(self, data):
            super().__init__(data, requires_grad=True)

    weight = Weight([1.0])
    assert isinstance(weight, eo.Tensor) and repr(weight).startswith("Weight(")
    (weight * 2).sum().backward()
    assert weight.grad.tolist() == [2.0]
    assert isinstance(copy.deepcopy(weight), Weight)


def test_a_subclass_that_forgets_to_begin_is_told():
    class Forgetful(eo.Tensor):
        def __init__(self):
            pass

    for use in (repr, eo.relu, lambda t: t + 1, lambda t: 1 - t, lambda t: t == t, eo.as_tensor, lambda t: eo.SGD([t])):
        with pytest.raises(eo.EveryOError, match="super"):
            use(Forgetful())
    with pytest.warns(RuntimeWarning, match="uninitialized"), pytest.raises(TypeError):
        Forgetful().shape


def test_control_c_stops_a_run():
    program = "import everyo as eo\nx = eo.rand(300, 300)\nprint('begun', flush=True)\nwhile True: x @ x"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0 and b"KeyboardInterrupt" in errors


def test_setitem_writes_outside_the_graph():
    tensor = eo.zeros(2, 3)
    tensor[0] = 1
    tensor[:, 1] = eo.Tensor([5.0, 6.0])
    tensor[tensor > 4] = -1
    assert tensor.tolist() == [[1.0, -1.0, 1.0], [0.0, -1.0, 0.0]]
    weight = eo.zeros(2, requires_grad=True)
    with pytest.raises(eo.EveryOGradientError):
        weight[0] = 1
    with eo.no_grad():
        weight[0] = 1
    assert weight.tolist() == [1.0, 0.0]
    with pytest.raises(eo.EveryOShapeError):
        tensor[5] = 0


def test_moves_share_or_copy_as_they_should():
    tensor = eo.Tensor([1.0, 2.0], requires_grad=True)
    shared, copied = tensor.detach(), tensor.clone()
    tensor.data[0] = 7
    assert shared.tolist() == [7.0, 2.0] and copied.tolist() == [1.0, 2.0]
    assert not shared.requires_grad and copied.is_leaf and copied.requires_grad


def test_devices():
    cpu = eo.device()
    assert cpu == eo.Device("cpu", 0) and repr(cpu) == "device('cpu')" and not cpu.is_cuda
    assert eo.device("cuda") == cpu and eo.device(None) == cpu and eo.device("auto") == cpu
    assert str(eo.Device("cuda", 1)) == "cuda:1"
    for spec, words in [("tpu", "Unknown device type"), ("cuda:x", "Invalid device string"), ("cpu:1", "index 0")]:
        with pytest.raises(eo.EveryODeviceError, match=words):
            eo.device(spec)
        with pytest.raises(eo.EveryODeviceError, match=words):
            eo.Tensor([1.0], device=spec)
    with pytest.raises(eo.EveryODeviceError):
        eo.device("cuda:-1")
    with pytest.raises(eo.EveryODeviceError):
        eo.device("cuda", strict=True)


def test_versions_and_machine_are_told():
    assert _core.versions()["everyo"] == eo.__version__
    assert _core.machine()["threads"] >= 1


def test_none_alone_is_a_key():
    x = eo.Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    assert x[None].shape == (1, 2, 3) and eo.Tensor(2.0)[None].tolist() == [2.0]
    (x[None] * 2.0).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2
    y = eo.zeros(2)
    y[None] = [3.0, 4.0]
    assert y.tolist() == [3.0, 4.0]


def test_none_is_no_data():
    for make in (eo.Tensor, eo.tensor, eo.as_tensor):
        with pytest.raises(eo.EveryODTypeError):
            make(None)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "variance"])
def test_a_reduction_over_no_axes_is_numpys(name, dtype):
    array = np.array([[0, 3], [2, 1]]).astype(dtype)
    x = eo.Tensor(array, dtype=dtype, requires_grad=dtype.startswith("f"))
    got = getattr(eo, name)(x, axis=())
    wanted = getattr(np, {"variance": "var"}.get(name, name))(array, axis=())
    assert got.shape == (2, 2) and np.array_equal(got.numpy(), wanted)
    assert got.dtype == getattr(eo, name)(x, axis=0).dtype
    if x.requires_grad:
        got.sum().backward()
        assert (x.grad == (0.0 if name == "variance" else 1.0)).all()


class Interrupted:
    """A sequence, an array and an index, whose reading a signal ends."""

    def __array__(self, dtype=None, copy=None):
        raise KeyboardInterrupt

    def __index__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "call", [eo.Tensor, lambda x: eo.Tensor([x]), eo.zeros, lambda x: eo.ones(2)[x], lambda x: eo.ones(2).sum(axis=x)]
)
def test_an_interrupt_inside_an_argument_is_not_lost(call):
    with pytest.raises(KeyboardInterrupt):
        call(Interrupted())


def test_a_refusal_names_the_error_without_its_traceback():
    with pytest.raises(eo.EveryODTypeError, match="ValueError: ") as refusal:
        eo.Tensor([[1.0], [1.0, 2.0]])
    assert "Traceback" not in str(refusal.value)

"""NumPy and DLPack: memory shared, never left behind, and writes that are noticed."""

import gc
import subprocess
import sys

import numpy as np
import pytest

import everyo as eo


def test_a_fitting_array_is_shared():
    array = np.arange(4, dtype=np.float32)
    tensor = eo.Tensor(array)
    array[0] = 9
    assert tensor.tolist() == [9, 1, 2, 3]
    tensor.data[1] = 8
    assert array[1] == 8


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
        np.arange(6.0, dtype=np.float32)[::-1],
        np.arange(6.0, dtype=np.float32)[::2],
        np.arange(6, dtype=np.int64),
        np.zeros((0, 3), np.float32),
        np.float32(3).reshape(()),
    ],
)
def test_others_are_copied_with_their_values(array):
    assert np.array_equal(eo.Tensor(array).numpy(), array) and eo.Tensor(array).shape == array.shape


def test_a_constant_array_is_never_written():
    array = np.arange(3, dtype=np.float32)
    array.flags.writeable = False
    tensor = eo.Tensor(array)
    tensor.data[0] = 5
    assert array[0] == 0


def test_memory_outlives_either_side():
    view = eo.Tensor(np.arange(5, dtype=np.float32)).data
    gc.collect()
    assert view.tolist() == [0, 1, 2, 3, 4]
    tensor = eo.Tensor(np.full(1000, 3, np.float32))
    gc.collect()
    assert tensor.sum().item() == 3000
    gradient = (lambda t: ((t * 2).sum().backward(), t.grad)[1])(eo.Tensor([1.0, 2.0], requires_grad=True))
    gc.collect()
    assert gradient.tolist() == [2, 2]


def test_numpy_gives_a_copy_and_array_the_values():
    tensor = eo.Tensor([1.0, 2.0])
    copied = tensor.numpy()
    copied[0] = 9
    assert tensor.tolist() == [1, 2]
    assert np.asarray(tensor).tolist() == [1, 2]
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert np.array(tensor, copy=True).tolist() == [1, 2]
    assert np.sum(np.asarray(tensor)) == 3


def test_data_is_written_through_and_recast():
    tensor = eo.Tensor([1.0, 2.0], dtype="float16")
    tensor.data = np.array([3.0, 4.0])
    assert tensor.dtype == "float16" and tensor.tolist() == [3, 4]
    tensor.data -= 1
    assert tensor.tolist() == [2, 3]
    with pytest.raises(eo.EveryOShapeError):
        tensor.data = np.zeros(3)


def changed_before_forward(x):
    x.data[0] = 9
    return (x * x).sum()


def test_a_write_before_forward_counts():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    changed_before_forward(x).backward()
    assert x.grad.tolist() == [18, 4]


@pytest.mark.parametrize("held", ["not held", "held from before", "held from after"])
@pytest.mark.parametrize("borrowed", [False, True])
def test_Y11_AWriteAfterForwardIsNoticed(held, borrowed):
    array = np.array([1, 2], np.float32)
    x = eo.Tensor(array if borrowed else [1.0, 2.0], requires_grad=True)
    view = x.data if held == "held from before" else None
    loss = (x * x).sum()
    if held == "held from after":
        view = x.data
    (x.data if view is None else view)[0] = 9
    with pytest.raises(eo.EveryOGradientError, match="was changed"):
        loss.backward()


def test_Y11_ActivationsAreWatchedToo():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    hidden = x * 2
    loss = (hidden * hidden).sum()
    assert hidden.data.tolist() == [2, 4]  # reading is fine
    loss.backward()
    hidden.data[0] = 0
    with pytest.raises(eo.EveryOGradientError, match="changed in place"):
        loss.backward()


def test_gradients_are_live_and_accumulate():
    x = eo.Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    gradient = x.grad
    loss.backward()
    assert x.grad.tolist() == [4, 8]
    x.grad *= 0.5
    assert x.grad.tolist() == [2, 4]
    x.grad[0] = 7
    assert x.grad.tolist() == [7, 4]
    x.zero_grad()
    assert x.grad is None
    kept = gradient.tolist()
    loss.backward()
    assert x.grad.tolist() == [2, 4] and gradient.tolist() == kept  # what was given out is not written again
    x.grad = np.array([5.0, 6.0])
    assert x.grad.tolist() == [5, 6] and x.grad.dtype == np.float32
    with pytest.raises(eo.EveryOGradientError, match="shape"):
        x.grad = np.zeros(3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_dlpack_with_numpy(dtype):
    tensor = eo.Tensor([[0, 1], [1, 0]], dtype=dtype)
    array = np.from_dlpack(tensor)
    assert array.dtype == np.dtype(dtype) and array.tolist() == tensor.tolist()
    back = eo.from_dlpack(np.ascontiguousarray(tensor.numpy()))
    assert back.dtype == dtype and back.tolist() == tensor.tolist()
    shared = tensor.numpy()
    other = eo.from_dlpack(shared)
    shared[0, 0] = 1
    assert other.tolist()[0][0] == 1


def test_dlpack_does_not_lose_gradients():
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(eo.zeros(2, requires_grad=True))
    with pytest.raises(eo.EveryODTypeError):
        eo.from_dlpack([1, 2])


class Producer:
    """Gives the same capsule each time, which no producer may, or none."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **options):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


# NumPy 1 knows capsules without a version alone.
@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}] if np.__version__ >= "2" else [{}])
def test_a_dlpack_capsule_is_used_once(options):
    array = np.arange(3.0, dtype=np.float32)
    capsule = array.__dlpack__(**options)
    first = eo.from_dlpack(Producer(capsule))
    assert "used_dltensor" in repr(capsule)
    for again in (Producer(capsule), capsule, Producer(None), Producer(3)):
        with pytest.raises(eo.EveryOError, match="dlpack"):
            eo.from_dlpack(again)
    del capsule
    array[0] = 7
    assert first.tolist() == [7, 1, 2]


def test_a_producers_own_error_is_not_lost():
    class Broken(Producer):
        def __dlpack__(self, **options):
            raise self.capsule

    with pytest.raises(eo.EveryODTypeError, match="not today"):
        eo.from_dlpack(Broken(BufferError("not today")))
    with pytest.raises(ZeroDivisionError):
        eo.from_dlpack(Broken(ZeroDivisionError()))


def test_dlpack_with_pytorch():
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "float16", "int64"):
        tensor = eo.Tensor([1, 2, 3], dtype=dtype)
        other = torch.from_dlpack(tensor)
        assert other.dtype == getattr(torch, dtype)
        other[0] = 7
        assert tensor.tolist() == [7, 2, 3]
        back = eo.from_dlpack(other)
        assert back.dtype == dtype and back.tolist() == [7, 2, 3]
    strided = eo.from_dlpack(torch.arange(6.0).reshape(2, 3).T)
    assert strided.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_pytorch_may_be_imported_first():
    # It leaves little room for thread-locals of libraries that come later.
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", "import torch, everyo; everyo.ones(2).sum()"], check=True)


def test_int64_is_numpys_int64():
    x = eo.arange(3, dtype="int64")
    for values in (x.data, x.numpy(), np.asarray(x), x[0].data):
        assert values.dtype.type is np.int64
    assert type(x.argmax()) is np.int64 and type(eo.ones(2, 2).argmax(axis=0)[0]) is np.int64
    x.data[0] = 7
    assert x.tolist() == [7, 1, 2]


def test_dlpack_copies_when_asked():
    x = eo.arange(3)
    copy, shared = eo.from_dlpack(x.__dlpack__(copy=True)), eo.from_dlpack(x.__dlpack__(copy=False))
    copy[0] = 9
    assert x.tolist() == shared.tolist() == [0, 1, 2] and copy.tolist() == [9, 1, 2]
    assert np.shares_memory(shared.data, x.data) and not np.shares_memory(copy.data, x.data)

"""Every exception class and message word that programs rely on."""

import subprocess
import sys

import numpy as np
import pytest

import everyo as eo
from everyo import _core

T = eo.Tensor
image = eo.zeros(1, 4, 4, 3)
kernel = eo.zeros(2, 2, 3, 5)
logits = eo.zeros(2, 3)

CASES = {
    "matmul inner": (lambda: eo.zeros(2, 3) @ eo.zeros(4, 5), eo.EveryOShapeError, ["(2, 3)", "(4, 5)", "inner dimensions"]),
    "matmul scalar": (lambda: eo.matmul(T(1.0), eo.zeros(2)), eo.EveryOShapeError, ["at least one dimension"]),
    "broadcast": (lambda: eo.zeros(2, 3) + eo.zeros(4), eo.EveryOShapeError, ["broadcast", "(2, 3)", "(4,)"]),
    "axis": (lambda: eo.zeros(2).sum(axis=3), eo.EveryOShapeError, ["out of range"]),
    "reshape": (lambda: eo.zeros(4).reshape(3), eo.EveryOShapeError, ["Cannot reshape"]),
    "transpose": (lambda: eo.zeros(2, 3).transpose(0, 0), eo.EveryOShapeError, ["permutation"]),
    "concatenate": (lambda: eo.concatenate([eo.zeros(2, 2), eo.zeros(3, 3)]), eo.EveryOShapeError, ["Cannot concatenate"]),
    "concatenate none": (lambda: eo.concatenate([]), eo.EveryOShapeError, ["at least one tensor"]),
    "clip": (lambda: eo.clip([1.0], 2, 1), eo.EveryOShapeError, ["low <= high"]),
    "index": (lambda: eo.zeros(2)[5], eo.EveryOShapeError, []),
    "power": (lambda: eo.zeros(2) ** eo.zeros(2), eo.EveryOShapeError, ["scalar exponent"]),
    "one_hot": (lambda: eo.one_hot([3], 3), eo.EveryOShapeError, []),
    "conv rank": (lambda: eo.conv2d(eo.zeros(4, 4, 3), kernel), eo.EveryOShapeError, ["4-D tensor"]),
    "conv kernel": (lambda: eo.conv2d(image, eo.zeros(2, 2, 3)), eo.EveryOShapeError, ["4-D kernel"]),
    "conv channels": (lambda: eo.conv2d(eo.zeros(1, 4, 4, 2), kernel), eo.EveryOShapeError, ["2 channel(s)", "expects 3"]),
    "conv size": (lambda: eo.conv2d(eo.zeros(1, 1, 1, 3), kernel), eo.EveryOShapeError, ["does not fit"]),
    "padding": (lambda: eo.conv2d(image, kernel, padding="wide"), eo.EveryOShapeError, ["Unknown padding"]),
    "padding pair": (lambda: eo.conv2d(image, kernel, padding=(1, 1)), eo.EveryOShapeError, ["Unknown padding"]),
    "conv bias": (lambda: eo.conv2d(image, kernel, eo.zeros(3)), eo.EveryOShapeError, ["bias must have shape"]),
    "stride": (lambda: eo.conv2d(image, kernel, stride=0), eo.EveryOShapeError, ["must be positive"]),
    "pool size": (lambda: eo.max_pool2d(image, 0), eo.EveryOShapeError, ["must be positive"]),
    "pool window": (lambda: eo.avg_pool2d(image, 5), eo.EveryOShapeError, ["larger than the padded"]),
    "dropout": (lambda: _core.dropout([1.0], 1.0), ValueError, ["[0, 1)"]),
    "losses": (lambda: _core.mse_loss([1.0], [1.0, 2.0]), eo.EveryOShapeError, ["same shape"]),
    "reduction": (lambda: _core.mse_loss([1.0], [1.0], "most"), ValueError, ["Unknown reduction"]),
    "probabilities": (lambda: _core.binary_cross_entropy([1.5], [1.0]), eo.EveryOShapeError, ["probabilities"]),
    "logits": (lambda: _core.cross_entropy(eo.zeros(3), [0]), eo.EveryOShapeError, ["(batch, classes)"]),
    "targets": (lambda: _core.cross_entropy(logits, [0, 1, 2]), eo.EveryOShapeError, ["targets"]),
    "layer norm": (lambda: _core.layer_norm(logits, 4), eo.EveryOShapeError, ["trailing axes"]),
    "eps": (lambda: _core.layer_norm(logits, 3, eps=0.0), ValueError, ["eps"]),
    "optimizer empty": (lambda: _core.SGD([]), eo.EveryOError, ["no parameters"]),
    "optimizer entry": (lambda: _core.Adam([np.zeros(2)]), eo.EveryOError, ["EveryO tensor"]),
    "lr": (lambda: _core.SGD([eo.zeros(2, requires_grad=True)], lr=0.0), ValueError, ["positive"]),
    "momentum": (lambda: _core.SGD([eo.zeros(2, requires_grad=True)], momentum=1.0), ValueError, ["[0, 1)"]),
    "nesterov": (lambda: _core.SGD([eo.zeros(2, requires_grad=True)], nesterov=True), ValueError, ["Nesterov"]),
    "betas": (lambda: _core.Adam([eo.zeros(2, requires_grad=True)], betas=(1.0, 0.9)), ValueError, ["beta1"]),
    "beta2": (lambda: _core.Adam([eo.zeros(2, requires_grad=True)], betas=(0.9, 1.0)), ValueError, ["beta2"]),
    "adam eps": (lambda: _core.Adam([eo.zeros(2, requires_grad=True)], eps=0.0), ValueError, ["eps"]),
    "file": (lambda: _core.load_safetensors("/nowhere/x.safetensors"), FileNotFoundError, ["/nowhere/x.safetensors"]),
    "topic": (lambda: _core.verify("nothing"), ValueError, ["nothing"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_class_and_words(name):
    call, kind, words = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    # Builtins stay plain: they are no EveryOError.
    assert issubclass(kind, eo.EveryOError) == isinstance(caught.value, eo.EveryOError)
    for word in words:
        assert word in str(caught.value)


def test_all_errors_are_one_family():
    for name in ("Shape", "Device", "DType", "Gradient", "Serialization", "Configuration", "Backend"):
        kind = getattr(eo, f"EveryO{name}Error")
        assert issubclass(kind, eo.EveryOError) and kind.__module__ == "everyo"
    assert issubclass(eo.EveryOCudaError, eo.EveryOBackendError) and issubclass(_core.DistributedError, eo.EveryOError)


def test_a_damaged_file_is_the_serialization_error(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(eo.EveryOSerializationError):
        _core.load_safetensors(path)


def test_tensors_go_to_files_and_back(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {"w": eo.randn(3, 2, seed=0), "b": eo.Tensor([1.0], dtype="bfloat16"), "n": np.arange(3)}
    _core.save_safetensors(path, tensors, {"made by": "a test"})
    back, metadata = _core.load_safetensors(path)
    assert metadata == {"made by": "a test"} and back["b"].dtype == "bfloat16" and back["n"].dtype == "int64"
    assert back["w"].tolist() == tensors["w"].tolist()
    assert _core.digest({"w": back["w"]}) == _core.digest({"w": tensors["w"]}) != _core.digest({"v": back["w"]})


def test_optimizer_states_go_round():
    def trained(steps, state=None):
        w = eo.ones(3, requires_grad=True)
        optimizer = _core.Adam([w], lr=0.1)
        if state is not None:
            w.data = state[0]
            optimizer.load(state[1])
        for _ in range(steps):
            w.grad = np.array([1.0, -2.0, 3.0])
            optimizer.step()
        return w.numpy(), optimizer.state()

    assert np.array_equal(trained(5)[0], trained(2, trained(3))[0])
    with pytest.raises(eo.EveryOError):
        _core.SGD([eo.ones(3, requires_grad=True)]).load(trained(1)[1])


@pytest.mark.parametrize("index", ["9" * 5000, "99999999", "\u00b2", "1.5", "", "--1", "a"])
def test_absurd_device_indices_are_invalid(index):
    with pytest.raises(eo.EveryODeviceError, match="Invalid device string"):
        eo.device(f"cuda:{index}")
    with pytest.raises(eo.EveryODeviceError):
        eo.Device("cuda", 1.5)


AT_EXIT = """
import threading, time, everyo as eo
x, w = eo.ones(400, 400), eo.ones(400, 400, requires_grad=True)
def work():
    while True:
        {work}
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.parametrize("work", ["x @ x", "(x @ w).sum().backward()", "eo.optim.clip_grad_norm([w], 1.0); w.grad = w.data"])
def test_threads_inside_the_library_do_not_abort_the_interpreters_end(work):
    ended = subprocess.run([sys.executable, "-c", AT_EXIT.format(work=work)], capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stderr == ""

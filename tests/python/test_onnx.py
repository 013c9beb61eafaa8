"""Export and running of ONNX files, beside the onnx package's checker and shape inference and Python's own ONNX Runtime."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import everyo as eo
from everyo import nn
from everyo.serialization import OnnxModel, compare_onnx

FLOAT32 = 1e-5  # sums in another order, relative to the larger of 1 and the value
FLOAT16 = 2e-3  # two units of float16's last place


def layers():
    """Every layer, with the shape of its input."""
    return {
        "Linear": (nn.Linear(6, 4, seed=0), (2, 6)),
        "Conv2D": (nn.Conv2D(3, 4, 3, padding="same", seed=0), (2, 7, 6, 3)),
        "Conv2D even": (nn.Conv2D(3, 4, 4, padding="same", seed=0), (2, 7, 6, 3)),
        "Conv2D strided": (nn.Conv2D(3, 4, 3, stride=2, seed=0), (2, 7, 6, 3)),
        "MaxPool2D": (nn.MaxPool2D(2), (2, 7, 6, 3)),
        "AvgPool2D": (nn.AvgPool2D(2), (2, 7, 6, 3)),
        "Flatten": (nn.Flatten(), (2, 3, 4)),
        "Dropout": (nn.Sequential(nn.Dropout(0.5), nn.ReLU()), (2, 6)),
        "BatchNorm1D": (nn.BatchNorm1D(6), (2, 6)),
        "BatchNorm2D": (nn.BatchNorm2D(3), (2, 4, 5, 3)),
        "LayerNorm": (nn.LayerNorm(6), (2, 6)),
        "ReLU": (nn.ReLU(), (2, 6)),
        "Sigmoid": (nn.Sigmoid(), (2, 6)),
        "Tanh": (nn.Tanh(), (2, 6)),
        "Softmax": (nn.Softmax(), (2, 6)),
        "LogSoftmax": (nn.LogSoftmax(), (2, 6)),
    }


def batches(shape, dtype=np.float32, sizes=(1, 2, 3, 7)):
    return [np.random.default_rng(n).normal(size=(n, *shape[1:])).astype(dtype) for n in sizes]


def own_runtime(path, x):
    return onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"]).run(None, {"input": x})[0]


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 22])
@pytest.mark.parametrize("name", layers())
def test_every_layer_passes_the_checker_and_agrees(tmp_path, name, opset):
    layer, shape = layers()[name]
    layer.eval()
    path = eo.export_onnx(layer, tmp_path / "layer.onnx", input_shape=shape, opset=opset)
    assert path == tmp_path / "layer.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.checker.check_model(os.fspath(path), full_check=True)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    assert inferred.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    for x in batches(shape):
        with eo.no_grad():
            ours = layer(eo.tensor(x)).numpy()
        for theirs in (eo.run_onnx(path, x), own_runtime(path, x)):
            assert theirs.shape == ours.shape and theirs.dtype == np.float32
            assert np.max(np.abs(theirs - ours) / np.maximum(1, np.abs(ours))) <= FLOAT32


def test_names_are_the_models(tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 8, seed=0)
            self.norm = nn.BatchNorm1D(8)

        def forward(self, x):
            return eo.relu(self.norm(self.up(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = [Block()]
            self.head = nn.Linear(8, 2, seed=1)

        def forward(self, x):
            return self.head(self.blocks[0](x))

    net = Net()
    net.eval()
    path = eo.export_onnx(
        net, tmp_path / "net.onnx", input_shape=(9, 4), input_name="rows", output_name="scores", model_name="small", metadata={"task": "none"}
    )
    model = onnx.load(path)
    names = {tensor.name for tensor in model.graph.initializer}
    assert set(net.state_dict()) - names <= {"blocks.0.norm.num_batches_tracked"}
    for tensor in model.graph.initializer:
        if tensor.name in net.state_dict():
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), net.state_dict()[tensor.name])
    assert any(node.name.startswith("blocks.0.up/") for node in model.graph.node)
    assert model.graph.name == "small" and model.producer_name == "everyo"
    assert {p.key: p.value for p in model.metadata_props} == {"task": "none"}
    loaded = OnnxModel(path)
    assert loaded.inputs == [("rows", "float32", ("batch", 4))]
    assert loaded.outputs == [("scores", "float32", ("batch", 2))]
    assert loaded.metadata == {"task": "none"}


def test_Y14_Flatten_of_any_axis_has_the_right_rank(tmp_path):
    for start in (0, 1, 2, -1):
        layer = nn.Flatten(start)
        layer.eval()
        path = eo.export_onnx(layer, tmp_path / f"flatten{start}.onnx", input_shape=(2, 3, 4, 5))
        for x in batches((2, 3, 4, 5)):
            np.testing.assert_array_equal(eo.run_onnx(path, x), layer(eo.tensor(x)).numpy())


def test_Y14_A_class_called_as_the_librarys_exports_what_it_computes(tmp_path):
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(np.ones((3, 3), np.float32))

        def forward(self, x):
            return eo.matmul(x, self.weight) * 2.0 + 1.0

    net = nn.Sequential(Linear(), nn.ReLU())
    net.eval()
    path = eo.export_onnx(net, tmp_path / "own.onnx", input_shape=(1, 3))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(eo.run_onnx(path, x), x.sum(1, keepdims=True) * 2 + 1 + np.zeros((2, 3)), rtol=1e-6)


def test_Y14_A_child_in_training_mode_is_refused_by_name(tmp_path):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Dropout(0.5)))
    with pytest.raises(eo.EveryOSerializationError, match="the model .*training mode"):
        eo.export_onnx(net, tmp_path / "net.onnx", input_shape=(1, 3))
    net.eval()
    net[1][0].train()
    with pytest.raises(eo.EveryOSerializationError, match=r"module '1\.0' \(Dropout\) is in training mode"):
        eo.export_onnx(net, tmp_path / "net.onnx", input_shape=(1, 3))
    assert not list(tmp_path.iterdir())
    assert net[1][0].training and not net.training


def test_refusals_have_the_words_of_the_contract(tmp_path):
    path = tmp_path / "none.onnx"
    untracked = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1D(3, track_running_stats=False))
    untracked.eval()

    class OutsideOfOps(nn.Module):
        def forward(self, x):
            return eo.tensor(np.tanh(x.numpy()))

    class HalfOutside(nn.Module):
        def forward(self, x):
            return x * eo.tensor(np.exp(x.numpy()))

    class ByValue(nn.Module):
        def forward(self, x):
            return eo.relu(x) if float(eo.sum(x).item()) > 0 else eo.tanh(x)

    class Rows(nn.Module):
        def forward(self, x):
            return x * (1.0 / x.shape[0])

    outside, half, by_value, rows = OutsideOfOps(), HalfOutside(), ByValue(), Rows()
    for module in (outside, half, by_value, rows):
        module.eval()
    linear = nn.Linear(3, 3)
    linear.eval()
    for export, words in (
        (lambda: eo.export_onnx(untracked, path, input_shape=(1, 3)), "track_running_stats"),
        (lambda: eo.export_onnx(outside, path, input_shape=(1, 3)), "recorded no operations"),
        (lambda: eo.export_onnx(half, path, input_shape=(1, 3)), "outside of everyo's ops"),
        (lambda: eo.export_onnx(by_value, path, input_shape=(1, 3)), "depend on the input's values"),
        (lambda: eo.export_onnx(rows, path, input_shape=(1, 3)), "depends|computed from"),
        (lambda: eo.export_onnx(linear, path, input_shape=(1, 3), opset=12), "opset 13 or newer"),
        (lambda: eo.export_onnx(linear, path, input_shape=(1, 3), opset=99), "opset"),
        (lambda: eo.export_onnx(eo.relu, path, input_shape=(1, 3)), "export_onnx_traced"),
        (lambda: eo.export_onnx_traced(lambda x: eo.relu(x).numpy(), path, input_shape=(1, 3)), "return"),
        (lambda: eo.export_onnx_traced(lambda x: nn.MSELoss()(x, x), path, input_shape=(1, 3)), "no ONNX form.*export_onnx_traced"),
    ):
        with pytest.raises((eo.EveryOSerializationError, TypeError, ValueError), match=words):
            export()
    assert not list(tmp_path.iterdir())


def test_indices_export(tmp_path):
    for name, take in {
        "ellipsis": lambda x: x[..., 1:],
        "none": lambda x: x[:, None, 2],
        "negative step": lambda x: x[:, ::-1],
        "last": lambda x: x[:, -1],
        "rows": lambda x: x[1:],
    }.items():
        path = eo.export_onnx_traced(take, tmp_path / f"{name}.onnx", input_shape=(2, 4, 5))
        for x in batches((2, 4, 5), sizes=(2, 3, 7)):
            np.testing.assert_array_equal(eo.run_onnx(path, x), take(eo.tensor(x)).numpy(), err_msg=name)
    with pytest.raises(eo.EveryOShapeError, match="more entries than"):
        eo.export_onnx_traced(lambda x: x[0, 0, 0, 0], tmp_path / "many.onnx", input_shape=(2, 4, 5))


def test_several_inputs_outputs_and_open_sizes(tmp_path):
    table = eo.tensor(np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32))

    def function(ids, scale):
        rows = table[ids]  # [N, T, 4]
        return rows * scale, eo.mean(rows, axis=(1, 2))

    path = eo.export_onnx_traced(
        function,
        tmp_path / "two.onnx",
        inputs={"ids": np.full((2, 3), 10), "scale": np.ones((2, 1, 1), np.float32)},
        dynamic_axes={"ids": {1: "time"}},
        check=True,
    )
    model = OnnxModel(path)
    assert model.inputs == [("ids", "int64", ("batch", "time")), ("scale", "float32", ("batch", 1, 1))]
    assert [shape for _, _, shape in model.outputs] == [("batch", "time", 4), ("batch",)]
    ids, scale = np.array([[1, 10, 3, 4, 5]] * 4), np.linspace(1, 2, 4, dtype=np.float32).reshape(4, 1, 1)
    outputs = model.run({"ids": ids, "scale": scale})
    for ours, theirs in zip(function(eo.tensor(ids, dtype="int64"), eo.tensor(scale)), outputs.values()):
        np.testing.assert_allclose(theirs, ours.numpy(), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="'idss'"):
        eo.export_onnx_traced(function, path, inputs={"ids": ids, "scale": scale}, dynamic_axes={"idss": {1: "time"}})


def test_float16_and_bfloat16(tmp_path):
    net = nn.Sequential(nn.Linear(6, 8, seed=0), nn.ReLU(), nn.Linear(8, 3, seed=1), nn.Softmax())
    net.eval()
    for autocast, allowed in (("float16", FLOAT16), ("bfloat16", 1.6e-2)):  # two units of bfloat16's last place
        path = eo.export_onnx(net, tmp_path / f"{autocast}.onnx", input_shape=(1, 6), autocast=autocast)
        onnx.checker.check_model(onnx.load(path), full_check=True)
        for x in batches((1, 6)):
            with eo.no_grad(), eo.autocast(dtype=autocast):
                ours = net(eo.tensor(x)).numpy().astype(np.float64)
            assert np.max(np.abs(eo.run_onnx(path, x).astype(np.float64) - ours)) <= allowed


TRAINING = """
import sys
import numpy as np
import everyo as eo
from everyo import nn

net = nn.Sequential(nn.Linear(4, 8, seed=0), nn.BatchNorm1D(8), nn.Dropout(0.5, seed=3), nn.Linear(8, 2, seed=1))
optimizer = eo.Adam(net.parameters(), lr=1e-2)
for step in range(6):
    x = np.random.default_rng(step).normal(size=(8, 4)).astype(np.float32)
    net.zero_grad()
    eo.mean(net(eo.tensor(x)) ** 2).backward()
    if len(sys.argv) > 1:
        net.eval()
        eo.export_onnx(net, sys.argv[1], input_shape=(1, 4), check=True)
        net.train()
    optimizer.step()
print(eo._core.digest(net.state_dict()))
"""


def test_training_goes_on_after_an_export(tmp_path):
    """The bits of a run with exports between its steps are those of a run without; each in a process, for dropout's draws."""
    digests = set()
    for arguments in ([], [os.fspath(tmp_path / "net.onnx")]):
        command = [sys.executable, "-c", TRAINING, *arguments]
        digests.add(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert len(digests) == 1


def test_the_digits_net_classes_all_rows_the_same(tmp_path):
    x, y = eo.datasets.load_handwritten_digits()
    images = x.reshape(-1, 8, 8, 1)
    net = nn.Sequential(
        nn.Conv2D(1, 8, 3, padding="same", seed=0), nn.ReLU(), nn.MaxPool2D(2), nn.Conv2D(8, 16, 3, padding="same", seed=1),
        nn.ReLU(), nn.MaxPool2D(2), nn.Flatten(), nn.Linear(64, 10, seed=2),
    )
    trainer = eo.Trainer(net, eo.Adam(net.parameters(), lr=3e-3), nn.CrossEntropyLoss())
    trainer.fit(eo.DataLoader(eo.ArrayDataset(images, y), batch_size=64, shuffle=True, seed=0), epochs=3, verbose=False)
    net.eval()
    path = eo.export_onnx(net, tmp_path / "digits.onnx", input_shape=(1, 8, 8, 1))
    with eo.no_grad():
        ours = net(eo.tensor(images)).numpy()
    theirs = eo.run_onnx(path, images)
    assert np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(ours))) <= 1.1e-5
    np.testing.assert_array_equal(ours.argmax(1), theirs.argmax(1))
    assert compare_onnx(net, path, [images[:1], images[:7]])["output"].relative <= FLOAT32


def test_a_comparison_hides_neither_nan_nor_shapes(tmp_path):
    path = eo.export_onnx_traced(lambda x: x * 2, tmp_path / "f.onnx", input_shape=(1, 3))
    x = np.ones((2, 3), np.float32)
    assert compare_onnx(lambda v: v * 2, path, [x, x * np.nan, x * np.inf])["output"] == (0, 0)
    for factor in (np.nan, np.inf, -np.inf):
        assert compare_onnx(lambda v: v * float(factor), path, [x, x])["output"] == (np.inf, np.inf)
    for other in (lambda v: v.sum(axis=0), lambda v: v[:, :2], lambda v: (v, v)):
        with pytest.raises(eo.EveryOShapeError):
            compare_onnx(other, path, [x])


def test_wrong_shapes_and_axes_are_named(tmp_path):
    net = nn.Sequential(nn.Linear(5, 2, seed=0))
    net.eval()
    for shape, error, words in ((5, TypeError, "input_shape is 5"), ((), eo.EveryOShapeError, r"input_shape is \(\)")):
        with pytest.raises(error, match=words):
            eo.export_onnx(net, tmp_path / "net.onnx", input_shape=shape)
    with pytest.raises(TypeError, match=r"dynamic_axes\['input'\] is a list; give \{axis: name\}"):
        eo.export_onnx(net, tmp_path / "net.onnx", input_shape=(1, 5), dynamic_axes={"input": [0]})
    assert not list(tmp_path.iterdir())


def test_external_data(tmp_path):
    net = nn.Sequential(nn.Linear(64, 64, seed=0), nn.ReLU(), nn.Linear(64, 2, seed=1))
    net.eval()
    path = eo.export_onnx(net, tmp_path / "net.onnx", input_shape=(1, 64), external_data_above=4096, check=True)
    data = [file for file in tmp_path.iterdir() if file.suffix == ".data"]
    assert len(data) == 1 and data[0].stat().st_size >= 64 * 64 * 4
    onnx.checker.check_model(os.fspath(path), full_check=True)
    x = np.ones((3, 64), np.float32)
    np.testing.assert_allclose(own_runtime(path, x), eo.run_onnx(path, x), rtol=0, atol=0)


def test_wrong_runs_are_errors(tmp_path):
    net = nn.Linear(3, 2)
    net.eval()
    path = eo.export_onnx(net, tmp_path / "net.onnx", input_shape=(1, 3))
    x = np.zeros((2, 3), np.float32)
    for run, words in (
        (lambda: eo.run_onnx(path, x, input_name="inptu"), "inptu"),
        (lambda: eo.run_onnx(path, x[:, :2]), "shape|size"),
        (lambda: eo.run_onnx(path, {}), "input"),
        (lambda: eo.run_onnx(path, np.array([["a"]])), "numbers|dtype"),
        (lambda: eo.run_onnx(tmp_path / "gone.onnx", x), "gone.onnx"),
    ):
        with pytest.raises((eo.EveryOError, ValueError, FileNotFoundError), match=words):
            run()
    whole = path.read_bytes()
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.onnx").write_bytes(whole[:size])
        with pytest.raises(eo.EveryOError):
            eo.run_onnx(tmp_path / "cut.onnx", x)


def test_the_runtime_may_be_missing(tmp_path):
    script = (
        "import everyo as eo, numpy as np\n"
        "from everyo import nn\n"
        "assert not eo.onnx_available()\n"
        "net = nn.Linear(3, 2); net.eval()\n"
        f"path = eo.export_onnx(net, {os.fspath(tmp_path / 'net.onnx')!r}, input_shape=(1, 3))\n"
        "try:\n    eo.run_onnx(path, np.zeros((1, 3), np.float32))\n"
        "except eo.EveryOError as error:\n    print(type(error).__name__, error)\n"
    )
    environment = {**os.environ, "EVERYO_ONNXRUNTIME": os.fspath(tmp_path / "nothing.so")}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert re.search(r"pip install onnxruntime", result.stdout), result.stdout
    assert (tmp_path / "net.onnx").is_file()


@pytest.mark.parametrize("order", list(itertools.permutations(["onnx", "onnxruntime", "everyo"])), ids="-".join)
def test_one_process_holds_all_three(tmp_path, order):
    script = "".join(f"import {name}\n" for name in order) + (
        "import numpy as np\n"
        "from everyo import nn\n"
        "net = nn.Sequential(nn.Linear(3, 4, seed=0), nn.ReLU()); net.eval()\n"
        f"path = everyo.export_onnx(net, {os.fspath(tmp_path / 'net.onnx')!r}, input_shape=(1, 3), check=True)\n"
        "onnx.checker.check_model(onnx.load(path), full_check=True)\n"
        "x = np.ones((2, 3), np.float32)\n"
        "theirs = onnxruntime.InferenceSession(str(path)).run(None, {'input': x})[0]\n"
        "assert np.array_equal(theirs, everyo.run_onnx(path, x))\n"
        "assert np.allclose(theirs, net(everyo.tensor(x)).numpy(), atol=1e-6)\n"
        "print('fine')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr

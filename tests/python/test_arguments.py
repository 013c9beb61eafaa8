"""Arguments of wrong kinds: every name answers with one of the contract's exceptions, in a sentence."""

import inspect
import re

import numpy as np
import pytest

import everyo as eo
from everyo import nn
from everyo.core import autograd, dtype

CLASSES = (eo.EveryOError, TypeError, ValueError, KeyError, IndexError, OverflowError, FileNotFoundError)
WRONG = [None, "a", 1.5, object(), 2**70, -1, [], b"a", {}, np.zeros((2, 0)), float("nan"), ["a"], (1, "a"), int]
MODEL = nn.Sequential(nn.Linear(2, 2, seed=0))
EXPORTED = nn.Linear(2, 2, seed=0)
EXPORTED.eval()
SAMPLES = eo.ArrayDataset(np.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32))


class Unfit(nn.Module):
    """Of no use to any function."""


def len_of_group(group):
    return group.world_size


def right_calls(tmp_path):
    """A call of every name that takes arguments: what it is given by position and by name."""
    x, image = np.ones((2, 2), np.float32), np.ones((1, 4, 4, 2), np.float32)
    csv = tmp_path / "table.csv"
    csv.write_text("1,2\n3,4\n")
    idx = tmp_path / "array.idx"
    idx.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
    packed = eo.pack(SAMPLES, tmp_path / "set.pack")
    weights = tmp_path / "w.safetensors"
    archive = eo.save(MODEL, tmp_path / "m.evo")
    onnx = eo.export_onnx_traced(eo.relu, tmp_path / "m.onnx", input_shape=(1, 2))
    nn.save_arrays(weights, MODEL.state_dict())
    optimizer = {"parameters": MODEL.parameters(), "lr": 0.1}
    adam = optimizer | {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "state_dtype": "float32",
                        "master_weights": True}
    seeded = {"initializer": "zeros", "seed": 0}
    made = {"dtype": "float32", "device": "cpu", "requires_grad": False}
    loss = {"prediction": x, "target": x, "reduction": "mean"}
    norm = {"num_features": 2, "eps": 1e-5, "momentum": 0.1}
    group, ranks = eo.distributed.init_process_group(), {"timeout": 60.0, "threads": 1}
    calls = {
        eo.distributed.shard_indices: {"count": 4, "rank": 0, "world_size": 2, "drop_last": True},
        eo.distributed.average_gradients: {"parameters": MODEL.parameters(), "group": group, "weight": 1.0},
        eo.distributed.all_reduce_mean: {"arrays": [x], "group": group},
        eo.distributed.spawn: {"function": len_of_group, "world_size": 1, "args": (), "kwargs": {}, "start_method": "thread"}
        | ranks,
        eo.Tensor: {"data": x, "dtype": "float32", "device": "cpu", "requires_grad": False, "name": "n"},
        eo.tensor: {"data": x, "dtype": "float32", "device": "cpu", "requires_grad": False, "name": "n"},
        eo.as_tensor: {"data": x, "device": "cpu", "dtype": "float32"},
        eo.Device: {"type": "cpu", "index": 0},
        eo.device: {"spec": "cpu"},
        eo.dtype_name: {"dtype": "float32"},
        dtype.resolve_dtype: {"dtype": "float32"},
        dtype.is_floating: {"dtype": "float32"},
        autograd.unbroadcast: {"gradient": x, "shape": (2,)},
        autograd.topological_order: {"root": eo.ones(2)},
        autograd.backward: {"root": eo.ones(1, requires_grad=True).sum(), "gradient": 1.0},
        eo.full: {"shape": (2,), "value": 1.0} | made,
        eo.arange: {"start": 0, "stop": 3, "step": 1} | made,
        eo.linspace: {"start": 0.0, "stop": 1.0, "num": 3} | made,
        eo.eye: {"n": 2, "m": 3} | made,
        eo.uniform: {"shape": 2, "low": 0.0, "high": 1.0, "seed": 0} | made,
        eo.normal: {"shape": 2, "mean": 0.0, "std": 1.0, "seed": 0} | made,
        eo.zeros_like: {"reference": x, "dtype": "float32", "requires_grad": False},
        eo.ones_like: {"reference": x, "dtype": "float32", "requires_grad": False},
        eo.one_hot: {"indices": [0], "num_classes": 2, "dtype": "float32"},
        eo.clip: {"a": x, "low": 0.0, "high": 1.0},
        eo.where: {"condition": [True], "a": x, "b": x},
        eo.power: {"a": x, "exponent": 2},
        eo.reshape: {"a": x, "shape": (4,)},
        eo.transpose: {"a": x, "axes": (1, 0)},
        eo.flatten: {"a": x, "start_dim": 0},
        eo.squeeze: {"a": eo.ones(1, 2), "axis": 0},
        eo.expand_dims: {"a": x, "axis": 0},
        eo.broadcast_to: {"a": x, "shape": (2, 2)},
        eo.concatenate: {"tensors": [x, x], "axis": 0},
        eo.stack: {"tensors": [x, x], "axis": 0},
        eo.take: {"a": x, "indices": [0], "axis": 0},
        eo.softmax: {"a": x, "axis": 0},
        eo.log_softmax: {"a": x, "axis": 0},
        eo.from_dlpack: {"object": x},
        eo.conv2d: {"x": image, "weight": np.ones((1, 1, 2, 3)), "bias": np.ones(3), "stride": 1, "padding": 0},
        eo.max_pool2d: {"x": image, "pool_size": 2, "stride": 2, "padding": 0},
        eo.avg_pool2d: {"x": image, "pool_size": 2, "stride": 2, "padding": 0},
        eo.adaptive_avg_pool2d: {"x": image, "output_size": 2},
        eo.global_avg_pool2d: {"x": image},
        nn.Linear: {"in_features": 2, "out_features": 2, "bias": True} | seeded,
        nn.Conv2D: {"in_channels": 2, "out_channels": 2, "kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        | seeded,
        nn.MaxPool2D: {"pool_size": 2, "stride": 1, "padding": 0},
        nn.AvgPool2D: {"pool_size": 2, "stride": 1, "padding": 0},
        nn.AdaptiveAvgPool2D: {"output_size": 2},
        nn.BatchNorm1D: norm,
        nn.BatchNorm2D: norm,
        nn.LayerNorm: {"normalized_shape": 2, "eps": 1e-5},
        nn.GroupNorm: {"groups": 1, "num_features": 2, "eps": 1e-5},
        nn.Dropout: {"p": 0.5, "seed": 0},
        nn.Flatten: {"start_dim": 1},
        nn.Unflatten: {"sizes": (2, 1)},
        nn.Softmax: {"axis": 0},
        nn.LogSoftmax: {"axis": 0},
        nn.Parameter: {"data": x, "requires_grad": True, "name": "n"},
        nn.get_module_class: {"name": "Linear"},
        nn.save_arrays: {"path": weights, "arrays": {"w": x}},
        nn.load_arrays: {"path": weights},
        eo.save: {"model": MODEL, "path": archive, "metadata": {"k": 1}, "overwrite": True},
        eo.load: {"path": archive},
        eo.load_metadata: {"path": archive},
        eo.export_onnx: {"model": EXPORTED, "path": onnx, "input_shape": (1, 2), "opset": 17, "input_name": "x", "output_name": "y"},
        eo.export_onnx_traced: {
            "function": eo.relu, "path": onnx, "inputs": {"input": x}, "batch_name": "n", "dynamic_axes": {}, "autocast": None,
            "metadata": {"k": "v"}, "external_data_above": 100, "check": False, "tolerance": 0.0,
        },
        eo.run_onnx: {"path": onnx, "inputs": x, "input_name": "input"},
        eo.OnnxModel: {"path": onnx, "threads": 1},
        eo.compare_onnx: {"model": eo.relu, "path": onnx, "batches": [x], "input_name": "input"},
        nn.load_torch_weights: {"model": nn.Linear(2, 2), "source": {"weight": x, "bias": x[0]}, "name_map": None, "flattened": {}},
        MODEL.load_state_dict: {"state": MODEL.state_dict()},
        MODEL.append: {"layer": nn.ReLU()},
        MODEL.__getitem__: {"index": 0},
        MODEL.to: {"device": "cpu"},
        nn.Module().register_buffer: {"name": "b", "value": x},
        nn.Sequential.from_config: {"config": MODEL.get_config()},
        nn.initialization.get_initializer: {"name": "zeros"},
        nn.initialization.compute_fans: {"shape": (2, 3)},
        nn.initialization.uniform_init: {"shape": (2,), "low": 0.0, "high": 1.0, "seed": 0},
        nn.initialization.normal_init: {"shape": (2,), "mean": 0.0, "std": 1.0, "seed": 0},
        eo.SGD: optimizer | {"momentum": 0.5, "weight_decay": 0.0, "nesterov": False, "state_dtype": "float32",
                 "master_weights": True},
        eo.Adam: adam,
        eo.AdamW: adam,
        eo.optim.Optimizer: optimizer,
        eo.SGD(**optimizer).load_state_dict: {"state": eo.SGD(**optimizer).state_dict()},
        eo.clip_grad_norm: {"parameters": MODEL.parameters(), "max_norm": 1.0},
        eo.clip_grad_value: {"parameters": MODEL.parameters(), "limit": 1.0},
        eo.first_nonfinite: {"parameters": MODEL.parameters()},
        eo.GradScaler: {"init_scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2, "most_skips": 1},
        eo.GradScaler().load_state_dict: {"state": eo.GradScaler().state_dict()},
        eo.autocast: {"dtype": "float16"},
        eo.step_schedule: {"step_size": 1, "gamma": 0.5},
        eo.cosine_schedule: {"steps": 10, "minimum": 0.0},
        eo.warm_up: {"steps": 10, "after": eo.constant_schedule()},
        eo.Scheduler: {"optimizer": eo.SGD(**optimizer), "schedule": eo.constant_schedule()},
        eo.ArrayDataset: {"features": x, "targets": x},
        eo.TransformDataset: {"dataset": SAMPLES, "transform": None, "target_transform": None},
        eo.Subset: {"dataset": SAMPLES, "indices": [0]},
        eo.DataLoader: {"dataset": SAMPLES, "batch_size": 2, "seed": 0, "workers": 1, "prefetch": 1},
        eo.DataLoader(SAMPLES).load_state_dict: {"state": eo.DataLoader(SAMPLES).state_dict()},
        eo.pack: {"dataset": SAMPLES, "path": tmp_path / "packed"},
        eo.PackedDataset: {"path": packed.path},
        packed.__getitem__: {"index": 0},
        eo.load_idx: {"path": idx},
        eo.read_text: {"path": csv},
        eo.Vocabulary: {"characters": "ab"},
        eo.Vocabulary("ab").encode: {"text": "ab"},
        eo.Vocabulary("ab").decode: {"tokens": [0, 1]},
        eo.TextDataset: {"tokens": [0, 1, 2, 3], "window": 2, "stride": 1},
        eo.load_csv_dataset: {"path": csv, "target_column": -1, "delimiter": ",", "has_header": False, "skip_columns": ()},
        eo.random_split: {"dataset": SAMPLES, "fractions": (0.5, 0.5), "seed": 0},
        eo.stratified_split: {"x": np.ones((4, 1)), "y": [0, 0, 1, 1], "test_size": 0.5, "seed": 0},
        eo.standardize: {"data": x, "axis": 0},
        eo.normalize: {"data": x, "axis": 0, "order": 2},
        eo.min_max_scale: {"data": x, "feature_range": (0, 1), "axis": 0},
        eo.MinMaxScaler: {"feature_range": (0, 1)},
        eo.StandardScaler().fit: {"data": x},
        eo.StandardScaler().fit(x).transform: {"data": x},
        eo.one_hot_encode: {"labels": [0, 1], "num_classes": 2},
        eo.Trainer: {
            "model": MODEL,
            "optimizer": eo.SGD(**optimizer),
            "loss_fn": nn.MSELoss(),
            "metrics": ("mse",),
            "device": "cpu",
            "gradient_clip": 1.0,
            "count": len,
            "precision": "float16",
            "scaler": eo.GradScaler(),
        },
        trainer().fit: {"train_loader": eo.DataLoader(SAMPLES, 2), "epochs": 1, "validation_loader": None, "callbacks": (),
                        "verbose": False, "log_every": 1, "accumulation": 2},  # fmt: skip
        trainer().load: {"state": trainer().state()},
        eo.count_targets: {"targets": [0, 1], "ignore_index": 0},
        eo.micro_batches: {"features": x, "targets": [0, 1], "accumulation": 2, "ignore_index": 0, "count": None},
        eo.CheckpointStore: {"folder": tmp_path / "run", "keep_last": 2},
        eo.CheckpointStore(tmp_path / "run").save: {"state": {"step": 1}, "step": 1, "is_best": True},
        eo.Checkpoints: {"store": tmp_path / "run", "monitor": "loss", "mode": "min", "every": 1},
        trainer().evaluate: {"loader": eo.DataLoader(SAMPLES, 2)},
        trainer().predict: {"data": x, "batch_size": 2},
        eo.EarlyStopping: {"monitor": "loss", "patience": 1, "min_delta": 0.0, "mode": "min"},
        eo.ModelCheckpoint: {"path": "x.safetensors", "monitor": "loss", "mode": "min"},
        eo.ProgressLogger: {"every": 1},
        eo.CSVLogger: {"path": tmp_path / "log.csv"},
        eo.LearningRateScheduler: {"schedule": lambda epoch, lr: lr},
        eo.get_metric: {"name": "mse"},
        eo.accuracy: {"prediction": x, "target": x},
        eo.binary_accuracy: {"prediction": x, "target": x, "threshold": 0.5},
        eo.mean_squared_error: {"prediction": x, "target": x},
        eo.mean_absolute_error: {"prediction": x, "target": x},
        eo.r2_score: {"prediction": x, "target": x},
        eo.confusion_matrix: {"prediction": [0, 1], "target": [0, 1], "num_classes": 2},
        nn.cross_entropy: {"prediction": x, "target": [0, 1], "reduction": "mean", "ignore_index": 0},
        eo.datasets.render_digit: {"digit": 1},
        eo.datasets.load_digits: {"samples_per_class": 2, "noise": 0.1, "max_shift": 1, "seed": 0},
        eo.datasets.make_regression: {"n_samples": 2, "n_features": 1, "noise": 0.1, "bias": 0.0, "seed": 0},
        eo.datasets.make_blobs: {"n_samples": 2, "n_features": 1, "centers": 2, "spread": 0.1, "seed": 0},
        eo.datasets.make_moons: {"n_samples": 2, "noise": 0.1, "seed": 0},
        eo.datasets.make_spirals: {"n_samples": 3, "classes": 3, "noise": 0.1, "turns": 1.0, "seed": 0},
        eo.datasets.make_xor: {"n_samples": 4, "noise": 0.1, "seed": 0},
        eo.datasets.make_recall_task: {"n_samples": 2, "length": 3, "num_classes": 2, "vocab_size": 4, "seed": 0},
        eo.datasets.make_copy_task: {"n_samples": 2, "length": 3, "vocab_size": 4, "seed": 0},
        eo.datasets.make_parity_task: {"n_samples": 2, "length": 3, "seed": 0},
        eo.datasets.load_handwritten_digits: {"path": None},
        eo.Tensor(x).to: {"device": "cpu", "dtype": "float32"},
        eo.Tensor(x).astype: {"dtype": "float32"},
        eo.Tensor(x).argmax: {"axis": 0},
        eo.Tensor(x).argmin: {"axis": 0},
        eo.Tensor(x).flatten: {"start_dim": 0},
        eo.Tensor(x).clip: {"low": 0.0, "high": 1.0},
        eo.ones(1, requires_grad=True).sum().backward: {"gradient": 1.0},
    }
    for function in (nn.mse_loss, nn.mae_loss, nn.binary_cross_entropy, nn.binary_cross_entropy_with_logits):
        calls[function] = loss
    for kind in (nn.MSELoss, nn.MAELoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.CrossEntropyLoss):
        calls[kind] = {"reduction": "mean"}
    for name in ("xavier_uniform", "xavier_normal", "he_uniform", "he_normal"):
        calls[getattr(nn.initialization, name)] = {"shape": (2, 3), "gain": 1.0, "seed": 0}
    for name in "add subtract multiply divide matmul dot maximum minimum equal not_equal less less_equal greater greater_equal".split():
        calls[getattr(eo, name)] = {"a": x, "b": x}
    for name in "exp log sqrt abs relu sigmoid tanh gelu silu negative".split():
        calls[getattr(eo, name)] = {"a": x}
    for name in "sum mean max min variance".split():
        calls[getattr(eo, name)] = {"a": x, "axis": 0, "keepdims": False}
        calls[getattr(eo.Tensor(x), name)] = {"axis": 0, "keepdims": False}
    return calls


# Those that take any number of arguments, and those that need none or are no functions.
OTHERS = """
zeros ones rand randn train_test_split shuffle_arrays Sequential no_grad enable_grad set_grad_enabled is_tensor register_module
ReLU Sigmoid Tanh GELU SiLU GlobalAvgPool2D Module Loss LoadReport Dataset Callback History Schedule constant_schedule
Checkpoint MicroBatch MODULE_REGISTRY DTYPES __version__ core data datasets distributed nn optim serialization training initialization StandardScaler
autocast_dtype is_autocast_enabled precision_report OnnxAgreement onnx_available
""".split()


def trainer():
    model = nn.Sequential(nn.Linear(2, 2, seed=0))
    return eo.Trainer(model, eo.SGD(model.parameters(), 0.01), nn.MSELoss())


def check(call, what):
    """Runs a call that need not fail; if it does, then so that one can see why."""
    try:
        call()
    except MemoryError:
        pass
    except CLASSES as error:
        text = str(error)
        assert text, what
        assert "incompatible function arguments" not in text and "std::" not in text and "nanobind" not in text, (what, text)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def test_every_name_is_called(tmp_path):
    called = {function.__name__ for function in right_calls(tmp_path)}
    missing = [
        name
        for name in eo.__all__
        if name not in called and name not in OTHERS and not (name.startswith("EveryO") and name.endswith("Error"))
    ]
    assert missing == []


def test_right_arguments_are_taken(tmp_path):
    for function, arguments in right_calls(tmp_path).items():
        function(**arguments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrong", WRONG, ids=[re.sub("0x[0-9a-f]+", "", repr(value)) for value in WRONG])
def test_wrong_kinds_have_sentences(wrong, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for function, arguments in right_calls(tmp_path).items():
        name = getattr(function, "__qualname__", str(function))
        for argument in arguments:
            if argument == "epochs" and isinstance(wrong, int) and wrong == 2**70:
                continue  # it would begin
            check(lambda: function(**arguments | {argument: wrong}), f"{name}({argument}={wrong!r})")
        check(lambda: function(), f"{name}()")
        check(lambda: function(*[wrong] * 12), f"{name} of twelve")
        check(lambda: function(**arguments, colour=wrong), f"{name}(colour={wrong!r})")
    for function in (eo.zeros, eo.ones, eo.rand, eo.randn, eo.zeros(2).reshape, eo.zeros(2).transpose):
        check(lambda: function(wrong), f"{function}({wrong!r})")
        check(lambda: function(2, wrong), f"{function}(2, {wrong!r})")
    for function in (eo.train_test_split, eo.shuffle_arrays):
        check(lambda: function(wrong), str(function))
        check(lambda: function(np.ones(4), seed=wrong), str(function))
    check(lambda: eo.train_test_split(np.ones(4), test_size=wrong), "train_test_split")
    check(lambda: nn.Sequential(wrong), "Sequential")
    for operator in ("__add__", "__rsub__", "__mul__", "__rtruediv__", "__matmul__", "__pow__", "__eq__", "__lt__", "__getitem__"):
        check(lambda: getattr(eo.ones(2, 2), operator)(wrong), operator)
    for key in (wrong, (wrong,), (0, wrong), slice(wrong, None), slice(None, None, wrong), [wrong]):
        check(lambda: eo.ones(2, 2)[key], f"[{key!r}]")
        check(lambda: eo.ones(2, 2).__setitem__(key, 1.0), f"[{key!r}] = 1")
        check(lambda: eo.ones(2, 2).__setitem__(0, key), f"[0] = {key!r}")
    for name in ("data", "grad", "requires_grad", "name"):
        check(lambda: setattr(eo.ones(2, requires_grad=True), name, wrong), f"tensor.{name} = {wrong!r}")
    check(lambda: setattr(eo.SGD(MODEL.parameters()), "lr", wrong), f"lr = {wrong!r}")


def test_wrong_selves_have_sentences():
    for name, method in inspect.getmembers(eo.Tensor, callable):
        if name not in ("__class__", "__new__", "__init_subclass__", "__subclasshook__", "__init__"):
            check(lambda: method(3), name)


def test_wrong_hyperparameters_have_the_contracts_classes():
    parameters = MODEL.parameters()
    trained = trainer()
    loader = eo.DataLoader(SAMPLES, 2)
    for kind, words, call in (
        (eo.EveryODTypeError, "dtype", lambda: eo.Tensor([1], dtype=3)),
        (eo.EveryODTypeError, "dtype", lambda: eo.zeros(2, dtype=3)),
        (eo.EveryODTypeError, "dtype", lambda: eo.Tensor([1]).astype(3)),
        (eo.EveryOError, "EveryO tensor", lambda: eo.SGD(5)),
        (eo.EveryOError, "EveryO tensor", lambda: eo.Adam(None)),
        (ValueError, "betas", lambda: eo.Adam(parameters, betas=(0.9,))),
        (TypeError, "betas", lambda: eo.Adam(parameters, betas=0.9)),
        (TypeError, "lr", lambda: eo.SGD(parameters, lr="a")),
        (TypeError, "lr", lambda: eo.SGD(parameters, lr=None)),
        (TypeError, "momentum", lambda: eo.SGD(parameters, momentum="a")),
        (TypeError, "epochs", lambda: trained.fit(loader, epochs=1.5, verbose=False)),
        (TypeError, "epochs", lambda: trained.fit(loader, epochs="a", verbose=False)),
        (TypeError, "epochs", lambda: trained.fit(loader, epochs=None, verbose=False)),
        (TypeError, "gradient_clip", lambda: eo.Trainer(MODEL, eo.SGD(parameters), nn.MSELoss(), gradient_clip="a")),
        (TypeError, "batch_size", lambda: eo.DataLoader(SAMPLES, "a")),
        (TypeError, "batch_size", lambda: eo.DataLoader(SAMPLES, None)),
        (ValueError, "batch_size", lambda: eo.DataLoader(SAMPLES, 1.5)),
        (TypeError, "test_size", lambda: eo.train_test_split(np.ones(4), test_size="a")),
        (TypeError, "in_features", lambda: nn.Linear(2.0, 3)),
        (TypeError, "out_features", lambda: nn.Linear(2, "a")),
        (TypeError, "in_channels", lambda: nn.Conv2D(None, 3)),
        (TypeError, "num_features", lambda: nn.BatchNorm1D("a")),
        (TypeError, "p is", lambda: nn.Dropout("a")),
        (TypeError, "eps", lambda: nn.LayerNorm(3, eps="a")),
        (TypeError, "Schedule|schedule", lambda: eo.Scheduler(eo.SGD(parameters), 3)),
    ):
        with pytest.raises(kind, match=words):
            call()
    assert issubclass(eo.EveryODTypeError, eo.EveryOError)

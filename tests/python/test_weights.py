"""Files of weights, and a network that PyTorch trained and saved (tests/oracle/make_torch_weights.py)."""

import pathlib

import numpy as np
import pytest

import everyo as eo
from everyo import nn

FILE = pathlib.Path(__file__).parent / "torch_model.safetensors"
EXAMPLES = ("input", "features", "output")


class Net(nn.Module):
    """The same network, by other names, channels last."""

    def __init__(self):
        super().__init__()
        # PyTorch pads rows alone, by (1, 0); here a row of zeros is put around the image in forward.
        self.stem = nn.Conv2D(3, 4, (3, 2))
        self.norm = nn.BatchNorm2D(4)
        self.pool = nn.MaxPool2D(2)
        self.mix = nn.Conv2D(4, 5, 1, bias=False)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(60, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3))

    def features(self, x):
        row = eo.zeros(x.shape[0], 1, *x.shape[2:])
        x = self.stem(eo.concatenate([row, x, row], axis=1))
        return self.mix(self.pool(eo.relu(self.norm(x))))

    def forward(self, x):
        return self.head(self.features(x))


NAMES = {"stem": "features.0", "norm": "features.1", "mix.weight": "features.4.weight"}
FLATTENED = {"head.1": (5, 4, 3)}


def torch_state():
    state = nn.load_arrays(FILE)
    return {name: value for name, value in state.items() if name not in EXAMPLES}, {
        name: state[name] for name in EXAMPLES
    }


def test_a_network_from_pytorch_gives_pytorchs_outputs():
    state, examples = torch_state()
    for names in (
        NAMES,
        lambda name: name.replace("stem", "features.0").replace("norm", "features.1").replace("mix", "features.4"),
    ):
        net = Net()
        report = nn.load_torch_weights(net, state, names, flattened=FLATTENED)
        net.eval()
        assert report == ([], []) and net.norm.num_batches_tracked == 3
        # Sums of at most 60 float32 products, in another order.
        assert np.allclose(
            net.features(eo.tensor(examples["input"])).numpy(), examples["features"], rtol=1e-4, atol=1e-5
        )
        assert np.allclose(net(examples["input"]).numpy(), examples["output"], rtol=1e-4, atol=1e-5)


def test_a_flattened_image_needs_its_rows_in_our_order():
    state, examples = torch_state()
    net = Net()
    nn.load_torch_weights(net, state, NAMES)
    assert not np.allclose(net.eval()(examples["input"]).numpy(), examples["output"], atol=1e-2)
    for flattened in ({"head.1": (5, 4, 4)}, {"head.0": (5, 4, 3)}):
        with pytest.raises(eo.EveryOSerializationError, match="flatten"):
            nn.load_torch_weights(net, state, NAMES, flattened=flattened)


def test_a_file_loads_as_it_is_when_the_names_are_the_same(tmp_path):
    weight, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7.0, 8.0], np.float32)  # PyTorch's (out, in)
    nn.save_arrays(tmp_path / "linear.safetensors", {"0.weight": weight, "0.bias": bias})
    model = nn.Sequential(nn.Linear(3, 2))
    nn.load_torch_weights(model, tmp_path / "linear.safetensors")
    assert np.array_equal(model[0].weight.numpy(), weight.T) and np.array_equal(model[0].bias.numpy(), bias)


def test_names_that_do_not_fit_are_said_in_pytorchs_words():
    state, _ = torch_state()
    net = Net()
    before = net.state_dict()
    lacking = {name: value for name, value in state.items() if name != "features.0.bias"}
    for given, words in (
        (lacking, "Missing keys: 'features.0.bias'"),
        ({**state, "tail.weight": np.zeros(1)}, "Unexpected keys: 'tail.weight'"),
    ):
        with pytest.raises(eo.EveryOSerializationError, match=words):
            nn.load_torch_weights(net, given, NAMES, flattened=FLATTENED)
        assert all(np.array_equal(before[name], value) for name, value in net.state_dict().items())
    report = nn.load_torch_weights(net, {**lacking, "tail.weight": np.zeros(1)}, NAMES, strict=False)
    assert report.missing == ["features.0.bias"] and report.unexpected == ["tail.weight"]
    with pytest.raises(eo.EveryOSerializationError, match="expects shape"):
        nn.load_torch_weights(net, {**state, "head.4.weight": np.zeros((3, 7))}, NAMES)


def test_arrays_round_trip_and_bad_files_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    model = nn.Sequential(nn.Linear(3, 2, seed=0), nn.BatchNorm1D(2))
    nn.save_arrays(path, model.state_dict())
    twin = nn.Sequential(nn.Linear(3, 2, seed=1), nn.BatchNorm1D(2))
    twin.load_state_dict(nn.load_arrays(path))
    assert all(twin.state_dict()[name].tobytes() == value.tobytes() for name, value in model.state_dict().items())
    assert twin.state_dict()["1.num_batches_tracked"].dtype == np.int64
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(eo.EveryOSerializationError):
        nn.load_arrays(path)
    with pytest.raises(FileNotFoundError):
        nn.load_arrays(tmp_path / "gone.safetensors")


class TorchLike:
    """What numpy.asarray refuses until it is detached, as a PyTorch parameter."""

    def __init__(self, array, detached=False):
        self.array, self.detached = array, detached

    def detach(self):
        return TorchLike(self.array, True)

    def __array__(self, dtype=None, copy=None):
        if not self.detached:
            raise RuntimeError("call detach() first")
        return self.array


def test_parameters_are_taken_without_their_graph():
    weight, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)
    model = nn.Linear(3, 2)
    nn.load_torch_weights(model, {"weight": TorchLike(weight), "bias": TorchLike(bias)})
    assert np.array_equal(model.weight.numpy(), weight.T) and np.array_equal(model.bias.numpy(), bias)


def test_pytorchs_bfloat16_is_loaded():
    torch = pytest.importorskip("torch")
    layer, model = torch.nn.Linear(3, 2).bfloat16(), nn.Linear(3, 2)
    nn.load_torch_weights(model, layer.state_dict())
    assert np.array_equal(model.weight.numpy(), layer.weight.detach().float().numpy().T)

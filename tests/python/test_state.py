"""States of modules: parameters, buffers, copies."""

import copy
import pickle

import numpy as np
import pytest
from nets import Block, Net

import everyo as eo
from everyo import nn


def test_Y10_TiedModulesAreCountedOnce():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3, seed=0)
            self.second = self.first
            self.third = nn.Linear(3, 3, seed=1)
            self.third.weight = self.first.weight
            self.both = [self.first, self.third]

        def forward(self, x):
            return self.third(self.second(self.first(x)))

    net = Tied()
    assert [name for name, _ in net.named_parameters()] == ["first.weight", "first.bias", "third.bias"]
    assert net.num_parameters() == 15 and list(net.state_dict()) == ["first.weight", "first.bias", "third.bias"]
    before = net.first.weight.numpy()
    optimizer = eo.optim.SGD(net.parameters(), lr=0.1)
    net(np.ones((2, 3), np.float32)).sum().backward()
    gradient = net.first.weight.grad.copy()
    optimizer.step()
    assert np.allclose(net.first.weight.numpy(), before - 0.1 * gradient, rtol=1e-6)  # once; float32 rounding
    twin = copy.deepcopy(net)
    assert (
        twin.second is twin.first
        and twin.third.weight is twin.first.weight
        and twin.first.weight is not net.first.weight
    )
    state = net.state_dict()
    state["second.weight"] = state["first.weight"]  # under another of its names
    net.load_state_dict(state)
    del state["first.weight"]
    net.load_state_dict(state)
    state["third.weight"] = state["second.weight"] + 1
    with pytest.raises(eo.EveryOSerializationError, match="different values"):
        net.load_state_dict(state)


def test_buffers_are_assigned_by_name():
    block = Block(2)
    block.count = block.count + 3
    assert block.state_dict()["count"] == 3 and block.buffers()[0] is block.count
    block.register_buffer("table", [[1.0, 2.0]])
    assert block.table.shape == (1, 2) and "table" in block.state_dict()


def test_state_is_copied_out_and_in():
    net, other = Net(), Net()
    state = net.state_dict()
    state["offset"][:] = 5
    assert net.offset.numpy().tolist() == [0] * 4
    state["blocks.1.count"] = np.array(7)
    other.load_state_dict(state)
    assert other.offset.numpy().tolist() == [5] * 4 and other.blocks[1].count == 7
    assert np.array_equal(other.stem.weight.numpy(), net.stem.weight.numpy())
    identity = other.offset
    other.load_state_dict({"offset": eo.zeros(4)}, strict=False)
    assert other.offset is identity and identity.numpy().tolist() == [0] * 4


def test_state_is_converted_to_the_parameters_dtype():
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": np.array([[1.5], [2]], np.float64), "bias": np.array([3])})
    assert model.weight.dtype == "float32" and model.weight.tolist() == [[1.5], [2]] and model.bias.tolist() == [3]


def test_a_state_that_does_not_fit_writes_nothing():
    net = Net()
    good = net.state_dict()
    missing = {name: value for name, value in good.items() if name != "stem.bias"}
    for state, words in (
        (missing, "Missing keys: 'stem.bias'"),
        ({**good, "gone": np.zeros(1)}, "Unexpected keys: 'gone'"),
        (
            {**good, "offset": good["offset"] + 1, "stem.weight": np.zeros((2, 4))},
            r"'stem.weight' expects shape \(4, 4\).*\(2, 4\)",
        ),
        (
            {**good, "offset": good["offset"] + 1, "blocks.0.count": np.zeros(3)},
            "Buffer 'blocks.0.count' expects shape",
        ),
    ):
        with pytest.raises(eo.EveryOSerializationError, match=words):
            net.load_state_dict(state)
        assert net.offset.tolist() == [0] * 4
    report = net.load_state_dict({**missing, "gone": np.zeros(1)}, strict=False)
    assert report.missing == ["stem.bias"] and report.unexpected == ["gone"]


def test_pickled_and_copied_modules_are_equal_and_apart():
    net = Net()
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert np.array_equal(twin(x).numpy(), net(x).numpy()) and list(twin.state_dict()) == list(net.state_dict())
        assert isinstance(twin.offset, nn.Parameter) and twin.offset.requires_grad
        twin.offset.data = np.ones(4)
        twin.blocks[0].count += 1
        assert net.offset.tolist() == [0] * 4 and net.blocks[0].count == 0 and twin.state_dict()["blocks.0.count"] == 1


def test_batch_norm_copies_have_their_own_statistics():
    net = nn.Sequential(nn.BatchNorm1D(2))
    twin = copy.deepcopy(net)
    twin(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32))
    assert net[0].running_mean.tolist() == [0, 0] and twin.state_dict()["0.running_mean"].tolist() != [0, 0]


def test_a_state_of_something_else_than_numbers_is_refused():
    model = nn.Linear(1, 1)
    with pytest.raises(eo.EveryOSerializationError, match="numbers"):
        model.load_state_dict({"weight": [["a"]], "bias": [0.0]})


def test_a_replaced_parameter_keeps_its_place():
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(np.ones((2, 2), np.float32))
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_a_parameter_is_not_replaced_by_something_else():
    layer = nn.Linear(2, 2)
    for value in (np.ones((2, 2), np.float32), layer.weight + 1, 3):
        with pytest.raises(TypeError, match="weight is a parameter"):
            layer.weight = value
    assert list(layer.state_dict()) == ["weight", "bias"]
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]


def test_tied_buffers_load_under_any_name():
    net = nn.Sequential(nn.BatchNorm1D(2, affine=False))
    net.append(net[0])
    state = {f"1.{name}": value + 1 for name, value in net[0].state_dict().items()}
    net.load_state_dict(state)
    assert net[0].running_mean.tolist() == [1, 1] and list(net.state_dict())[0] == "0.running_mean"
    with pytest.raises(eo.EveryOSerializationError, match="different values"):
        net.load_state_dict({**state, "0.running_mean": np.zeros(2)})


def test_buffers_stay_writable_and_as_wide():
    layer = nn.BatchNorm1D(2)
    fixed = np.zeros(2)
    fixed.flags.writeable = False
    layer.running_mean = fixed
    assert layer.running_mean.dtype == np.float32
    layer(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32))
    assert np.allclose(layer.running_mean, [0.2, 0.4], rtol=1e-6) and fixed.tolist() == [0, 0]


WRONG_STATES = {
    "no mapping": lambda state: None,
    "a list": lambda state: list(state.items()),
    "ragged": lambda state: state | {"0.weight": [[1, 2], [3]]},
    "text": lambda state: state | {"0.weight": "a"},
    "an object": lambda state: state | {"0.weight": object()},
    "None": lambda state: state | {"0.weight": None},
    "complex": lambda state: state | {"0.weight": np.ones((3, 2), complex)},
    "shape": lambda state: state | {"0.weight": np.ones((2, 3))},
    "buffer shape": lambda state: state | {"1.running_mean": np.ones(3)},
    "NaN as a count": lambda state: state | {"1.num_batches_tracked": np.array(np.nan)},
    "infinity as a count": lambda state: state | {"1.num_batches_tracked": np.array(np.inf)},
    "a broken count": lambda state: state | {"1.num_batches_tracked": np.array(1.5)},
    "a count of 64 bits": lambda state: state | {"1.num_batches_tracked": np.array(2**63, "u8")},
    "a float of 64 bits": lambda state: state | {"1.num_batches_tracked": np.array(2.0**63)},
    "a key that is no text": lambda state: state | {3: np.ones(2)},
}


@pytest.mark.parametrize("wrong", WRONG_STATES)
def test_wrong_states_are_serialization_errors(wrong):
    model = nn.Sequential(nn.Linear(3, 2, seed=0), nn.BatchNorm1D(2))
    before = {name: value.tolist() for name, value in model.state_dict().items()}
    state = {name: value + 1 for name, value in model.state_dict().items()}
    with pytest.raises(eo.EveryOSerializationError, match="load_state_dict"):
        model.load_state_dict(WRONG_STATES[wrong](state))
    assert {name: value.tolist() for name, value in model.state_dict().items()} == before
    model.load_state_dict(state | {"1.num_batches_tracked": np.array(3.0)})
    assert model.layers[1].num_batches_tracked == 3


@pytest.mark.parametrize("wrong", [None, [], "a", {}, {"parameters": None}, {3: 4}, {"step": 2**70}, {"lr": object()}])
def test_wrong_states_of_optimizers_are_everyo_errors(wrong):
    optimizer = eo.Adam(nn.Linear(3, 2, seed=0).parameters())
    with pytest.raises(eo.EveryOError):
        optimizer.load_state_dict(wrong)

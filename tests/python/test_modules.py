"""What every module does: names, modes, calls, configurations. Layers' own values are in test_layers.py."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from nets import NET_PARAMETERS, Block, Net

import everyo as eo
from everyo import nn


def test_names_are_own_first_then_children():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NET_PARAMETERS
    assert [name for name, _ in net.named_buffers()] == ["blocks.0.count", "blocks.1.count"]
    assert [name for name, _ in net.named_modules()] == [
        "",
        "stem",
        "blocks.0",
        "blocks.0.linear",
        "blocks.1",
        "blocks.1.linear",
    ]
    assert [name for name, _ in net.named_parameters("net")][:2] == ["net.offset", "net.stem.weight"]
    assert list(net.state_dict()) == NET_PARAMETERS + ["blocks.0.count", "blocks.1.count"]
    assert next(iter(net.state_dict("net"))) == "net.offset"
    assert isinstance(net.parameters(), list) and net.num_parameters() == 4 + 20 + 2 * 24
    net.offset.requires_grad = False
    assert net.num_parameters(trainable_only=True) == net.num_parameters() - 4
    assert all(isinstance(array, np.ndarray) for array in net.buffers())


def test_sequential_keys():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.BatchNorm1D(2), nn.Linear(2, 1, bias=False))
    assert list(model.state_dict()) == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
        "3.weight",
        "2.running_mean",
        "2.running_var",
        "2.num_batches_tracked",
    ]
    assert len(model) == 4 and model.layers[1] is model[1] and list(model)[3] is model[3] and model[-1] is model[3]
    assert model.append(nn.Sigmoid()) is model and len(model.layers) == 5
    model.layers[0] = nn.Linear(3, 2, bias=False)
    assert "0.bias" not in model.state_dict()
    for wrong in (lambda: nn.Sequential(3), lambda: model.append("x")):
        with pytest.raises(TypeError, match="Module instances"):
            wrong()
    with pytest.raises(AttributeError, match="layers"):
        model.layers = []


def test_a_module_that_holds_itself_is_walked_once():
    net = Net()
    net.again = net
    assert [name for name, _ in net.named_parameters()] == NET_PARAMETERS


def test_lists_may_grow_and_attributes_be_replaced():
    net = Net()
    net.blocks.append(Block(4))
    assert "blocks.2.scale" in net.state_dict()
    net.stem = nn.Linear(4, 4, bias=False)
    assert "stem.bias" not in net.state_dict()
    net.offset = None
    assert net.offset is None and "offset" not in net.state_dict()
    del net.stem
    assert "stem.weight" not in net.state_dict() and not hasattr(net, "stem")
    net.pair = (nn.Parameter(np.ones(1, np.float32)), nn.Linear(1, 1))
    assert "pair.0" in net.state_dict() and "pair.1.weight" in net.state_dict()


def test_assigning_before_init_says_so():
    class Hasty(nn.Module):
        def __init__(self, what):
            if what == "buffer":
                self.register_buffer("table", np.zeros(1))
            self.part = {"parameter": lambda: nn.Parameter(np.zeros(1)), "module": nn.ReLU}[what]()

    for what in ("parameter", "module", "buffer"):
        with pytest.raises(eo.EveryOError, match="super"):
            Hasty(what)


def test_forward_must_be_defined():
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(eo.ones(1))


def test_modes_reach_all_below():
    net = Net()
    assert net.training and net.eval() is net
    assert not any(module.training for _, module in net.named_modules())
    net.blocks[0].train()
    assert net.blocks[0].linear.training and not net.blocks[1].training
    assert net.train() is net and all(module.training for _, module in net.named_modules())


def test_apply_reaches_each_module_once():
    net, seen = Net(), []
    net.twice = net.stem
    assert net.apply(seen.append) is net
    assert seen == [module for _, module in net.named_modules()] and len(seen) == 6


def test_zero_grad_clears_gradients():
    net = Net()
    net(np.ones((2, 4), np.float32)).sum().backward()
    assert net.stem.weight.grad is not None
    net.zero_grad()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_to_knows_devices():
    net = Net()
    assert net.to("cpu") is net and net.to(None) is net
    with pytest.raises(eo.EveryODeviceError, match="Unknown device type"):
        net.to("abacus")


def test_configurations_make_the_same_architecture():
    model = nn.Sequential(
        nn.Conv2D(1, 2, (3, 1), stride=2, padding="same", bias=False, seed=0),
        nn.BatchNorm2D(2, momentum=0.2),
        nn.ReLU(),
        nn.MaxPool2D(2, stride=1),
        nn.AvgPool2D(2, padding=1),
        nn.Flatten(),
        nn.Dropout(0.25, seed=3),
        nn.Linear(4, 3, initializer="xavier_normal", seed=1),
        nn.LayerNorm((3,), affine=False),
        nn.Sequential(nn.Tanh(), nn.Sigmoid()),
        nn.Softmax(1),
        nn.LogSoftmax(),
        nn.BatchNorm1D(3, affine=False, track_running_stats=False),
        nn.Conv2D(2, 2, dilation=2, groups=2),
        nn.GroupNorm(2, 4),
        nn.Unflatten((2, 2)),
        nn.AdaptiveAvgPool2D((2, 1)),
        nn.GlobalAvgPool2D(),
        nn.GELU(),
        nn.SiLU(),
    )
    assert "seed" not in repr(model.get_config())
    twin = nn.Sequential.from_config(model.get_config())
    assert repr(twin) == repr(model) and twin.get_config() == model.get_config()
    assert {name: value.shape for name, value in twin.state_dict().items()} == {
        name: value.shape for name, value in model.state_dict().items()
    }
    assert nn.MSELoss.from_config(nn.MSELoss("sum").get_config()).reduction == "sum" and nn.ReLU().get_config() == {}


def test_the_registry_knows_classes_by_name():
    @nn.register_module
    class Mine(nn.Module):
        def forward(self, x):
            return x

    try:
        assert nn.get_module_class("Mine") is Mine and nn.get_module_class("Linear") is nn.Linear
        assert isinstance(nn.Sequential.from_config(nn.Sequential(Mine()).get_config())[0], Mine)
    finally:
        del nn.MODULE_REGISTRY["Mine"]
    with pytest.raises(eo.EveryOSerializationError, match="Unknown module type"):
        nn.get_module_class("Mine")


def test_repr_and_summary_show_the_tree():
    net = Net()
    text = repr(net)
    assert text.startswith("Net(\n  (stem): Linear(in_features=4") and "(blocks.1): Block(" in text
    summary = net.summary()
    assert f"Total parameters: {net.num_parameters()}" in summary and "blocks.0.linear" in summary
    rows = [line.split() for line in summary.splitlines()]
    assert ["(model)", "Net", "4"] in rows and ["stem", "Linear", "20"] in rows
    assert repr(nn.Parameter(np.zeros(2, np.float32))).startswith("Parameter(")


def test_forgetting_init_is_named_wherever_it_shows():
    class Bare(nn.Module):
        def __init__(self):
            self.width = 3

        def forward(self, x):
            return x

    bare = Bare()
    assert bare(1) == 1 and bare.width == 3
    for call in (bare.parameters, bare.state_dict, bare.eval):
        with pytest.raises(eo.EveryOError, match="super"):
            call()
    with pytest.raises(AttributeError, match="no attribute 'height'"):
        bare.height

    class Listed(nn.Module):
        def __init__(self):
            self.layers = [nn.ReLU()]

    with pytest.raises(eo.EveryOError, match="super"):
        Listed()


def test_a_module_in_two_places_is_called_by_its_first_name():
    paths = []

    class Spy(nn.Module):
        def forward(self, x):
            paths.append(eo._core.module_path())
            return x

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = Spy()
            self.all = [self.one, Spy()]
            self.again = self.one

        def forward(self, x):
            for module in self.all:
                x = module(x)
            return self.again(x)

    net = nn.Sequential(Pair())
    for _ in range(2):
        net(eo.ones(1))
        assert paths == ["0.one", "0.all.1", "0.one"]
        paths.clear()
        list(net.named_modules())  # walking changes nothing

    shared, first, second = Spy(), nn.Module(), nn.Module()
    first.spy, second.other = shared, shared
    both = nn.Sequential(first, second)
    both.parameters()
    shared(eo.ones(1))
    assert paths == ["spy"]


def test_a_layer_whose_forward_was_replaced_is_called_by_it():
    model = nn.Sequential(nn.Linear(2, 2, seed=0), nn.ReLU())
    model[0].forward = lambda x: x * 0.0 + 7.0
    assert model(np.ones((1, 2), np.float32)).tolist() == [[7.0, 7.0]]


def test_sizes_may_be_numpys():
    size = np.int64(2)
    assert nn.Conv2D(1, 1, size, stride=size, padding=np.int64(1)).get_config()["padding"] == 1
    assert nn.LayerNorm(size).normalized_shape == (2,) and nn.MaxPool2D(size).pool_size == (2, 2)


def test_threads_may_call_one_model():
    net = nn.Sequential(Net(), nn.Dropout(0.5, seed=1), nn.BatchNorm1D(4)).eval()
    batches = [np.full((64, 4), i, np.float32) for i in range(8)]
    expected = [net(x).numpy().tobytes() for x in batches]

    def work(i):
        return all(net(batches[i]).numpy().tobytes() == expected[i] for _ in range(50)) and eo._core.module_path() == ""

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_repr_of_a_module_that_holds_itself_ends():
    net = Net()
    net.again = net
    assert "(again): ..." in repr(net)

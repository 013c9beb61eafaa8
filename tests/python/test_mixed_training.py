"""The Trainer in float16 and bfloat16; masters of half parameters."""

import copy
import logging
import pickle

import numpy as np
import pytest

import everyo as eo
from everyo import nn, training


def data(rows=54):
    rng = np.random.default_rng(1)
    y = np.arange(rows) % 2
    x = rng.normal(size=(rows, 2)) + np.where(y == 0, 1.0, -1.0)[:, None]
    return x.astype(np.float32), y


class Overflowing:
    """A loss that is finite while its gradient overflows float16 whatever the scale, at the calls that `bad` names."""

    def __init__(self, bad):
        self.bad, self.calls = bad, 0

    def __call__(self, prediction, targets):
        loss = nn.cross_entropy(prediction, targets)
        self.calls += 1
        return loss + prediction.astype("float32").sum() * 1e30 if self.bad(self.calls) else loss


def net():
    return nn.Sequential(nn.Linear(2, 8, seed=1), nn.ReLU(), nn.Linear(8, 2, seed=2))


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_forward_loss_and_evaluation_are_in_it(precision):
    seen = []

    def loss(prediction, targets):
        seen.append(str(prediction.dtype))
        return nn.cross_entropy(prediction, targets)

    model = net()
    trainer = eo.Trainer(model, eo.SGD(model.parameters(), lr=0.1), loss, metrics=["accuracy"], precision=precision)
    loader = eo.DataLoader(eo.ArrayDataset(*data()), batch_size=27)
    history = trainer.fit(loader, epochs=2, verbose=False)
    trainer.evaluate(loader)
    assert seen == [precision] * 6 and not eo.is_autocast_enabled()
    assert trainer.predict(data()[0]).dtype == np.float32 and model[0].weight.dtype == "float32"
    assert trainer.precision == precision and (trainer.scaler is not None) == (precision == "float16")
    assert ("loss_scale" in history) == (precision == "float16")


def test_a_skipped_step_moves_nothing_and_is_named(caplog):
    model = net()
    optimizer = eo.Adam(model.parameters(), lr=0.1)
    trainer = eo.Trainer(
        model, optimizer, Overflowing(lambda call: call == 2), precision="float16", scaler=eo.GradScaler(1024.0)
    )
    weights = [model[0].weight.numpy()]

    class Watch(training.Callback):
        def on_batch_end(self, trainer, index, logs):
            weights.append(model[0].weight.numpy())

    with caplog.at_level(logging.WARNING, "everyo.training"):
        history = trainer.fit(
            eo.DataLoader(eo.ArrayDataset(*data()), batch_size=18), epochs=1, callbacks=[Watch()], verbose=False
        )
    same = [np.array_equal(a, b) for a, b in zip(weights, weights[1:])]
    assert same == [False, True, False] and trainer.steps == 2 and optimizer.step_count == 2
    assert history["skipped_steps"] == [1] and history["loss_scale"] == [512.0]
    assert trainer.scaler.overflowed == "0.weight"
    assert "after step 1 a step is left out" in caplog.text and "'0.weight'" in caplog.text


def test_steps_that_all_overflow_end_in_the_named_error():
    model = net()
    trainer = eo.Trainer(model, eo.SGD(model.parameters()), Overflowing(lambda call: True), precision="float16")
    loader = eo.DataLoader(eo.ArrayDataset(*data(2)), batch_size=2)
    with pytest.raises(eo.EveryOError, match=r"200 steps in a row were left out.*'0\.weight'"):
        trainer.fit(loader, epochs=10000, verbose=False)
    assert trainer.scaler.get_scale() == 1.0 and trainer.steps == 0


class Stop(Exception):
    pass


class StopAfter(training.Callback):
    """Takes the state after so many batches, and ends the run."""

    def __init__(self, batches):
        self.left = batches

    def on_batch_end(self, trainer, index, logs):
        self.left -= 1
        if self.left == 0:
            self.saved = trainer.state()
            raise Stop

    def state(self):
        return {}

    def load(self, state):
        pass


class LowRun:
    """Its scale falls at first, and grows every third step until it overflows."""

    def __init__(self, precision, optimizer):
        self.model = nn.Sequential(
            nn.Linear(2, 8, seed=1), nn.BatchNorm1D(8), nn.ReLU(), nn.Dropout(0.3, seed=4), nn.Linear(8, 2, seed=2)
        )
        parameters = self.model.parameters()
        self.optimizer = eo.Adam(parameters, lr=0.05) if optimizer == "adam" else eo.SGD(parameters, lr=0.1, momentum=0.9)
        scaler = eo.GradScaler(2.0**22, growth_interval=3) if precision == "float16" else None
        self.trainer = eo.Trainer(
            self.model, self.optimizer, nn.CrossEntropyLoss(), metrics=["accuracy"], gradient_clip=0.5,
            precision=precision, scaler=scaler,
        )
        self.loader = eo.DataLoader(eo.ArrayDataset(*data()), batch_size=8, shuffle=True, seed=3)

    def fit(self, batches=-1):
        return self.trainer.fit(
            self.loader, epochs=5, callbacks=[StopAfter(batches)], accumulation=3, verbose=False
        )


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(precision, optimizer, tmp_path):
    whole = LowRun(precision, optimizer)
    history = whole.fit()
    if precision == "float16":
        assert whole.trainer.scaler.skipped_steps > 4 and whole.trainer.scaler.applied_steps > 20
    for batches in np.random.default_rng(0).permutation(34)[:8] + 1:
        first = LowRun(precision, optimizer)
        stop = StopAfter(int(batches))
        with pytest.raises(Stop):
            first.trainer.fit(first.loader, epochs=5, callbacks=[stop], accumulation=3, verbose=False)
        store = eo.CheckpointStore(tmp_path / f"{batches}")
        store.save(stop.saved, int(batches))
        second = LowRun(precision, optimizer)
        second.trainer.load(store.load_latest().state)
        assert list(second.fit()) == list(history)
        for name, value in whole.model.state_dict().items():
            assert np.array_equal(value, second.model.state_dict()[name])
        assert second.trainer.steps == whole.trainer.steps
        if precision == "float16":
            assert second.trainer.scaler.state_dict() == whole.trainer.scaler.state_dict()


def test_parameters_that_are_not_trained_do_not_keep_scaled_gradients():
    model = net()
    scaler = eo.GradScaler(8.0, growth_interval=1)
    trainer = eo.Trainer(
        model, eo.SGD(model[2].parameters()), nn.CrossEntropyLoss(), precision="float16", scaler=scaler
    )
    trainer.fit([data()], epochs=3, verbose=False)  # a sum over two scales would be refused
    assert scaler.get_scale() == 64.0


def test_a_state_of_another_precision_is_refused():
    half, brain = LowRun("float16", "sgd"), LowRun("bfloat16", "sgd")
    state = half.trainer.state()
    with pytest.raises(eo.EveryOSerializationError, match="saved in float16, and this trainer's precision is bfloat16"):
        brain.trainer.load(state)
    before = half.model.state_dict()
    with pytest.raises(eo.EveryOError):
        half.trainer.load({**state, "scaler": {**state["scaler"], "scale": 0.5}})
    assert half.trainer.scaler.get_scale() == 2.0**22
    assert all(np.array_equal(value, half.model.state_dict()[name]) for name, value in before.items())
    old = {key: value for key, value in state.items() if key not in ("precision", "scaler")}
    with pytest.raises(eo.EveryOSerializationError, match="saved in float32"):
        half.trainer.load(old)


def test_arguments_that_do_not_go_together_are_refused():
    model = net()

    def trainer(**options):
        return eo.Trainer(model, eo.SGD(model.parameters()), nn.CrossEntropyLoss(), **options)

    for bad in ("float64", "int64", "half", 3):
        with pytest.raises(ValueError, match="precision is"):
            trainer(precision=bad)
    assert trainer(precision=np.float16).precision == "float16"
    with pytest.raises(ValueError, match="goes with precision float16"):
        trainer(scaler=eo.GradScaler())
    with pytest.raises(TypeError, match="must be a GradScaler"):
        trainer(precision="float16", scaler=1024)


def half_parameter(values=(1.0,)):
    return nn.Parameter(eo.Tensor(list(values), dtype="bfloat16"), name="w")


def step(optimizer, gradient=1.0):
    optimizer.zero_grad()
    for parameter in optimizer.parameters:
        (parameter * gradient).sum().backward()
    optimizer.step()


def test_masters_add_up_what_halves_would_lose(caplog):
    with_master, without = half_parameter(), half_parameter()
    kept, lost = eo.SGD([with_master], lr=6e-4), eo.SGD([without], lr=6e-4, master_weights=False)
    with caplog.at_level(logging.WARNING, "everyo"):
        for _ in range(100):
            step(kept)
            step(lost)
    # 100 float32 roundings below 1, and half the distance of two bfloat16 below 1.
    assert kept.state[id(with_master)]["master"] == pytest.approx(0.94, abs=100 * 2.0**-24)
    assert with_master.item() == pytest.approx(0.94, abs=2.0**-9) and without.item() == 1.0
    assert "master" not in lost.state[id(without)]
    said = [record.getMessage() for record in caplog.records if "hardly moves" in record.getMessage()]
    assert len(said) == 1 and "changes of up to 0.0006" in said[0] and "'w'" in said[0]


def test_masters_go_with_states_copies_and_lists():
    parameter = half_parameter()
    optimizer = eo.Adam([parameter], lr=6e-4, betas=(0.9, 0.99), state_dtype="bfloat16")
    step(optimizer)
    master = optimizer.state[id(parameter)]["master"]
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert twin.state[id(twin.parameters[0])]["master"] == master
    other = half_parameter()
    optimizer.parameters.append(other)
    step(optimizer, 0.5)
    assert optimizer.state[id(parameter)]["steps"] == 2 and optimizer.state[id(other)]["steps"] == 1
    saved = optimizer.state_dict()
    assert str(saved["parameters"]["0"]["mean"].dtype) == "bfloat16"
    plain = eo.Adam(optimizer.parameters, master_weights=False)
    with pytest.raises(eo.EveryOError, match="set master_weights"):
        plain.load_state_dict(saved)
    with pytest.raises(ValueError, match="state_dtype"):
        eo.Adam([parameter], state_dtype="float16")

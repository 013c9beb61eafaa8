"""Runs of the Trainer that stop anywhere and go on with the bits of never having stopped."""

import csv

import numpy as np
import pytest

import everyo as eo
from everyo import nn, training


class Stop(Exception):
    """A run ends here."""


class StopAfter(training.Callback):
    """Takes the trainer's state after a step, and ends the run."""

    def __init__(self, step):
        self.step = step
        self.saved = None

    def on_batch_end(self, trainer, index, logs):
        if trainer.steps == self.step:
            self.saved = trainer.state()
            raise Stop


class Quiet(training.Callback):
    """Stands where StopAfter did; its class has the same name for a state."""

    step = None


Quiet.__name__ = "StopAfter"


def arrays(rows=54):
    rng = np.random.default_rng(1)
    y = np.arange(rows) % 2
    x = rng.normal(size=(rows, 2)) + np.where(y == 0, 1.0, -1.0)[:, None]
    return x.astype(np.float32), y


class Run:
    """Adam or SGD with momentum, dropout, batch norm, accumulation, clipping, a schedule, early stopping, metrics."""

    def __init__(self, optimizer, stop, folder):
        self.model = nn.Sequential(
            nn.Linear(2, 8, seed=1), nn.BatchNorm1D(8), nn.ReLU(), nn.Dropout(0.3, seed=4), nn.Linear(8, 2, seed=2)
        )
        parameters = self.model.parameters()
        self.optimizer = eo.Adam(parameters, lr=0.05) if optimizer == "adam" else eo.SGD(parameters, lr=0.1, momentum=0.9)
        self.trainer = eo.Trainer(
            self.model, self.optimizer, nn.CrossEntropyLoss(), metrics=["accuracy"], gradient_clip=0.5
        )
        self.early = training.EarlyStopping(patience=1, verbose=False)
        self.callbacks = [
            Quiet() if stop is None else StopAfter(stop),
            training.LearningRateScheduler(lambda epoch, lr: lr * 0.9),
            self.early,
            training.CSVLogger(folder / "log.csv"),
        ]
        x, y = arrays()
        self.train = eo.DataLoader(eo.ArrayDataset(x, y), 8, shuffle=True, seed=3)
        self.held_out = eo.DataLoader(eo.ArrayDataset(*arrays(9)), 9)

    def fit(self, epochs=12):
        self.trainer.fit(
            self.train, epochs=epochs, validation_loader=self.held_out, callbacks=self.callbacks, verbose=False, accumulation=3
        )

    def everything(self):
        weights = {name: value.tolist() for name, value in self.model.state_dict().items()}
        return weights, list(self.trainer.history), self.trainer.steps, self.early.best_epoch, self.early.stopped_epoch


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_F08_F12_AnywhereGivesTheBitsOfNeverHavingStopped(optimizer, tmp_path):
    whole = Run(optimizer, None, tmp_path)
    whole.fit()
    steps = whole.trainer.steps
    assert whole.early.stopped_epoch > 0 and steps > 20
    lines = (tmp_path / "log.csv").read_text()
    (tmp_path / "log.csv").unlink()
    for stop in np.random.default_rng(0).permutation(steps - 1)[:20] + 1:
        first = Run(optimizer, int(stop), tmp_path)
        with pytest.raises(Stop):
            first.fit()
        store = eo.CheckpointStore(tmp_path / f"run{stop}")
        store.save(first.callbacks[0].saved, first.trainer.steps)
        first.callbacks[3].on_train_end(first.trainer)  # closes its file
        second = Run(optimizer, None, tmp_path)
        second.trainer.load(store.load_latest().state)
        second.fit()
        assert second.everything() == whole.everything(), stop
        assert (tmp_path / "log.csv").read_text() == lines


def test_checkpoints_keep_the_latest_and_the_best(tmp_path):
    whole = Run("adam", None, tmp_path)
    saver = training.Checkpoints(tmp_path / "run", monitor="val_loss")
    whole.callbacks.insert(0, saver)  # it acts last all the same
    whole.fit()
    store = eo.CheckpointStore(tmp_path / "run")
    best, latest = store.load_best(), store.load_latest()
    assert best.state["epoch"] == whole.early.best_epoch and latest.state["epoch"] == whole.early.stopped_epoch
    assert latest.step == whole.trainer.steps and latest.folder in store.list() and best.folder.parent == store.folder
    assert latest.state["callbacks"]["3"]["state"]["wait"] == 2  # early stopping had seen the epoch
    # What has ended stays ended, with the best weights.
    again = Run("adam", None, tmp_path)
    again.callbacks.insert(0, training.Checkpoints(tmp_path / "other"))
    again.trainer.load(latest.state)
    again.fit()
    assert again.everything() == whole.everything()
    # The best epoch's state goes on as the run did.
    middle = Run("adam", None, tmp_path)
    middle.callbacks.insert(0, training.Checkpoints(tmp_path / "third"))
    middle.trainer.load(best.state)
    middle.fit()
    assert middle.everything() == whole.everything()


def test_a_second_fit_is_a_new_run_without_load(tmp_path):
    run = Run("sgd", None, tmp_path)
    run.fit(epochs=1)
    run.fit(epochs=1)
    assert run.trainer.steps == 14 and run.trainer.history.epochs == [1, 2]
    assert [row["epoch"] for row in csv.DictReader((tmp_path / "log.csv").open())] == ["1"]


def test_states_that_do_not_fit_change_nothing(tmp_path):
    run = Run("adam", None, tmp_path)
    run.fit(epochs=1)
    good, before = run.trainer.state(), run.everything()
    for change in (
        {"model": {}},
        {"optimizer": {}},
        {"steps": "many"},
        {"epoch": -1},
        {"history": None},
        {"model": {**good["model"], "extra": np.zeros(2)}},
    ):
        with pytest.raises(eo.EveryOError):
            run.trainer.load({**good, **change})
        assert run.everything() == before
    with pytest.raises(eo.EveryOSerializationError, match="not a dict"):
        run.trainer.load([])
    other = Run("sgd", None, tmp_path)
    with pytest.raises(eo.EveryOError, match="Adam"):
        other.trainer.load(good)
    fewer = Run("adam", None, tmp_path)
    fewer.callbacks.pop()
    fewer.trainer.load(good)
    with pytest.raises(eo.EveryOSerializationError, match="saved with the callbacks StopAfter, LearningRateScheduler"):
        fewer.fit()
    fewer = Run("adam", None, tmp_path)
    fewer.train = eo.DataLoader(eo.ArrayDataset(*arrays(20)), 8, shuffle=True, seed=3)
    fewer.trainer.load(good)
    with pytest.raises(eo.EveryOSerializationError, match="samples 54, this loader has 20"):
        fewer.fit()


def paths_of(tree, path=()):
    """Of every entry of nested dicts, the inner ones too."""
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from paths_of(value, (*path, key))


def with_entry(tree, path, change):
    """A copy in which change(dict, key) was made at the path."""
    copy = dict(tree)
    if len(path) == 1:
        change(copy, path[0])
    else:
        copy[path[0]] = with_entry(tree[path[0]], path[1:], change)
    return copy


def without(part, key):
    del part[key]


def of_another_kind(part, key):
    part[key] = None


def less_than_nothing(part, key):
    part[key] = -1


def more_than_anyone_makes(part, key):
    part[key] = 2**53 + 1


def beyond_64_bits(part, key):
    part[key] = 10**400


def test_a_state_with_any_key_damaged_is_refused_and_changes_nothing(tmp_path):
    stopped = Run("sgd", 17, tmp_path)  # 7 steps an epoch
    with pytest.raises(Stop):
        stopped.fit()
    stopped.callbacks[3].on_train_end(stopped.trainer)
    good = stopped.callbacks[0].saved
    assert {"running", "loader"} < set(good) and set(good["history"]) == {"0", "1"}
    run = Run("sgd", None, tmp_path)
    run.trainer.load(good)
    before = run.everything()
    whole_numbers = [("steps",), ("epoch",), *(("running", key) for key in ("samples", "batches", "given"))]
    own = [path for path in paths_of(good) if path[0] != "optimizer" or len(path) == 1]  # its entries are its own to check
    damages = [(path, change) for path in own for change in (without, of_another_kind)]
    not_counts = (less_than_nothing, more_than_anyone_makes, beyond_64_bits)
    damages += [(path, change) for path in whole_numbers for change in not_counts]
    damages += [(path, beyond_64_bits) for path in (("running", "loss_total"), ("history", "0", "loss"))]
    # A history or a list of names may be shorter, a row need not have each value, and best weights are checked by the model
    # when they are put back.
    allowed = {(("history", row, key), without) for row in "01" for key in good["history"]["0"] if key != "epoch"}
    allowed |= {(("history", "1"), without), (("callbacks", "3", "state", "names", "3"), without)}
    allowed |= {(("callbacks", "2", "state", "best_state", name), without) for name in good["model"]}
    allowed |= {(("precision",), without), (("running", "skipped"), without)}  # version 0.4 had neither
    seen = 0
    for path, change in damages:
        if (path, change) in allowed:
            continue
        seen += 1
        bad = with_entry(good, path, change)
        try:
            run.trainer.load(bad)
        except eo.EveryOError:
            assert run.everything() == before, path
            continue
        again = Run("sgd", None, tmp_path)  # what only fit can see: the states of callbacks, and the place of a loader
        again.trainer.load(bad)
        start = again.everything()
        with pytest.raises(eo.EveryOSerializationError):
            again.fit()
            pytest.fail(f"{path} {change.__name__}")
        assert path[0] in ("callbacks", "loader"), path
        assert again.everything()[:3] == start[:3], path
        run.trainer.load(good)
    assert seen > 60


def test_a_store_takes_states_of_ones_own(tmp_path, caplog):
    store = eo.CheckpointStore(tmp_path / "own", keep_last=1)
    assert store.load_latest() is None and store.load_best() is None and store.list() == []
    state = {"lr": 0.5, "step": 3, "done": True, "name": "run", "best": float("inf"), "w": np.arange(6, dtype=np.int32).reshape(2, 3),
             "nested": {"empty": {}, "half": eo.ones((2,), dtype="bfloat16")}}
    store.save(state, 3, is_best=True)
    store.save({"step": 4}, 4)
    store.save({"step": 5}, 5)
    assert [folder.name for folder in store.list()] == ["step-000000003", "step-000000005"]
    found = store.load_best().state
    assert found["nested"]["half"].dtype == "bfloat16" and found["w"].dtype == np.int32
    assert np.array_equal(found.pop("w"), state.pop("w"))
    assert found.pop("nested")["empty"] == {}
    state.pop("nested")
    assert found == state
    with pytest.raises(ValueError, match="keep_last"):
        eo.CheckpointStore(tmp_path, keep_last=-1)
    with pytest.raises(ValueError, match="every"):
        training.Checkpoints(store, every=0)
    (store.list()[1] / "manifest.json").write_text("{}")
    assert store.load_latest().step == 3
    assert "step-000000005" in caplog.text and "passed over" in caplog.text
    (store.list()[0] / "manifest.json").write_text("{}")
    with pytest.raises(eo.EveryOSerializationError, match="no whole checkpoint"):
        store.load_best()


def test_any_iterable_goes_on_after_the_batches_it_has_given():
    x, y = arrays(24)
    batches = [(x[i : i + 8], y[i : i + 8]) for i in (0, 8, 16)]

    def trainer():
        model = nn.Sequential(nn.Linear(2, 2, seed=1))
        return eo.Trainer(model, eo.SGD(model.parameters(), lr=0.1, momentum=0.9), nn.CrossEntropyLoss())

    whole = trainer()
    whole.fit(batches, epochs=3, callbacks=[Quiet()], verbose=False)
    for stop in range(1, 9):
        first, second, stopper = trainer(), trainer(), StopAfter(stop)
        with pytest.raises(Stop):
            first.fit(batches, epochs=3, callbacks=[stopper], verbose=False)
        second.load(stopper.saved)
        second.fit(batches, epochs=3, callbacks=[Quiet()], verbose=False)
        assert list(second.history) == list(whole.history), stop
        assert np.array_equal(second.model[0].weight.numpy(), whole.model[0].weight.numpy())

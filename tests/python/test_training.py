"""The Trainer and its callbacks."""

import csv

import numpy as np
import pytest

import everyo as eo
from everyo import data, datasets, nn, optim, training

X, Y = datasets.make_regression(n_samples=40, n_features=3)


def loader(batch_size=8, **options):
    return data.DataLoader(data.ArrayDataset(X, Y), batch_size, **options)


def linear_trainer(seed=0, lr=0.05, **options):
    model = nn.Linear(3, 1, seed=seed)
    return training.Trainer(model, optim.SGD(model.parameters(), lr=lr), nn.MSELoss(), **options)


def numpy_steps(weight, bias, batches, lr, clip=None):
    """Plain gradient descent on the mean squared error; the sample-weighted mean of the batches' losses."""
    total = 0.0
    for x, y in batches:
        difference = x @ weight + bias - y
        total += (difference**2).sum()
        gradients = [2 * x.T @ difference / len(x), 2 * difference.mean(0)]
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        scale = min(1.0, clip / norm) if clip else 1.0
        weight, bias = weight - lr * scale * gradients[0], bias - lr * scale * gradients[1]
    return weight, bias, total / len(X)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_fit_takes_the_steps_of_gradient_descent(clip):
    trainer = linear_trainer(gradient_clip=clip)
    weight, bias = (p.numpy().astype(np.float64) for p in trainer.model.parameters())
    batches = [
        (X[i : i + 16].astype(np.float64), Y[i : i + 16].astype(np.float64)) for i in range(0, 40, 16)
    ]  # the last is short
    history = trainer.fit(loader(16), epochs=3, verbose=False)
    for epoch in range(3):
        weight, bias, loss = numpy_steps(weight, bias, batches, 0.05, clip)
        # Nine float32 steps beside float64 ones: 1e-5 is about 100 roundings.
        assert history["loss"][epoch] == pytest.approx(loss, rel=1e-5)
    assert np.allclose(trainer.model.weight.numpy(), weight, rtol=1e-5, atol=1e-6)
    assert history is trainer.history and history.epochs == [1, 2, 3] and trainer.total_epochs == 3


def test_a_summed_loss_is_divided_by_the_samples():
    mean, summed = linear_trainer(), linear_trainer()
    summed.loss_fn = nn.MSELoss("sum")
    assert summed.evaluate(loader(16))["loss"] == pytest.approx(mean.evaluate(loader(16))["loss"], rel=1e-6)


def test_metrics_see_the_whole_epoch():
    seen = []

    def count(prediction, target):
        seen.append((prediction.shape, target.shape))
        return float(len(prediction))

    trainer = linear_trainer(metrics=["mae", "r2", count])
    history = trainer.fit(loader(16), epochs=2, validation_loader=loader(7), verbose=False)
    assert history.keys() == ["loss", "mae", "r2", "count", "val_loss", "val_mae", "val_r2", "val_count"]
    assert seen == [((40, 1), (40, 1))] * 4 and history["count"] == [40.0, 40.0]
    prediction = trainer.predict(X)
    assert history["val_mae"][-1] == pytest.approx(np.abs(prediction - Y).mean(), rel=1e-6)


def mixed_modes():
    model = nn.Sequential(nn.Linear(3, 4, seed=0), nn.Dropout(0.5, seed=1), nn.BatchNorm1D(4), nn.Linear(4, 2, seed=2))
    model[2].eval()
    return model


def test_Y19_EachModuleKeepsItsOwnMode():
    model = mixed_modes()
    trainer = training.Trainer(model, optim.SGD(model.parameters()), nn.CrossEntropyLoss())
    labels = data.DataLoader(data.ArrayDataset(X, (Y[:, 0] > 0).astype(np.int64)))
    modes = [module.training for _, module in model.named_modules()]
    assert modes == [True, True, True, False, True]
    before = model.state_dict()
    trainer.evaluate(labels)
    first, second = trainer.predict(X), trainer.predict(X)
    trainer.predict_classes(X)
    assert [module.training for _, module in model.named_modules()] == modes
    assert np.array_equal(first, second), "dropout is off"
    assert all(np.array_equal(before[name], value) for name, value in model.state_dict().items()), "statistics stay"
    with pytest.raises(eo.EveryOShapeError):
        trainer.predict(X[:, :2])
    assert [module.training for _, module in model.named_modules()] == modes
    trainer.fit(labels, epochs=1, verbose=False)
    assert [module.training for _, module in model.named_modules()] == modes


def test_predict_takes_arrays_tensors_datasets_and_loaders():
    trainer = linear_trainer()
    weight, bias = (p.numpy() for p in trainer.model.parameters())
    expected = X @ weight + bias
    for source in (X, eo.tensor(X), data.ArrayDataset(X, Y), loader(7), data.Subset(data.ArrayDataset(X), range(40))):
        assert np.allclose(
            trainer.predict(source, batch_size=16), expected, rtol=1e-5, atol=1e-6
        )  # sums of three, in another order
    with pytest.raises(eo.EveryOError, match="no batches"):
        trainer.predict(X[:0])


def test_predict_classes_takes_the_largest_or_the_threshold():
    model = nn.Linear(3, 4, seed=1)
    trainer = training.Trainer(model, optim.SGD(model.parameters()), nn.CrossEntropyLoss())
    classes = trainer.predict_classes(X)
    assert classes.dtype == np.int64 and np.array_equal(classes, trainer.predict(X).argmax(1))
    single = linear_trainer()
    assert np.array_equal(single.predict_classes(X), (single.predict(X)[:, 0] >= 0.5).astype(int))


def test_Y12_TrainerKeepsWholeNumbersWhole():
    class Ids(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(np.ones(1, np.float32))
            self.seen = None

        def forward(self, x):
            self.seen = x.dtype, x.tolist()
            return x.astype("float32") * self.scale

    model, targets = Ids(), []
    trainer = training.Trainer(
        model, optim.SGD(model.parameters(), lr=1e-9), lambda p, y: targets.append(y.tolist()) or (p * 0.0).sum()
    )
    trainer.fit(
        data.DataLoader(data.ArrayDataset(np.array([[16777217]]), np.array([16777217]))), epochs=1, verbose=False
    )
    assert model.seen == ("int64", [[16777217]]) and targets == [[16777217]]


def test_refuses_what_does_not_fit():
    model = nn.Linear(3, 1)
    optimizer = optim.SGD(model.parameters())
    for arguments in ((X, optimizer, nn.MSELoss()), (model, "sgd", nn.MSELoss()), (model, optimizer, "mse")):
        with pytest.raises(TypeError):
            training.Trainer(*arguments)
    with pytest.raises(TypeError):
        training.Trainer(model, optimizer, nn.MSELoss(), metrics=[3])
    with pytest.raises(ValueError, match="Unknown metric"):
        training.Trainer(model, optimizer, nn.MSELoss(), metrics=["f1"])
    for clip in (0, -1.0):
        with pytest.raises(ValueError, match="gradient_clip"):
            training.Trainer(model, optimizer, nn.MSELoss(), gradient_clip=clip)
    trainer = linear_trainer()
    with pytest.raises(ValueError, match="epochs"):
        trainer.fit(loader(), epochs=0)
    with pytest.raises(TypeError, match="subclass"):
        trainer.fit(loader(), callbacks=[print], verbose=False)
    for batches in ([X], [(X, Y, Y)]):
        with pytest.raises(eo.EveryOError, match=r"\(features, targets\)"):
            trainer.fit(batches, verbose=False)
        with pytest.raises(eo.EveryOError, match=r"\(features, targets\)"):
            trainer.evaluate(batches)
    for call in (lambda: trainer.fit([], verbose=False), lambda: trainer.evaluate(loader(64, drop_last=True))):
        with pytest.raises(eo.EveryOError, match="no batches"):
            call()


class Recorder(training.Callback):
    def __init__(self):
        self.calls = []

    def on_train_begin(self, trainer):
        self.calls.append("begin")

    def on_train_end(self, trainer):
        self.calls.append("end")

    def on_epoch_begin(self, trainer, epoch):
        self.calls.append(f"epoch {epoch}")

    def on_epoch_end(self, trainer, epoch, logs):
        self.calls.append(f"epoch {epoch} over")
        self.logs = dict(logs)
        logs["added"] = 5.0

    def on_batch_begin(self, trainer, index):
        self.calls.append(f"batch {index}")

    def on_batch_end(self, trainer, index, logs):
        self.calls.append(f"batch {index} over")
        assert logs["loss"] > 0


def test_callbacks_are_called_in_order_and_see_changed_logs():
    first, second, trainer = Recorder(), Recorder(), linear_trainer()
    history = trainer.fit(loader(20), epochs=2, callbacks=[first, second], verbose=False)
    epoch = ["batch 0", "batch 0 over", "batch 1", "batch 1 over"]
    assert first.calls == ["begin", "epoch 1", *epoch, "epoch 1 over", "epoch 2", *epoch, "epoch 2 over", "end"]
    assert first.logs.keys() == {"loss"} and second.logs.keys() == {"loss", "added"} and history.keys() == ["loss"]


class Scripted(training.Callback):
    """Gives the epochs' validation losses, and moves a weight so that states differ."""

    def __init__(self, values):
        self.values = values

    def on_epoch_end(self, trainer, epoch, logs):
        logs["val_loss"] = self.values[epoch - 1]
        trainer.model.bias.data = np.array([float(epoch)])


def test_early_stopping_waits_and_restores_the_best():
    values = [3.0, 2.0, 2.5, 1.95, 2.4, 2.6, 2.7, 0.0]
    trainer, stopping = linear_trainer(), training.EarlyStopping(patience=2, min_delta=0.1, verbose=False)
    history = trainer.fit(loader(), epochs=8, callbacks=[Scripted(values), stopping], verbose=False)
    # 1.95 is no improvement by more than 0.1, so epoch 5 is the third in a row without one.
    assert (stopping.stopped_epoch, stopping.best_epoch, stopping.best, stopping.wait) == (5, 2, 2.0, 3)
    assert len(history) == 5 and trainer.stop_training and trainer.model.bias.tolist() == [2.0]
    kept = training.EarlyStopping(patience=0, restore_best_weights=False, verbose=False)
    trainer.fit(loader(), epochs=8, callbacks=[Scripted(values), kept], verbose=False)
    assert kept.stopped_epoch == 3 and trainer.model.bias.tolist() == [3.0]


def test_early_stopping_can_look_for_the_greatest(capsys):
    stopping = training.EarlyStopping("val_loss", patience=0, mode="max")
    linear_trainer().fit(loader(), epochs=5, callbacks=[Scripted([1.0, 2.0, 1.5, 9.0, 9.0]), stopping], verbose=False)
    assert (stopping.best_epoch, stopping.stopped_epoch) == (2, 3)
    assert "epoch 3" in capsys.readouterr().out
    with pytest.raises(ValueError, match="mode"):
        training.EarlyStopping(mode="least")
    with pytest.raises(KeyError, match="val_loss"):
        linear_trainer().fit(loader(), epochs=1, callbacks=[training.EarlyStopping()], verbose=False)


def test_checkpoints_hold_the_best_state(tmp_path):
    best = training.ModelCheckpoint(tmp_path / "best.safetensors")
    every = training.ModelCheckpoint(tmp_path / "epoch{epoch}.safetensors", save_best_only=False)
    trainer = linear_trainer()
    trainer.fit(loader(), epochs=4, callbacks=[Scripted([3.0, 1.0, 2.0, 1.0]), best, every], verbose=False)
    assert best.saved_epochs == [1, 2] and every.saved_epochs == [1, 2, 3, 4]
    for name, bias in (("best", 2.0), ("epoch4", 4.0), ("epoch1", 1.0)):
        state = nn.load_arrays(tmp_path / f"{name}.safetensors")
        assert state["bias"].tolist() == [bias] and state["weight"].shape == (3, 1)
    whole = training.ModelCheckpoint(tmp_path / "best.evo", monitor="loss")
    trainer.fit(loader(), epochs=1, callbacks=[whole], verbose=False)
    assert np.array_equal(eo.load(tmp_path / "best.evo").state_dict()["bias"], trainer.model.state_dict()["bias"])
    with pytest.raises(ValueError, match="safetensors"):
        training.ModelCheckpoint(tmp_path / "model.bin")


def test_progress_is_printed_every_so_often(capsys):
    linear_trainer().fit(loader(), epochs=5, log_every=2)
    effective, *lines = capsys.readouterr().out.splitlines()
    assert effective.startswith("effective batch ")
    assert [line.split()[1] for line in lines] == ["2/5", "4/5", "5/5"] and all("loss" in line for line in lines)
    linear_trainer().fit(loader(), epochs=2, verbose=False, callbacks=[training.ProgressLogger(stream=False)])
    assert capsys.readouterr().out == ""


def test_csv_logger_writes_a_line_an_epoch(tmp_path):
    trainer = linear_trainer()
    trainer.fit(
        loader(),
        epochs=3,
        validation_loader=loader(),
        callbacks=[training.CSVLogger(tmp_path / "log.csv")],
        verbose=False,
    )
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [float(row["val_loss"]) for row in rows] == trainer.history["val_loss"]


def test_learning_rate_schedule_is_applied_as_epochs_begin():
    trainer, seen = linear_trainer(lr=0.1), []

    def schedule(epoch, lr):
        seen.append((epoch, lr))
        return lr / 2

    trainer.fit(loader(), epochs=3, callbacks=[training.LearningRateScheduler(schedule)], verbose=False)
    assert seen == [(1, 0.1), (2, 0.05), (3, 0.025)] and trainer.optimizer.lr == 0.0125


def test_two_runs_are_the_same_bits():
    def run():
        model = nn.Sequential(nn.Linear(3, 16, seed=0), nn.Dropout(0.3, seed=3), nn.ReLU(), nn.Linear(16, 1, seed=1))
        trainer = training.Trainer(model, optim.Adam(model.parameters()), nn.MSELoss())
        return trainer.fit(loader(8, shuffle=True, seed=4), epochs=3, verbose=False)["loss"], model.state_dict()

    losses, state = run()
    eo._core.set_step(eo._core.get_step() + 5)  # as steps of another loop would
    again, state_again = run()
    assert losses == again and all(np.array_equal(state[name], state_again[name]) for name in state)


def test_steps_leave_no_memory_behind():
    model = nn.Sequential(
        nn.Linear(3, 8, seed=0), nn.BatchNorm1D(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1, seed=1)
    )
    trainer = training.Trainer(model, optim.Adam(model.parameters()), nn.MSELoss(), gradient_clip=1.0, metrics=["mae"])
    live = []

    class Ledger(training.Callback):
        def on_epoch_end(self, trainer, epoch, logs):
            report = eo._core.memory_report()
            live.append({category: report[category]["now"] for category in ("total", "activation", "gradient")})

    trainer.fit(loader(4, shuffle=True, seed=0), epochs=50, callbacks=[Ledger()], verbose=False)  # 500 steps
    assert live[-1] == live[1]


def test_a_loss_that_is_not_finite_is_logged_once(caplog):
    trainer = linear_trainer(lr=1e38)
    trainer.fit(loader(), epochs=4, verbose=False)
    warnings = [record.getMessage() for record in caplog.records if record.name == "everyo.training"]
    assert len(warnings) == 1 and "the loss is" in warnings[0] and "weight" in warnings[0]


def test_a_step_frees_its_graph():
    kept = []
    trainer = linear_trainer()
    trainer.loss_fn = lambda p, y: kept.append(nn.mse_loss(p, y)) or kept[-1]
    trainer.fit(loader(), epochs=1, verbose=False)
    with pytest.raises(eo.EveryOError, match="freed"):
        kept[0].backward()


def test_evaluation_records_no_graph():
    recorded = []
    trainer = linear_trainer()
    trainer.loss_fn = lambda p, y: recorded.append(p.requires_grad) or nn.mse_loss(p, y)
    trainer.fit(loader(40), epochs=1, validation_loader=loader(40), verbose=False)
    assert recorded == [True, False]


class Breaks(training.Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        raise ArithmeticError("broken")


def test_csv_logger_begins_anew_after_a_fit_that_failed(tmp_path):
    log = training.CSVLogger(tmp_path / "log.csv")
    with pytest.raises(ArithmeticError):
        linear_trainer().fit(loader(), epochs=1, callbacks=[log, Breaks()], verbose=False)
    linear_trainer().fit(loader(), epochs=2, callbacks=[log], verbose=False, validation_loader=loader())
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["epoch", "loss", "val_loss"] and [row[0] for row in rows[1:]] == ["1", "2"]


def test_predict_takes_whatever_gives_batches():
    trainer = linear_trainer()
    wanted = trainer.predict(X)
    assert np.array_equal(trainer.predict((x, y) for x, y in loader(7)), wanted)
    assert np.array_equal(trainer.predict(map(np.asarray, np.split(X, 2))), wanted)
    with pytest.raises(eo.EveryOError, match="no batches"):
        trainer.predict(iter(()))

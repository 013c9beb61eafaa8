"""Gradient accumulation: the whole batch's gradient from its parts, in loops of one's own and in the Trainer."""

import logging

import numpy as np
import pytest

import everyo as eo
from everyo import nn, training

IGNORED = -100


def data(rows, ignored=()):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    y = rng.integers(0, 4, rows)
    y[list(ignored)] = IGNORED
    return x, y


def net():
    return nn.Sequential(nn.Linear(6, 5, seed=1), nn.Tanh(), nn.Linear(5, 4, seed=2))


def gradients(model):
    return np.concatenate([p.grad.ravel() for p in model.parameters()])


def rounding(gradient):
    """Both ways add the same terms, at most 16 of them, in another order: 8 ulp of the largest."""
    return 8 * 2.0**-23 * np.abs(gradient).max()


def of_rows(x, y):
    """The sum of each counted row's gradient in float64, divided by their number."""
    rows = []
    for i in np.flatnonzero(y != IGNORED):
        model = net()
        nn.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        rows.append(gradients(model).astype(np.float64))
    return np.mean(rows, axis=0)


def test_G01_PartsOf3And1LabelsGiveTheMeanOfAll4():
    x, y = data(8, ignored=[2, 4, 5, 7])
    model = net()
    parts = list(eo.micro_batches(x, y, 2, ignore_index=IGNORED))
    assert [(part.count, part.weight) for part in parts] == [(3, 0.75), (1, 0.25)]
    for part in eo.micro_batches(x, y, 2, ignore_index=IGNORED):
        loss = nn.cross_entropy(model(part.features), part.targets, ignore_index=IGNORED)
        (loss * part.weight).backward()
    right = of_rows(x, y)
    assert np.abs(gradients(model) - right).max() <= rounding(right)


@pytest.mark.parametrize(("rows", "ignored"), [(16, []), (11, []), (1, []), (13, [1, 2, 3, 6, 11, 12])])
@pytest.mark.parametrize("accumulation", [1, 2, 3, 8])
def test_a_step_of_the_trainer_is_the_large_batchs(rows, ignored, accumulation):
    x, y = data(rows, ignored)

    def trained(accumulation):
        model = net()
        trainer = eo.Trainer(model, eo.SGD(model.parameters(), lr=1.0), nn.CrossEntropyLoss(ignore_index=IGNORED))
        trainer.fit(eo.DataLoader(eo.ArrayDataset(x, y), 16), epochs=1, verbose=False, accumulation=accumulation)
        return np.concatenate([p.numpy().ravel() for p in model.parameters()]), trainer.history.last()["loss"]

    start = np.concatenate([p.numpy().ravel() for p in net().parameters()])
    weights, loss = trained(accumulation)
    whole_weights, whole_loss = trained(1)
    right = of_rows(x, y)
    # The step subtracts the gradient from weights of at most 1, and rounds once more there.
    assert np.abs((start - weights) - right).max() <= rounding(right) + 2.0**-23
    assert loss == pytest.approx(whole_loss, rel=1e-6)  # float32 means of parts
    if accumulation == 1:
        assert np.array_equal(weights, whole_weights)


def test_G03_ABatchWithoutALabelMakesNoStep(caplog):
    x, y = data(12, ignored=range(4, 12))
    model = net()
    optimizer = eo.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = eo.Trainer(model, optimizer, nn.CrossEntropyLoss(ignore_index=IGNORED), metrics=["accuracy"])
    with caplog.at_level(logging.WARNING, "everyo.training"):
        trainer.fit(eo.DataLoader(eo.ArrayDataset(x, y), 4), epochs=1, verbose=False, accumulation=2)
    assert trainer.steps == 1 and optimizer.step_count == 1
    assert [record.message for record in caplog.records] == [
        "[Trainer] no target of the batch after step 1 counts; it makes no step"
    ]
    assert np.isfinite(trainer.history.last()["loss"])
    nothing = eo.Trainer(model, optimizer, nn.CrossEntropyLoss(ignore_index=IGNORED), metrics=["accuracy"])
    nothing.fit(eo.DataLoader(eo.ArrayDataset(x[4:], y[4:]), 4), epochs=1, verbose=False)
    row = nothing.history.last()
    assert np.isnan([row["loss"], row["accuracy"]]).all() and row["epoch"] == 1 and nothing.steps == 0


def test_where_nothing_counts_there_is_no_best(tmp_path):
    x, y = data(8, ignored=range(8))
    model = net()
    trainer = eo.Trainer(model, eo.SGD(model.parameters()), nn.CrossEntropyLoss(ignore_index=IGNORED), metrics=["accuracy"])
    early = training.EarlyStopping(patience=1, verbose=False)
    most = training.EarlyStopping("val_accuracy", patience=5, mode="max", verbose=False)
    kept = training.ModelCheckpoint(tmp_path / "best.safetensors")
    loader = eo.DataLoader(eo.ArrayDataset(x, y), 4)
    trainer.fit(loader, validation_loader=loader, epochs=4, callbacks=[early, most, kept], verbose=False)
    values = [row[name] for row in trainer.history for name in ("loss", "accuracy", "val_loss", "val_accuracy")]
    assert np.isnan(values).all() and trainer.history.epochs == [1, 2]  # NaN is waited for as what is no better
    assert (early.best_epoch, early.stopped_epoch, most.best_epoch, most.wait, kept.saved_epochs) == (0, 2, 0, 2, [])
    with pytest.raises(eo.EveryOError, match="no batches"):
        trainer.evaluate([])


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("own", [False, True])
def test_an_epochs_loss_is_the_mean_over_what_counts(accumulation, own):
    x, y = data(8, ignored=[5, 6, 7])  # of two batches, 4 and 1 labels
    counted = y != IGNORED
    model = net()
    count = (lambda target: int((target.numpy() != IGNORED).sum())) if own else None
    still = eo.SGD(model.parameters(), lr=1e-30)  # the second batch sees the same weights
    trainer = eo.Trainer(model, still, nn.CrossEntropyLoss(ignore_index=IGNORED), metrics=["accuracy"], count=count)
    logits = model(x).numpy()[counted]
    right = nn.cross_entropy(logits, y[counted]).item()
    by_rows = (nn.cross_entropy(logits[:4], y[:4]).item() + nn.cross_entropy(logits[4:], y[4:5]).item()) / 2
    assert abs(right - by_rows) > 1e-2  # or the test would tell nothing
    loader = eo.DataLoader(eo.ArrayDataset(x, y), 4)
    row = trainer.fit(loader, epochs=1, validation_loader=loader, verbose=False, accumulation=accumulation).last()
    # float32 means of parts, of losses below 4
    assert row["loss"] == pytest.approx(right, abs=1e-6) and row["val_loss"] == pytest.approx(right, abs=1e-6)
    share = float((logits.argmax(axis=1) == y[counted]).mean())
    assert row["accuracy"] == row["val_accuracy"] == share


def test_a_count_of_ones_own_weighs_the_epochs_batches():
    x, y = data(7)
    weight = lambda target: int(np.where(target.numpy() == 3, 4, 1).sum())

    def weighted(prediction, target):
        factor = np.where(target.numpy() == 3, 4, 1).astype(np.float32)
        return (nn.cross_entropy(prediction, target, "none") * eo.as_tensor(factor)).sum() / float(factor.sum())

    model = net()
    trainer = eo.Trainer(model, eo.SGD(model.parameters()), weighted, count=weight)
    right = weighted(model(x), eo.as_tensor(y)).item()
    values = trainer.evaluate(eo.DataLoader(eo.ArrayDataset(x, y), 4))
    assert values["loss"] == pytest.approx(right, abs=1e-6)  # float32 means of parts
    bad = eo.Trainer(model, eo.SGD(model.parameters()), weighted, count=lambda target: -1)
    with pytest.raises(ValueError, match="gave -1"):
        bad.evaluate(eo.DataLoader(eo.ArrayDataset(x, y), 4))


def test_a_count_of_ones_own_and_a_summed_loss():
    x, y = data(10)

    def weighted(prediction, target):  # a mean that counts class 3 four times
        factor = np.where(target.numpy() == 3, 4, 1).astype(np.float32)
        rows = nn.cross_entropy(prediction, target, "none") * eo.as_tensor(factor)
        return rows.sum() / float(factor.sum())

    def trained(loss, accumulation, **options):
        model = net()
        eo.Trainer(model, eo.SGD(model.parameters(), lr=0.05), loss, **options).fit(
            eo.DataLoader(eo.ArrayDataset(x, y), 10), epochs=3, verbose=False, accumulation=accumulation
        )
        return np.concatenate([p.numpy().ravel() for p in model.parameters()])

    count = lambda target: int(np.where(target.numpy() == 3, 4, 1).sum())
    # Three steps of weights below 1, each off by a few ulp of a gradient below 8.
    assert np.abs(trained(weighted, 1) - trained(weighted, 4, count=count)).max() < 4e-6
    assert np.abs(trained(weighted, 1) - trained(weighted, 4)).max() > 1e-4  # rows would not do
    summed = nn.CrossEntropyLoss("sum")
    assert np.abs(trained(summed, 1) - trained(summed, 4)).max() < 4e-6


def test_parts_are_cut_as_ranks_do_and_draw_masks_of_their_own():
    x, y = np.ones((10, 64), dtype=np.float32), np.zeros(10, dtype=np.int64)
    dropout = nn.Dropout(0.5, seed=0)
    masks = [dropout(part.features).numpy() for part in eo.micro_batches(x, y, 4)]
    assert [len(mask) for mask in masks] == [3, 3, 2, 2]
    assert not np.array_equal(masks[0], masks[1])
    assert eo._core.get_micro_batch() == 0
    for _ in eo.micro_batches(x, y, 4):  # left early
        break
    assert eo._core.get_micro_batch() == 0
    assert eo.count_targets(np.array([0, 3, 3]), 3) == 1 and eo.count_targets(y) == 10


def test_each_run_says_its_effective_batch(capsys):
    x, y = data(40)
    model = net()
    trainer = eo.Trainer(model, eo.SGD(model.parameters()), nn.CrossEntropyLoss())
    trainer.fit(eo.DataLoader(eo.ArrayDataset(x, y), 16), epochs=2, accumulation=4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "effective batch 16 = micro-batch 4 x accumulation 4 x ranks 1"
    assert len(lines) == 3


def test_refuses_what_cannot_be():
    x, y = data(4)
    with pytest.raises(ValueError, match="accumulate 0"):
        list(eo.micro_batches(x, y, 0))
    with pytest.raises(TypeError, match="accumulation"):
        list(eo.micro_batches(x, y, 1.5))
    with pytest.raises(eo.EveryOShapeError, match="same number of samples"):
        list(eo.micro_batches(x, y[:3], 2))
    with pytest.raises(ValueError, match="of_targets gave -1"):
        list(eo.micro_batches(x, y, 2, count=lambda target: -1))
    model = net()
    trainer = eo.Trainer(model, eo.SGD(model.parameters()), nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="accumulation is 0"):
        trainer.fit(eo.DataLoader(eo.ArrayDataset(x, y)), accumulation=0)

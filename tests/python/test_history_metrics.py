"""History, and metrics against NumPy."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everyo as eo
from everyo import training


def test_history_keeps_rows_and_series(tmp_path):
    history = training.History()
    assert history.append(loss=2.0, val_loss=3.0) == {"epoch": 1, "loss": 2.0, "val_loss": 3.0}
    history.append(loss=1.0, val_loss=4.0)
    history.append(loss=1.5)
    assert (
        history["loss"] == [2.0, 1.0, 1.5]
        and history["val_loss"] == [3.0, 4.0]
        and history.epochs == history["epoch"] == [1, 2, 3]
    )
    assert history.keys() == ["loss", "val_loss"] and "loss" in history and len(history) == 3
    assert history.get("loss") == history["loss"] and history.get("gone", 7) == 7
    assert history.last() == {"epoch": 3, "loss": 1.5} and [row["epoch"] for row in history] == [1, 2, 3]
    assert (
        history.best()["epoch"] == 1
        and history.best("loss")["epoch"] == 2
        and history.best("val_loss", "max")["epoch"] == 2
    )
    assert repr(history) == "History(3 epochs, the last: epoch=3, loss=1.5)"
    assert repr(training.History()) == "History(no epochs)"
    assert history.to_dict() == {"loss": [2.0, 1.0, 1.5], "val_loss": [3.0, 4.0]}
    history.to_json(tmp_path / "history.json")
    assert json.loads((tmp_path / "history.json").read_text()) == history.to_dict()
    history.to_csv(tmp_path / "history.csv")
    rows = list(csv.DictReader((tmp_path / "history.csv").open()))
    assert [row["loss"] for row in rows] == ["2.0", "1.0", "1.5"] and rows[2]["val_loss"] == ""


def test_history_says_what_is_missing():
    history = training.History()
    for call in (lambda: history["loss"], history.best):
        with pytest.raises(KeyError, match="No metric"):
            call()
    with pytest.raises(IndexError):
        history.last()
    history.append(loss=1.0)
    with pytest.raises(ValueError, match="mode"):
        history.best("loss", "least")


LABELS = np.array([0, 2, 1, 1])
SCORES = np.array([[3, 1, 0], [0, 1, 2], [5, 1, 1], [0, 9, 1]], np.float32)  # classes 0, 2, 0, 1


@pytest.mark.parametrize("prediction", [SCORES, [0, 2, 0, 1], np.eye(3)[[0, 2, 0, 1]], np.array([[0], [2], [0], [1]])])
@pytest.mark.parametrize("target", [LABELS, LABELS.tolist(), np.eye(3)[LABELS], LABELS.reshape(-1, 1)])
@pytest.mark.parametrize("kind", [np.asarray, eo.tensor])
def test_accuracy_takes_scores_rows_and_labels(prediction, target, kind):
    prediction, target = kind(prediction), kind(target)
    assert training.accuracy(prediction, target) == 0.75
    assert training.confusion_matrix(prediction, target).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_confusion_matrix_takes_a_number_of_classes():
    matrix = training.confusion_matrix([0, 1], [1, 1], 4)
    assert matrix.shape == (4, 4) and matrix.dtype == np.int64 and matrix.sum() == 2 and matrix[1, 0] == 1
    for wrong in ([0, 5], [0, -1], [0, 0.5]):
        with pytest.raises(eo.EveryOShapeError, match="out of range"):
            training.confusion_matrix(wrong, [1, 1], 4)


def test_binary_accuracy_has_a_threshold():
    assert training.binary_accuracy([0.2, 0.5, 0.9], [0, 1, 0]) == pytest.approx(2 / 3)
    assert training.binary_accuracy([[0.2], [0.5], [0.9]], [0, 1, 0], threshold=0.1) == pytest.approx(1 / 3)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=2, max_size=30))
def test_errors_match_numpy(pairs):
    prediction, target = (np.array(side) for side in zip(*pairs))
    # Sums of float64 in another order: a few units in the last place of the largest term.
    close = {"rel": 1e-12, "abs": 1e-12}
    assert training.mean_absolute_error(prediction, target) == pytest.approx(
        np.abs(prediction - target).mean(), **close
    )
    assert training.mean_squared_error(prediction, target) == pytest.approx(
        ((prediction - target) ** 2).mean(), **close
    )
    if target.var() > 1e-6:
        expected = 1 - ((prediction - target) ** 2).sum() / ((target - target.mean()) ** 2).sum()
        assert training.r2_score(prediction, target) == pytest.approx(
            expected, rel=1e-9, abs=1e-9
        )  # the quotient of two sums


def test_r2_of_a_constant_target_is_zero():
    assert training.r2_score([1.0, 2.0], [3.0, 3.0]) == 0.0
    assert training.r2_score([1.0, 2.0], [[1.0], [2.0]]) == 1.0


def test_metrics_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="Unknown metric"):
        training.get_metric("f1")
    assert training.get_metric("mse") is training.mean_squared_error
    for metric in (training.mean_squared_error, training.r2_score, training.accuracy):
        with pytest.raises(eo.EveryOShapeError):
            metric(np.zeros(3), np.zeros(4))


def test_Y12_MetricsKeepWholeNumbersWhole():
    assert training.accuracy(np.array([16777217]), np.array([16777216])) == 0.0
    assert training.mean_absolute_error(np.array([16777217]), np.array([16777216])) == 1.0


def test_nan_is_never_the_best():
    history = training.History()
    for value in (float("nan"), 2.0, 1.0, float("nan")):
        history.append(loss=value)
    assert history.best("loss")["epoch"] == 3 and history.best("loss", "max")["epoch"] == 2
    lost = training.History()
    lost.append(loss=float("nan"))
    assert lost.best("loss")["epoch"] == 1


@pytest.mark.parametrize("prediction", [[0.1, 0.1, 0.1], [0.3, 0.1, 0.2]])
def test_r2_of_a_constant_target_is_zero_whatever_its_mean_rounds_to(prediction):
    assert training.r2_score(prediction, np.full(3, 0.1)) == 0.0  # the mean of three tenths rounds

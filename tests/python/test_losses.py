"""Losses against NumPy. Letters: N batch, K classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everyo as eo
from everyo import nn

REDUCTIONS = {"mean": np.mean, "sum": np.sum, "none": lambda values: values}
SEEDS = st.integers(0, 1000)


def log_softmax(x):
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def sides(seed, shape, positive=False):
    generator = np.random.default_rng(seed)
    draw = (lambda: generator.uniform(0.01, 0.99, shape)) if positive else (lambda: 3 * generator.normal(size=shape))
    return draw().astype(np.float32), draw().astype(np.float32)


ELEMENTWISE = [
    (nn.MSELoss, nn.mse_loss, False, lambda p, t: (p - t) ** 2),
    (nn.MAELoss, nn.mae_loss, False, lambda p, t: np.abs(p - t)),
    (nn.BCELoss, nn.binary_cross_entropy, True, lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p))),
]


@pytest.mark.parametrize("loss, function, positive, formula", ELEMENTWISE)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(seed=SEEDS, rows=st.integers(1, 6))
@settings(max_examples=20)
def test_elementwise_losses_match_numpy(loss, function, positive, formula, reduction, seed, rows):
    p, t = sides(seed, (rows, 3), positive)
    expected = REDUCTIONS[reduction](formula(p.astype(np.float64), t.astype(np.float64)))
    y = loss(reduction)(p, t)
    # Float32 beside float64; at most 18 terms.
    assert y.shape == np.shape(expected) and np.allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(function(p, t, reduction).numpy(), y.numpy())
    if reduction == "mean":
        assert np.array_equal(loss()(eo.tensor(p), t).numpy(), y.numpy())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_bce_with_logits_is_stable(reduction):
    logits = np.array([[-800.0, -1.0], [2.0, 800.0]], np.float32)
    targets = np.array([[0.0, 1.0], [0.5, 1.0]], np.float32)
    wide = logits.astype(np.float64)
    expected = REDUCTIONS[reduction](np.maximum(wide, 0) - wide * targets + np.log1p(np.exp(-np.abs(wide))))
    assert np.allclose(
        nn.BCEWithLogitsLoss(reduction)(logits, targets).numpy(), expected, rtol=1e-6, atol=1e-7
    )  # float32 roundings


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(seed=SEEDS, rows=st.integers(1, 6), classes=st.integers(2, 5))
@settings(max_examples=20)
def test_cross_entropy_takes_labels_and_shares(reduction, seed, rows, classes):
    generator = np.random.default_rng(seed)
    logits = (4 * generator.normal(size=(rows, classes))).astype(np.float32)
    labels = generator.integers(0, classes, rows)
    each = -log_softmax(logits.astype(np.float64))[np.arange(rows), labels]
    expected = REDUCTIONS[reduction](each)
    for target in (
        labels,
        labels.reshape(-1, 1),
        labels.astype(np.float32),
        eo.tensor(labels, dtype="int64"),
        eo.tensor(labels),
        labels.tolist(),
        np.eye(classes)[labels],
    ):
        assert np.allclose(
            nn.CrossEntropyLoss(reduction)(logits, target).numpy(), expected, rtol=1e-5, atol=1e-6
        )  # float32 beside float64
    shares = generator.dirichlet(np.ones(classes), rows)
    soft = REDUCTIONS[reduction](-(shares * log_softmax(logits.astype(np.float64))).sum(1))
    assert np.allclose(nn.cross_entropy(logits, shares, reduction).numpy(), soft, rtol=1e-5, atol=1e-6)


def test_gradients_of_losses_match_numpy():
    p, t = sides(3, (4, 3))
    for function, expected in ((nn.mse_loss, 2 * (p - t) / 12), (nn.mae_loss, np.sign(p - t) / 12)):
        x = eo.tensor(p, requires_grad=True)
        function(x, t).backward()
        assert np.allclose(x.grad, expected, rtol=1e-5, atol=1e-7)
    x = eo.tensor(p, requires_grad=True)
    nn.cross_entropy(x, [0, 2, 1, 1]).backward()
    assert np.allclose(x.grad, (np.exp(log_softmax(p)) - np.eye(3)[[0, 2, 1, 1]]) / 4, rtol=1e-5, atol=1e-7)


def test_bce_clips_certain_probabilities():
    loss = nn.BCELoss("none")(np.array([0.0, 1.0], np.float32), np.array([1.0, 0.0], np.float32)).numpy()
    # 1 - 1e-7 is 1 - 2^-23 in float32, a fifth more than asked.
    assert np.isfinite(loss).all() and np.allclose(loss, -np.log(1e-7), rtol=0.02)


def test_losses_refuse_what_does_not_fit():
    a, b = np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)
    for loss in (nn.MSELoss, nn.MAELoss, nn.BCELoss, nn.BCEWithLogitsLoss):
        with pytest.raises(eo.EveryOShapeError, match="same shape"):
            loss()(a, b)
    for loss in (nn.MSELoss, nn.MAELoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.CrossEntropyLoss, nn.Loss):
        with pytest.raises(ValueError, match="Unknown reduction"):
            loss("median")
    for function in (nn.mse_loss, nn.mae_loss, nn.binary_cross_entropy):
        with pytest.raises(ValueError, match="Unknown reduction"):
            function(a, a, "median")
    for outside in (-0.1, 1.1):
        with pytest.raises(eo.EveryOShapeError, match="probabilities"):
            nn.BCELoss()(np.full((2,), outside, np.float32), np.zeros(2, np.float32))
    with pytest.raises(eo.EveryOShapeError, match=r"\(batch, classes\)"):
        nn.CrossEntropyLoss()(np.zeros(3, np.float32), [0])
    with pytest.raises(eo.EveryOShapeError, match="targets"):
        nn.CrossEntropyLoss()(a, [0, 1, 2])
    with pytest.raises(eo.EveryOShapeError, match="whole numbers"):
        nn.CrossEntropyLoss()(a, [0.5, 1.0])
    with pytest.raises(eo.EveryOShapeError, match="row 1"):
        nn.CrossEntropyLoss()(a, [0, 3])


def test_Y12_LabelsStayWhole():
    # In float32 the label 16777217 would be 16777216, and the error would name the wrong one.
    with pytest.raises(eo.EveryOShapeError, match="16777217"):
        nn.cross_entropy(np.zeros((1, 3), np.float32), np.array([16777217]))


def test_rows_to_ignore_count_for_nothing():
    logits = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32)
    alone = nn.cross_entropy(logits[:1], [1]).item()
    assert nn.cross_entropy(logits, [1, -100], ignore_index=-100).item() == pytest.approx(alone, rel=1e-6)

"""The made-up data sets: names, shapes, dtypes, and draws that depend on the arguments alone."""

import numpy as np
import pytest

from everyo import datasets

# name, arguments, shape of x, shape of y, whether y holds classes 0..K-1 of K
SETS = [
    ("load_digits", {}, (2000, 64), 10),
    ("load_digits", {"samples_per_class": 3, "flatten": False}, (30, 8, 8, 1), 10),
    ("make_blobs", {}, (300, 2), 3),
    ("make_moons", {}, (300, 2), 2),
    ("make_spirals", {}, (300, 2), 3),
    ("make_xor", {}, (400, 2), 2),
    ("make_recall_task", {}, (2000, 20), 4),
    ("make_parity_task", {}, (2000, 10, 1), 2),
]


@pytest.mark.parametrize("name, arguments, shape, classes", SETS)
def test_sets_have_their_shapes_and_classes(name, arguments, shape, classes):
    make = getattr(datasets, name)
    x, y = make(**arguments)
    assert (
        x.shape == shape
        and y.shape == shape[:1]
        and y.dtype == np.int64
        and np.unique(y).tolist() == list(range(classes))
    )
    assert x.dtype == (np.int64 if name == "make_recall_task" else np.float32) and np.isfinite(x).all()
    again, other = make(**arguments), make(**arguments, seed=1)
    assert np.array_equal(x, again[0]) and np.array_equal(y, again[1]) and not np.array_equal(x, other[0])
    assert np.array_equal(make(**arguments, seed=0)[0], x), "the default seed is 0"
    with pytest.raises(TypeError):
        make(5)


def test_regression_draws_as_numpy_does():
    x, y = datasets.make_regression(n_samples=64, n_features=4, noise=0.05)
    generator = np.random.default_rng(0)
    features = generator.normal(size=(64, 4)).astype(np.float32)
    weights = generator.uniform(-3, 3, size=(4, 1)).astype(np.float32)
    targets = (features @ weights + generator.normal(0, 0.05, size=(64, 1))).astype(np.float32)
    assert np.array_equal(x, features) and np.array_equal(y, targets) and y.dtype == np.float32
    x, y = datasets.make_regression(noise=0.0, bias=2.0)
    assert x.shape == (200, 1) and y.shape == (200, 1)
    slope = (y[1] - y[0]) / (x[1] - x[0])
    assert np.allclose(y - slope * x, 2.0, atol=1e-5)  # float32 values up to 10: a few units of 1e-6


def test_glyphs_differ_and_digits_are_drawn_from_them():
    glyphs = np.stack([datasets.render_digit(digit) for digit in range(10)])
    assert glyphs.shape == (10, 8, 8) and set(np.unique(glyphs)) == {0.0, 1.0}
    distances = [np.abs(a - b).sum() for i, a in enumerate(glyphs) for b in glyphs[:i]]
    assert min(distances) >= 2
    x, y = datasets.load_digits(samples_per_class=2, noise=0.0, max_shift=0, flatten=False)
    assert np.array_equal(x[..., 0], glyphs[y])
    assert x.min() >= 0 and datasets.load_digits()[0].max() <= 1
    with pytest.raises(ValueError, match="0..9"):
        datasets.render_digit(10)


def test_shifted_digits_keep_their_ink():
    plain = np.stack([datasets.render_digit(digit) for digit in range(10)]).sum(axis=(1, 2))
    x, y = datasets.load_digits(samples_per_class=5, noise=0.0, flatten=True)
    assert np.array_equal(x.sum(axis=1), plain[y])  # glyphs leave one cell free on each side


def test_labels_follow_their_rule():
    tokens, label = datasets.make_recall_task()
    assert np.array_equal(tokens[:, 0], label) and tokens[:, 1:].min() >= 4 and tokens.max() <= 15
    bits, parity = datasets.make_parity_task(n_samples=50)
    assert np.array_equal(bits.sum(axis=(1, 2)) % 2, parity)
    copied, wanted = datasets.make_copy_task()
    assert np.array_equal(copied, wanted) and copied.dtype == np.int64
    x, y = datasets.make_xor(noise=0.0)
    assert np.array_equal((x[:, 0] * x[:, 1] < 0).astype(int), y)


def test_sets_refuse_sizes_that_are_not_positive():
    for make, argument in (
        (datasets.make_blobs, "n_samples"),
        (datasets.make_regression, "n_features"),
        (datasets.load_digits, "samples_per_class"),
    ):
        with pytest.raises(ValueError, match=argument):
            make(**{argument: 0})
    with pytest.raises(ValueError, match="vocab_size"):
        datasets.make_recall_task(vocab_size=4)

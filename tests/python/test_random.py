"""Draws are those of numpy.random.default_rng, to the bit."""

import pickle

import numpy as np
import pytest

import everyo as eo
from everyo import _core

SEEDS = [0, 1, 42, 2**32, 2**70 + 5]


def same(tensor, array, dtype=np.float32):
    return tensor.numpy().dtype == dtype and np.array_equal(tensor.numpy(), array.astype(dtype))


@pytest.mark.parametrize("seed", SEEDS)
def test_tensors_of_draws(seed):
    def rng():
        return np.random.default_rng(seed)

    assert same(eo.uniform((3, 5), -2, 3, seed=seed), rng().uniform(-2, 3, (3, 5)))
    assert same(eo.normal((3, 5), 1, 2, seed=seed), rng().normal(1, 2, (3, 5)))
    assert same(eo.rand(4, 2, seed=seed), rng().uniform(size=(4, 2)))
    assert same(eo.randn(4, 2, seed=seed), rng().normal(size=(4, 2)))
    assert same(eo.rand(7, seed=seed, dtype="float64"), rng().uniform(size=7), np.float64)
    assert same(eo.randn(7, seed=seed, dtype="float16"), rng().normal(size=7), np.float16)


def test_a_numpy_generator_is_drawn_from():
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(2):
        assert same(eo.uniform((4,), seed=ours), theirs.uniform(size=4))
        assert same(eo.randn(4, seed=ours), theirs.normal(size=4))


def test_without_a_seed_draws_differ():
    assert eo.rand(8).tolist() != eo.rand(8).tolist()


@pytest.mark.parametrize("seed", [*SEEDS, [1, 2], (3, 2**40)])
def test_the_generator(seed):
    ours, theirs = _core.Generator(seed), np.random.default_rng(seed)
    assert np.array_equal(ours.random(5), theirs.random(5))
    assert ours.normal() == theirs.normal()
    assert np.array_equal(ours.normal(2, 3, (2, 2)), theirs.normal(2, 3, (2, 2)))
    assert np.array_equal(ours.integers(10, size=7), theirs.integers(10, size=7))
    assert np.array_equal(ours.integers(-3, 900, 7), theirs.integers(-3, 900, 7))
    assert np.array_equal(ours.permutation(20), theirs.permutation(20))
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.random() == ours.random() == theirs.random()


def expected_weights(name, shape, seed):
    fan_in = int(np.prod(shape[:-1]))
    fan_out = shape[-1] * int(np.prod(shape[:-2], dtype=int))
    rng = np.random.default_rng(seed)
    if name.endswith("uniform"):
        limit = {
            "xavier_uniform": np.sqrt(6 / (fan_in + fan_out)), "glorot_uniform": np.sqrt(6 / (fan_in + fan_out)),
            "he_uniform": np.sqrt(6 / fan_in), "kaiming_uniform": np.sqrt(6 / fan_in), "uniform": 0.05,
        }[name]  # fmt: skip
        return rng.uniform(-limit, limit, shape)
    deviation = {
        "xavier_normal": np.sqrt(2 / (fan_in + fan_out)), "glorot_normal": np.sqrt(2 / (fan_in + fan_out)),
        "he_normal": np.sqrt(2 / fan_in), "kaiming_normal": np.sqrt(2 / fan_in), "normal": 0.05,
    }[name]  # fmt: skip
    return rng.normal(0, deviation, shape)


@pytest.mark.parametrize("shape", [(64, 32), (3, 3, 4, 8)])
@pytest.mark.parametrize(
    "name",
    [
        "xavier_uniform", "xavier_normal", "glorot_uniform", "glorot_normal", "he_uniform", "he_normal",
        "kaiming_uniform", "kaiming_normal", "uniform", "normal",
    ],
)  # fmt: skip
def test_initializers_give_numpys_bits(name, shape):
    for seed in (0, 7):
        assert same(_core.initialise(name, shape, seed), expected_weights(name, shape, seed))
    if hasattr(_core, name) and name not in ("uniform", "normal"):
        assert same(getattr(_core, name)(shape, 7), expected_weights(name, shape, 7))


def test_constant_initializers_and_unknown_ones():
    assert _core.initialise("zeros", (2,)).tolist() == [0, 0] and _core.initialise("ones", (2,)).tolist() == [1, 1]
    with pytest.raises(ValueError, match="Unknown initializer"):
        _core.initialise("magic", (2,))
    assert _core.compute_fans((3, 3, 4, 8)) == (36, 72) and _core.compute_fans((5,)) == (5, 5)


def test_bad_seeds_are_refused():
    with pytest.raises(ValueError, match="negative"):
        eo.rand(2, seed=-1)
    with pytest.raises(TypeError):
        eo.rand(2, seed="one")


def test_dropout_masks_hang_on_seed_step_path_and_site():
    x = eo.ones(1000)

    def mask(name="a", site=0, seed=1, step=0):
        _core.set_seed(seed)
        _core.set_step(step)
        with _core.ModuleScope("net"), _core.ModuleScope(name):
            return _core.dropout(x, 0.5, site=site).tolist()

    try:
        assert mask() == mask()
        others = [mask("b"), mask(site=1), mask(seed=2), mask(step=1)]
        assert all(other != mask() for other in others)
        assert set(mask()) == {0, 2}
    finally:
        _core.set_seed(0)
        _core.set_step(0)


def test_module_scopes_nest_and_name_paths():
    outer, inner = _core.ModuleScope("net"), _core.ModuleScope("blocks.0")
    assert _core.module_path() == ""
    assert outer.call(inner.call, _core.module_path) == "net.blocks.0"
    with outer, inner, inner:
        assert _core.module_path() == "net.blocks.0.blocks.0"
    with pytest.raises(KeyError):
        outer.call({}.__getitem__, 1)
    assert _core.module_path() == ""

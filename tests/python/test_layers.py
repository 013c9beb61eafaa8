"""Layers against NumPy, their defaults, and what they refuse. Letters: N batch, H W image, C channels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everyo as eo
from everyo import nn

RNG = np.random.default_rng(12)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# ---- initial weights ----

FAN_IN, FAN_OUT = 6, 4
LIMITS = {"he_uniform": np.sqrt(6 / FAN_IN), "xavier_uniform": np.sqrt(6 / (FAN_IN + FAN_OUT)), "uniform": 0.05}
DEVIATIONS = {"he_normal": np.sqrt(2 / FAN_IN), "xavier_normal": np.sqrt(2 / (FAN_IN + FAN_OUT)), "normal": 0.05}
ALIASES = {"kaiming": "he", "glorot": "xavier"}


def expected_draw(name, shape, seed):
    generator = np.random.default_rng(seed)
    draw = (
        generator.uniform(-LIMITS[name], LIMITS[name], shape)
        if name in LIMITS
        else generator.normal(0, DEVIATIONS[name], shape)
    )
    return draw.astype(np.float32)


@pytest.mark.parametrize("name", [*LIMITS, *DEVIATIONS])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_linear_weights_are_numpys_draws(name, seed):
    layer = nn.Linear(FAN_IN, FAN_OUT, initializer=name, seed=seed)
    assert layer.weight.numpy().tobytes() == expected_draw(name, (FAN_IN, FAN_OUT), seed).tobytes()
    for alias, own in ALIASES.items():
        if name.startswith(own):
            other = nn.Linear(FAN_IN, FAN_OUT, initializer=name.replace(own, alias), seed=seed)
            assert other.weight.numpy().tobytes() == layer.weight.numpy().tobytes()


def test_conv_weights_count_the_kernels_cells_as_fans():
    limit = np.sqrt(6 / (2 * 3 * 5))
    expected = np.random.default_rng(7).uniform(-limit, limit, (2, 3, 5, 4)).astype(np.float32)
    assert nn.Conv2D(5, 4, (2, 3), seed=7).weight.numpy().tobytes() == expected.tobytes()


def test_defaults_are_he_uniform_and_zero_biases():
    layer = nn.Linear(FAN_IN, FAN_OUT, seed=3)
    assert layer.weight.numpy().tobytes() == expected_draw("he_uniform", (FAN_IN, FAN_OUT), 3).tobytes()
    assert (
        layer.bias.tolist() == [0] * FAN_OUT
        and layer.use_bias
        and layer.weight.requires_grad
        and layer.weight.dtype == "float32"
    )
    plain = nn.Linear(2, 2, bias=False)
    assert plain.bias is None and not plain.use_bias and list(plain.state_dict()) == ["weight"]
    assert not np.array_equal(
        nn.Linear(4, 4).weight.numpy(), nn.Linear(4, 4).weight.numpy()
    ), "without a seed, from entropy"


@pytest.mark.parametrize("seed", [0, 2**64, 2**200 + 1, np.int32(5), [1, 2**70], np.array([3, 4]), True])
def test_seeds_are_all_that_numpy_takes(seed):
    sequence = np.random.SeedSequence(7)
    for given, same in ((seed, seed), (sequence, np.random.SeedSequence(7))):
        wanted = np.random.default_rng(same).uniform(-1, 1, (3, 4)).astype(np.float32)
        assert np.array_equal(nn.initialization.uniform_init((3, 4), low=-1, high=1, seed=given), wanted)
        limit = np.sqrt(6 / 3)
        wanted = np.random.default_rng(same).uniform(-limit, limit, (3, 4)).astype(np.float32)
        assert np.array_equal(nn.Linear(3, 4, seed=given).weight.data, wanted)
        wanted = np.random.default_rng(same).normal(0, np.sqrt(2 / 7), (3, 4)).astype(np.float32)
        assert np.array_equal(nn.Linear(3, 4, initializer="xavier_normal", seed=given).weight.data, wanted)
        assert np.array_equal(eo.rand(3, seed=given).data, np.random.default_rng(same).random(3).astype(np.float32))


def test_a_generator_as_seed_moves_on():
    ours, numpys = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(2):
        limit = np.sqrt(6 / 2)
        wanted = numpys.uniform(-limit, limit, (2, 3)).astype(np.float32)
        assert np.array_equal(nn.Linear(2, 3, seed=ours).weight.data, wanted)
    assert ours.bit_generator.state == numpys.bit_generator.state
    assert nn.Dropout(seed=ours).seed != nn.Dropout(seed=ours).seed


def test_seeds_of_wrong_kinds_are_refused():
    mersenne = np.random.Generator(np.random.MT19937(1))
    for make in (
        lambda seed: nn.Linear(2, 2, seed=seed),
        lambda seed: nn.Dropout(seed=seed),
        lambda seed: nn.initialization.he_normal((2, 2), seed=seed),
    ):
        with pytest.raises(ValueError, match="negative"):
            make(-1)
        for seed in (1.5, "a", object(), mersenne):
            with pytest.raises(TypeError, match="seed"):
                make(seed)


def test_initialization_functions():
    assert nn.initialization.compute_fans((3, 5)) == (3, 5)
    assert nn.initialization.compute_fans((4,)) == (4, 4)
    assert nn.initialization.compute_fans((2, 3, 5, 7)) == (30, 42)
    assert nn.initialization.zeros_init((2,)).tolist() == [0, 0] and nn.initialization.ones_init((2,)).tolist() == [
        1,
        1,
    ]
    doubled = nn.initialization.he_normal((FAN_IN, FAN_OUT), gain=2.0, seed=1)
    # The deviation is doubled before the draws are rounded.
    assert (
        np.allclose(doubled, 2 * expected_draw("he_normal", (FAN_IN, FAN_OUT), 1), rtol=1e-6)
        and doubled.dtype == np.float32
    )
    assert nn.initialization.get_initializer("zeros")((2, 2), seed=0).tolist() == [[0, 0], [0, 0]]
    for make in (
        lambda: nn.initialization.get_initializer("magic"),
        lambda: nn.Linear(2, 2, initializer="magic"),
        lambda: nn.Conv2D(2, 2, initializer="magic"),
    ):
        with pytest.raises(ValueError, match="Unknown initializer"):
            make()


# ---- linear ----


@given(st.lists(st.integers(0, 3), max_size=3))
def test_linear_takes_any_leading_sizes(leading):
    layer, x = nn.Linear(5, 3, seed=1), np.random.default_rng(0).normal(size=(*leading, 5)).astype(np.float32)
    expected = x.astype(np.float64) @ layer.weight.numpy().astype(np.float64) + layer.bias.numpy()
    y = layer(x)
    # Five products of size about 1, in float32.
    assert y.shape == expected.shape and np.allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_linear_gradients_match_numpy():
    layer, x = nn.Linear(3, 2, seed=0), eo.tensor(normal(4, 3), requires_grad=True)
    weights = normal(4, 2)
    (layer(x) * weights).sum().backward()
    assert np.allclose(layer.weight.grad, x.numpy().T @ weights, rtol=1e-5, atol=1e-6)
    assert np.allclose(layer.bias.grad, weights.sum(0), rtol=1e-5, atol=1e-6)
    assert np.allclose(x.grad, weights @ layer.weight.numpy().T, rtol=1e-5, atol=1e-6)


def test_linear_refuses_what_does_not_fit():
    layer = nn.Linear(4, 2)
    for x in (normal(2, 3), np.float32(1)):
        with pytest.raises(eo.EveryOShapeError, match="must be 4"):
            layer(x)
    for sizes in ((0, 2), (2, -1)):
        with pytest.raises(eo.EveryOShapeError):
            nn.Linear(*sizes)


def test_whole_numbers_become_floats_in_layers():
    layer = nn.Linear(2, 1, seed=0)
    whole = np.array([[1, 2]])
    expected = layer(whole.astype(np.float32)).numpy()
    for x in (whole, eo.tensor(whole, dtype="int64"), [[1, 2]], whole.astype(bool) * whole):
        assert np.array_equal(layer(x).numpy(), expected)


# ---- norms ----


def test_batch_norm_in_training_and_evaluation():
    for layer, x in ((nn.BatchNorm1D(3), normal(8, 3)), (nn.BatchNorm2D(3), normal(2, 4, 3, 3))):
        rows = x.reshape(-1, 3).astype(np.float64)
        mean, variance = rows.mean(0), rows.var(0)
        layer.weight.data, layer.bias.data = [1.0, 2.0, 3.0], [0.5, 0.0, -0.5]
        scaled = lambda m, v: (x - m) / np.sqrt(v + 1e-5) * [1, 2, 3] + [0.5, 0, -0.5]
        # Values near 1 from float32 statistics.
        close = {"rtol": 1e-5, "atol": 1e-5}
        assert np.allclose(layer(x).numpy(), scaled(mean, variance), **close)
        unbiased = rows.var(0, ddof=1)
        assert np.allclose(layer.running_mean, 0.1 * mean, **close) and np.allclose(
            layer.running_var, 0.9 + 0.1 * unbiased, **close
        )
        assert layer.num_batches_tracked == 1 and layer.state_dict()["num_batches_tracked"].dtype == np.int64
        layer.eval()
        assert np.allclose(layer(x).numpy(), scaled(0.1 * mean, 0.9 + 0.1 * unbiased), **close)
        assert layer.num_batches_tracked == 1 and np.allclose(layer.running_mean, 0.1 * mean, **close)


def test_batch_norm_without_tracking_uses_its_batch():
    layer, x = nn.BatchNorm1D(2, affine=False, track_running_stats=False), normal(6, 2)
    assert list(layer.state_dict()) == []
    assert np.array_equal(layer(x).numpy(), layer.eval()(x).numpy())


def test_batch_norm_state_is_used_after_loading():
    layer = nn.BatchNorm1D(1, affine=False).eval()
    layer.load_state_dict({"running_mean": [2.0], "running_var": [4.0], "num_batches_tracked": 9})
    assert layer(np.array([[4.0]], np.float32)).item() == pytest.approx(1.0, rel=1e-5)  # eps beside 4
    assert layer.num_batches_tracked == 9


def test_layer_norm_matches_numpy():
    x = normal(2, 3, 4)
    for shape, axes in ((4, (-1,)), ((3, 4), (-2, -1))):
        layer = nn.LayerNorm(shape)
        expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        assert np.allclose(layer(x).numpy(), expected, rtol=1e-5, atol=1e-5)  # float32 statistics
        assert (layer.weight.numpy() == 1).all() and (layer.bias.numpy() == 0).all()
    assert list(nn.LayerNorm(4, affine=False).state_dict()) == []


def test_group_norm_matches_numpy():
    x, layer = normal(2, 3, 4, 6), nn.GroupNorm(3, 6)
    layer.bias.data = np.arange(6)
    groups = x.reshape(2, 12, 3, 2).astype(np.float64)
    mean, variance = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    expected = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) + np.arange(6)
    assert np.allclose(layer(x).numpy(), expected, rtol=1e-5, atol=1e-5)  # float32 statistics
    assert list(layer.state_dict()) == ["weight", "bias"] and list(nn.GroupNorm(2, 4, affine=False).state_dict()) == []


def test_norms_refuse_what_does_not_fit():
    for call, words in (
        (lambda: nn.BatchNorm1D(3)(normal(2, 2, 3)), "2-D input"),
        (lambda: nn.BatchNorm2D(3)(normal(2, 3)), "4-D input"),
        (lambda: nn.BatchNorm1D(3)(normal(4, 2)), "last axis"),
        (lambda: nn.BatchNorm2D(3)(normal(1, 2, 2, 4)), "last axis"),
        (lambda: nn.BatchNorm1D(0), "positive"),
        (lambda: nn.LayerNorm(4)(normal(2, 3)), "trailing axes"),
        (lambda: nn.LayerNorm(0), "positive normalized_shape"),
        (lambda: nn.LayerNorm(()), "positive normalized_shape"),
        (lambda: nn.GroupNorm(2, 3), "groups divide"),
        (lambda: nn.GroupNorm(2, 4)(normal(3, 6)), "last axis"),
    ):
        with pytest.raises(eo.EveryOShapeError, match=words):
            call()
    for make in (nn.BatchNorm1D, nn.BatchNorm2D, nn.LayerNorm):
        with pytest.raises(ValueError, match="eps"):
            make(3, eps=0)
    with pytest.raises(ValueError, match="eps"):
        nn.GroupNorm(1, 3, eps=0)
    for momentum in (-0.1, 1.5):
        with pytest.raises(ValueError, match="momentum"):
            nn.BatchNorm1D(3, momentum=momentum)


# ---- activations, shape, dropout ----


def test_activations_match_numpy():
    x = np.array([[-800.0, -1.0, 0.0], [0.5, 3.0, 800.0]], np.float32)
    wide = x.astype(np.float64)
    shifted = np.exp(wide - wide.max(1, keepdims=True))
    shares = shifted / shifted.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_shares = wide - wide.max(1, keepdims=True) - np.log(shifted.sum(1, keepdims=True))
    for layer, expected in (
        (nn.ReLU(), np.maximum(wide, 0)),
        (nn.Sigmoid(), 1 / (1 + np.exp(-np.clip(wide, -700, 700)))),
        (nn.Tanh(), np.tanh(wide)),
        (nn.SiLU(), wide / (1 + np.exp(-np.clip(wide, -700, 700)))),
        (nn.GELU(), wide * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(wide)),
        (nn.Softmax(), shares),
        (nn.LogSoftmax(), log_shares),
        (nn.Softmax(0), np.exp(wide - wide.max(0)) / np.exp(wide - wide.max(0)).sum(0)),
    ):
        assert np.allclose(layer(x).numpy(), expected, rtol=2e-6, atol=1e-37), type(layer)  # a few float32 roundings


def test_flatten_keeps_leading_axes():
    x = normal(2, 3, 4, 5)
    assert (
        nn.Flatten()(x).shape == (2, 60) and nn.Flatten(2)(x).shape == (2, 3, 20) and nn.Flatten(0)(x).shape == (120,)
    )


def test_unflatten_undoes_flatten():
    x = normal(2, 3, 4, 5)
    assert np.array_equal(nn.Unflatten((3, 4, 5))(nn.Flatten()(x)).numpy(), x)
    with pytest.raises(eo.EveryOShapeError, match="must be 6"):
        nn.Unflatten((2, 3))(normal(2, 5))


def test_dropout_scales_what_it_keeps():
    layer, x = nn.Dropout(0.25, seed=1), np.ones((200, 200), np.float32)
    y = layer(x).numpy()
    kept = y != 0
    # 40,000 draws: four deviations of their fraction are 0.0087.
    assert abs(kept.mean() - 0.75) < 0.0087 and np.array_equal(np.unique(y[kept]), np.float32([1 / 0.75]))
    assert np.array_equal(layer.eval()(x).numpy(), x) and np.array_equal(nn.Dropout(0)(x).numpy(), x)
    for p in (-0.1, 1, 1.5):
        with pytest.raises(ValueError, match=r"\[0, 1\)"):
            nn.Dropout(p)


def test_dropout_masks_depend_on_seed_call_and_place():
    x = np.ones(400, np.float32)
    masks = {
        name: layer(x).numpy().tobytes()
        for name, layer in (("a", nn.Dropout(seed=1)), ("again", nn.Dropout(seed=1)), ("other", nn.Dropout(seed=2)))
    }
    assert masks["a"] == masks["again"] != masks["other"]
    layer = nn.Dropout(seed=1)
    assert (
        layer(x).numpy().tobytes() == masks["a"] != layer(x).numpy().tobytes()
    ), "the second call of a step has its own"
    alike = nn.Sequential(nn.Dropout(seed=1), nn.Dropout(seed=1))
    first = alike[0](x).numpy()
    assert not np.array_equal(alike(x).numpy() != 0, first != 0)

    class Named(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.inner = Named(depth - 1) if depth else nn.Dropout(seed=1)

        def forward(self, x):
            return self.inner(x)

    shallow, deep, again = Named(0)(x).numpy(), Named(1)(x).numpy(), Named(1)(x).numpy()
    assert not np.array_equal(shallow, deep) and np.array_equal(deep, again)


def test_sequential_runs_activations_with_their_layer_to_the_same_bits():
    x, image = normal(5, 6), normal(2, 5, 5, 3)
    for layer, value in (
        (nn.Linear(6, 4, seed=0), x),
        (nn.Conv2D(3, 2, seed=0), image),
        (nn.BatchNorm1D(6), x),
        (nn.BatchNorm2D(3), image),
        (nn.LayerNorm(6), x),
        (nn.GroupNorm(2, 6), x),
    ):
        for activation in (nn.ReLU(), nn.Sigmoid(), nn.Tanh(), nn.GELU(), nn.SiLU()):
            fused = nn.Sequential(layer, activation)(value).numpy()
            assert fused.tobytes() == activation(layer(value)).numpy().tobytes(), (layer, activation)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(2, 4), (4,), (), (2, 2, 4)])
def test_linear_names_its_width_whatever_the_dtype(shape, dtype):
    with pytest.raises(eo.EveryOShapeError, match="must be 3"):
        nn.Linear(3, 2)(np.ones(shape, dtype))


def test_a_forward_put_on_an_activation_runs():
    relu = nn.ReLU()
    relu.forward = lambda x: x * 0.0 + 5.0
    for layer in (nn.Linear(2, 2), nn.LayerNorm(2)):
        assert nn.Sequential(layer, relu)(np.ones((1, 2), np.float32)).tolist() == [[5.0, 5.0]]

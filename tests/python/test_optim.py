"""Optimizers against NumPy, their state, and what they refuse."""

import numpy as np
import pytest

import everyo as eo
from everyo import nn, optim

# Ten float32 steps beside float64 ones: a few roundings each.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def steps(make, gradients):
    """The values of one parameter after each gradient."""
    parameter = nn.Parameter(np.array([1.0, -2.0, 0.5], np.float32).copy())
    optimizer, values = make([parameter]), []
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
        values.append(parameter.numpy())
    assert optimizer.step_count == len(gradients)
    return values


GRADIENTS = np.random.default_rng(5).normal(size=(10, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "momentum, nesterov, decay", [(0, False, 0), (0.9, False, 0), (0.9, True, 0), (0.5, False, 0.1), (0.8, True, 0.01)]
)
def test_sgd_matches_numpy(momentum, nesterov, decay):
    value, velocity = np.array([1.0, -2.0, 0.5]), None
    got = steps(lambda p: optim.SGD(p, lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay), GRADIENTS)
    for gradient, actual in zip(GRADIENTS.astype(np.float64), got):
        g = gradient + decay * value
        velocity = g if velocity is None else momentum * velocity + g
        value = value - 0.1 * (g + momentum * velocity if nesterov else velocity)
        assert np.allclose(actual, value, **CLOSE)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decay, decoupled", [(0, False), (0.1, False), (0.1, True)])
@pytest.mark.parametrize("state_dtype", ["float32", "float64"])
def test_adam_matches_numpy(amsgrad, decay, decoupled, state_dtype):
    value, m, v, largest = np.array([1.0, -2.0, 0.5]), 0.0, 0.0, 0.0
    kind = optim.AdamW if decoupled else optim.Adam
    got = steps(
        lambda p: kind(
            p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay, amsgrad=amsgrad, state_dtype=state_dtype
        ),
        GRADIENTS,
    )
    for t, (gradient, actual) in enumerate(zip(GRADIENTS.astype(np.float64), got), 1):
        value = value * (1 - 0.05 * decay) if decoupled else value
        g = gradient if decoupled else gradient + decay * value
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        largest = np.maximum(largest, v)
        square = (largest if amsgrad else v) / (1 - 0.95**t)
        value = value - 0.05 * (m / (1 - 0.8**t)) / (np.sqrt(square) + 1e-6)
        assert np.allclose(actual, value, **CLOSE)


def test_defaults_and_configurations():
    parameter = [nn.Parameter(np.ones(2, np.float32))]
    assert optim.SGD(parameter).get_config() == {"lr": 0.01, "momentum": 0.0, "weight_decay": 0.0, "nesterov": False}
    assert optim.Adam(parameter).get_config() == {
        "lr": 0.001,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.0,
        "amsgrad": False,
    }
    assert optim.AdamW(parameter).get_config()["weight_decay"] == 0.01
    optimizer = optim.Adam(parameter, 0.5)
    optimizer.lr /= 2
    assert optimizer.lr == 0.25 and optimizer.get_config()["lr"] == 0.25 and isinstance(optimizer, optim.Optimizer)


def test_parameters_are_the_ones_given():
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters())
    assert optimizer.parameters[0] is model.weight and optimizer.parameters[1] is model.bias
    assert optim.SGD(iter(model.parameters())).parameters[1] is model.bias


def test_Y10_ParametersGivenTwiceAreSteppedOnce():
    weight = nn.Parameter(np.array([4.0], np.float32))
    for optimizer in (optim.SGD([weight, weight], lr=0.5), optim.Optimizer([weight, weight], 0.5)):
        assert len(optimizer.parameters) == 1
    (weight * 2.0).sum().backward()
    optim.SGD([weight, weight], lr=0.5).step()
    assert weight.item() == 3.0


def test_parameters_without_gradient_or_frozen_are_skipped():
    used, unused, frozen = (nn.Parameter(np.ones(1, np.float32)) for _ in range(3))
    optimizer = optim.SGD([used, unused, frozen], lr=1.0)
    (used * 1.0 + frozen * 1.0).sum().backward()
    frozen.requires_grad = False
    optimizer.step()
    assert [p.item() for p in (used, unused, frozen)] == [0, 1, 1]
    optimizer.zero_grad()
    assert used.grad is None


def test_state_is_kept_by_parameter_and_round_trips():
    def train(optimizer, model, count):
        for _ in range(count):
            optimizer.zero_grad()
            nn.mse_loss(model(np.ones((3, 2), np.float32)), np.zeros((3, 1), np.float32)).backward()
            optimizer.step()

    for kind, names in ((optim.SGD, {"velocity"}), (optim.Adam, {"mean", "square"})):
        options = {"momentum": 0.9} if kind is optim.SGD else {}
        model, twin = nn.Linear(2, 1, seed=0), nn.Linear(2, 1, seed=0)
        optimizer = kind(model.parameters(), 0.1, **options)
        assert optimizer.state == {}
        train(optimizer, model, 3)
        assert optimizer.state.keys() == {id(model.weight), id(model.bias)}
        entry = optimizer.state[id(model.weight)]
        assert names <= entry.keys() and entry["steps"] == 3 and all(entry[name].shape == (2, 1) for name in names)
        twin.load_state_dict(model.state_dict())
        other = kind(twin.parameters(), 0.5, **options)
        other.load_state_dict(optimizer.state_dict())
        assert other.lr == 0.1 and other.step_count == 3
        train(optimizer, model, 2)
        train(other, twin, 2)
        assert model.weight.numpy().tobytes() == twin.weight.numpy().tobytes()
        with pytest.raises(eo.EveryOError, match="does not fit"):
            kind([nn.Parameter(np.ones(5, np.float32))], **options).load_state_dict(optimizer.state_dict())


def test_refuses_what_does_not_fit():
    parameter = [nn.Parameter(np.ones(2, np.float32))]
    for make in (optim.SGD, optim.Adam, optim.AdamW):
        with pytest.raises(eo.EveryOError, match="no parameters"):
            make([])
        with pytest.raises(eo.EveryOError, match="EveryO tensor"):
            make([np.ones(2)])
        for lr in (0, -1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="positive"):
                make(parameter, lr)
        optimizer = make(parameter)
        with pytest.raises(ValueError, match="positive"):
            optimizer.lr = 0
        with pytest.raises(ValueError):
            make(parameter, weight_decay=-1.0)
    for momentum in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"\[0, 1\)"):
            optim.SGD(parameter, momentum=momentum)
    with pytest.raises(ValueError, match="Nesterov"):
        optim.SGD(parameter, nesterov=True)
    for options, words in (({"betas": (1.0, 0.9)}, "beta1"), ({"betas": (0.9, -0.1)}, "beta2"), ({"eps": 0.0}, "eps")):
        with pytest.raises(ValueError, match=words):
            optim.Adam(parameter, **options)


def test_an_optimizer_of_ones_own():
    class Signs(optim.Optimizer):
        def step(self):
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.data = parameter.numpy() - self.lr * np.sign(parameter.grad)
            self.step_count += 1

    model = nn.Linear(2, 1, seed=0)
    optimizer, before = Signs(model.parameters(), 0.5), model.bias.item()
    trainer = eo.training.Trainer(model, optimizer, nn.MSELoss())
    trainer.fit([(np.ones((1, 2), np.float32), np.full((1, 1), 99, np.float32))], epochs=2, verbose=False)
    assert optimizer.step_count == 2 and model.bias.item() == before + 1.0 and optimizer.get_config() == {"lr": 0.5}
    with pytest.raises(NotImplementedError):
        optim.Optimizer(model.parameters(), 0.1).step()
    for lr in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            Signs(model.parameters(), lr)


def test_clipping_gives_the_norm_before():
    a, b = (nn.Parameter(np.zeros(1, np.float32)) for _ in range(2))
    (a * 3.0 + b * 4.0).sum().backward()
    assert optim.clip_grad_norm([a, b], 1.0) == pytest.approx(5.0) and a.grad[0] == pytest.approx(0.6)
    optim.clip_grad_value([a, b], 0.7)
    assert b.grad[0] == pytest.approx(0.7) and a.grad[0] == pytest.approx(0.6)
    assert optim.first_nonfinite([a, b]) == ""


def test_schedules_scale_the_learning_rate():
    optimizer = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=2.0)
    scheduler = optim.Scheduler(optimizer, optim.step_schedule(2, 0.1))
    rates = []
    for _ in range(4):
        rates.append(optimizer.lr)
        scheduler.step()
    assert np.allclose(rates, [2.0, 2.0, 0.2, 0.2])
    assert scheduler.step_count == 4
    with pytest.raises(TypeError, match="SGD"):
        optim.Scheduler(optim.Optimizer(optimizer.parameters, 0.1), optim.constant_schedule())


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.AdamW])
def test_the_list_of_parameters_is_what_is_stepped(make):
    def grown(late):
        old, new = nn.Parameter(np.ones(2)), nn.Parameter(np.ones(3))
        optimizer = make([old] if late else [old, new], 0.1, **({"momentum": 0.9} if make is optim.SGD else {}))
        for step in range(4):
            optimizer.zero_grad()
            if late and step == 2:
                optimizer.parameters.append(new)
            (old * old).sum().backward()
            if step >= 2:
                (new * new).sum().backward()
            optimizer.step()
        return old.tolist(), new.tolist(), optimizer.step_count

    assert grown(late=True) == grown(late=False)
    left, stays = nn.Parameter(np.ones(2)), nn.Parameter(np.ones(2))
    optimizer = make([left, stays], 0.1)
    (left * 2 + stays * 2).sum().backward()
    optimizer.step()
    before = left.tolist()
    optimizer.parameters = [stays]
    assert optimizer.state[id(stays)]["steps"] == 1 and id(left) not in optimizer.state
    optimizer.step()
    assert left.tolist() == before and stays.tolist() != before
    optimizer.parameters.append(np.ones(2))
    with pytest.raises(eo.EveryOError, match="EveryO tensor"):
        optimizer.step()


def test_a_scheduler_follows_a_changed_list():
    first, second = nn.Parameter(np.ones(1)), nn.Parameter(np.ones(1))
    optimizer = optim.SGD([first], 1.0)
    scheduler = optim.Scheduler(optimizer, optim.step_schedule(1, 0.5))
    optimizer.parameters.append(second)
    for rate in (0.5, 0.25):
        optimizer.step()
        scheduler.step()
        assert optimizer.lr == rate

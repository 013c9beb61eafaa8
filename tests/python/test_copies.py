"""Copies and pickles of tensors, optimizers and what holds them."""

import copy
import pickle

import numpy as np
import pytest

import everyo as eo
from everyo import nn

OPTIMIZERS = [
    lambda p: eo.SGD(p, 0.1, momentum=0.9, nesterov=True),
    lambda p: eo.Adam(p, 0.05, betas=(0.8, 0.9), amsgrad=True, state_dtype="float64"),
    lambda p: eo.AdamW(p, 0.05),
]
COPIES = [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))]
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def step(model, optimizer):
    optimizer.zero_grad()
    nn.mse_loss(model(X), X[:, :2]).backward()
    optimizer.step()


def values(model):
    return {name: value.tolist() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_copied_optimizer_steps_the_copied_model(make, copied):
    model = nn.Sequential(nn.Linear(3, 4, seed=0), nn.ReLU(), nn.Linear(4, 2, seed=1))
    model.layers[0].bias.requires_grad = False
    optimizer = make(model.parameters())
    step(model, optimizer)
    optimizer.lr = 0.02
    other, others = copied((model, optimizer))
    assert others.step_count == 1 and others.lr == 0.02 and others.get_config() == optimizer.get_config()
    assert all(mine is own for mine, own in zip(others.parameters, other.parameters()))
    before = values(model)
    step(other, others)
    assert values(model) == before != values(other)
    step(model, optimizer)
    assert values(model) == values(other)  # the same bits: the state came along


def test_a_copied_trainer_goes_on_alone():
    model = nn.Sequential(nn.Linear(3, 2, seed=0))
    trainer = eo.Trainer(model, eo.Adam(model.parameters()), nn.MSELoss())
    loader = eo.DataLoader(eo.ArrayDataset(X, X[:, :2]), 4)
    trainer.fit(loader, epochs=1, verbose=False)
    other, before = copy.deepcopy(trainer), values(model)
    other.fit(loader, epochs=1, verbose=False)
    assert values(model) == before
    trainer.fit(loader, epochs=1, verbose=False)
    assert values(model) == values(other.model)


def test_an_optimizer_of_ones_own_is_copied():
    class Plain(eo.optim.Optimizer):
        def step(self):
            for parameter in self.parameters:
                parameter.data = parameter.data - self.lr * parameter.grad

    model = nn.Linear(3, 2, seed=0)
    other, others = copy.deepcopy((model, Plain(model.parameters(), 0.1)))
    before = values(model)
    step(other, others)
    assert values(model) == before != values(other)


def test_schedulers_say_that_they_are_not_copied():
    optimizer = eo.SGD([eo.ones(2, requires_grad=True)])
    scheduler = eo.Scheduler(optimizer, eo.constant_schedule())
    for call in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="state"):
            call(scheduler)


@pytest.mark.parametrize("call", [copy.deepcopy, copy.copy, pickle.dumps])
def test_only_leaves_are_copied(call):
    leaf = eo.ones(2, requires_grad=True)
    assert call is pickle.dumps or call(leaf).requires_grad
    with pytest.raises(eo.EveryOGradientError, match="only leaves"):
        call(leaf * 2)
    call((leaf * 2).detach())


class Labelled(eo.Tensor):
    def __init__(self, data, label):
        super().__init__(data)
        self.label = label
        self.itself = self


@pytest.mark.parametrize("copied", COPIES)
def test_a_subclass_keeps_its_attributes(copied):
    first = Labelled([1.0, 2.0], ["a"])
    second = copied(first)
    assert type(second) is Labelled and second.tolist() == [1.0, 2.0]
    assert second.label == ["a"] and second.label is not first.label and second.itself is second
    assert copied(eo.Parameter(np.ones(2), name="w")).name == "w"

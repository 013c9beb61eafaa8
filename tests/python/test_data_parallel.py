"""Gradients over ranks: those of one process over all samples, to rounding; with virtual shards the same bits."""

import contextlib
import hashlib

import numpy as np
import pytest

import everyo as eo
from everyo import nn
from everyo.distributed import DataParallel, DistributedError, VirtualShards, average_gradients, shard_indices, spawn

# A mean over shards of means rounds in another order than one mean; gradients here are below 4, float32 has 2^-23 there.
ROUNDING = 4 * 4 * 2.0**-23


def net(seed=0, batch_norm=False):
    middle = [nn.BatchNorm1D(16), nn.ReLU(), nn.Dropout(0.25, seed=5)] if batch_norm else [nn.Tanh()]
    return nn.Sequential(nn.Linear(8, 16, seed=seed), *middle, nn.Linear(16, 1, seed=seed + 1))


def rows(count):
    rng = np.random.default_rng(7)
    return rng.normal(size=(count, 8)).astype(np.float32), rng.normal(size=(count, 1)).astype(np.float32)


def backward(model, x, y):
    loss = nn.mse_loss(model(x), y)
    loss.backward()


def gradients(model):
    return [None if p.grad is None else p.grad.copy() for p in model.parameters()]


def whole_gradients(count):
    model = net()
    backward(model, *rows(count))
    return gradients(model)


def close(ours, theirs):
    return all(np.abs(a - b).max() <= ROUNDING for a, b in zip(ours, theirs))


def digest(model):
    state = model.state_dict()
    return hashlib.sha256(b"".join(name.encode() + state[name].tobytes() for name in state)).hexdigest()


def test_shard_indices():
    assert shard_indices(10, 1, 3).tolist() == [3, 4, 5]
    assert [shard_indices(10, r, 3, drop_last=False).tolist() for r in range(3)] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert len(shard_indices(4, 3, 4)) == 1 and rows(6)[0][shard_indices(6, 0, 2)].shape == (3, 8)
    for arguments, words in [((5, 0, 0), "at least 1"), ((5, 2, 2), "rank must be"), ((5, -1, 2), "rank must be")]:
        with pytest.raises(DistributedError, match=words):
            shard_indices(*arguments)
    with pytest.raises(DistributedError, match="cannot be split"):
        shard_indices(2, 0, 3)


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_D1_gradients_over_equal_shards_are_those_of_one_process(method):
    x, y = rows(64)

    def worker(group):
        model, mine = net(), shard_indices(64, group.rank, group.world_size)
        backward(model, x[mine], y[mine])
        assert average_gradients(model.parameters(), group) == group.world_size
        return gradients(model)

    results = spawn(worker, 4, start_method=method)
    assert close(results[0], whole_gradients(64))
    assert all(np.array_equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


def test_D2_uneven_shards_are_weighted_by_their_rows():
    x, y = rows(65)

    def worker(group, weighted):
        model, mine = net(), shard_indices(65, group.rank, 3, drop_last=False)
        backward(model, x[mine], y[mine])
        average_gradients(model.parameters(), group, weight=len(mine) if weighted else 1.0)
        return gradients(model)

    assert close(spawn(worker, 3, args=(True,))[0], whole_gradients(65))
    assert not close(spawn(worker, 3, args=(False,))[0], whole_gradients(65))


def test_D4_parameters_without_a_gradient_are_treated_alike_on_all_ranks():
    def worker(group):
        one, two, frozen = (nn.Parameter(np.ones(2, np.float32)) for _ in range(3))
        frozen.requires_grad = False
        if group.rank == 1:
            eo.sum(one * 4).backward()
        average_gradients([one, two, frozen], group)
        return one.grad, two.grad, frozen.grad

    for one, two, frozen in spawn(worker, 2):
        assert one.tolist() == [2, 2] and two is None and frozen is None


def test_what_cannot_be_averaged_is_refused():
    def worker(group):
        parameters = net().parameters()
        with pytest.raises(TypeError, match="model.parameters"):
            average_gradients([1.0], group)
        with pytest.raises(DistributedError, match="weight"):
            average_gradients(parameters, group, weight=-1)
        with pytest.raises(TypeError, match="Module"):
            DataParallel(parameters, group)
        with pytest.raises(ValueError, match='"mean", "first" or "none"'):
            DataParallel(net(), group, buffers="all")
        with pytest.raises(ValueError, match="bucket_bytes"):
            DataParallel(net(), group, bucket_bytes=0)
        with pytest.raises((ValueError, DistributedError), match="shards"):
            VirtualShards(net(), group, 1)
        assert average_gradients(parameters, group, weight=0) == 0
        return True

    assert all(spawn(worker, 2))


@pytest.mark.parametrize("method", ["fork", "thread", "spawn"])
@pytest.mark.parametrize("bucket_bytes", [1, 1 << 20])
def test_data_parallel_averages_while_backward_runs(method, bucket_bytes):
    results = spawn(train_in_parallel, 3, args=(bucket_bytes,), start_method=method)
    model = net()
    optimizer = eo.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        backward(model, *rows(65))
        optimizer.step()
    assert len({digest for digest, _, _ in results}) == 1 and results[0][2] == 65
    assert close(results[0][1], [p.data for p in model.parameters()])


def train_in_parallel(group, bucket_bytes):
    x, y = rows(65)
    model = net(seed=0 if group.rank == 0 else 9)  # D06: rank 0's weights
    parallel = DataParallel(model, group, bucket_bytes=bucket_bytes)
    optimizer = eo.SGD(model.parameters(), lr=0.05)
    mine = shard_indices(65, group.rank, 3, drop_last=False)
    for _ in range(5):
        optimizer.zero_grad()
        parallel.set_weight(len(mine))
        backward(parallel, x[mine], y[mine])
        optimizer.step()
    assert parallel.exposed_seconds >= 0 and parallel.exchanged_bytes >= 4 * model.num_parameters()
    return digest(model), [p.data.copy() for p in model.parameters()], parallel.total_weight


def test_a_trainer_in_each_rank_trains_together():
    x, y = rows(64)

    def fit(group):
        parallel = DataParallel(net(), group)
        own = np.arange(64).reshape(4, group.world_size, -1)[:, group.rank].ravel()  # its part of each of 4 batches
        loader = eo.DataLoader(eo.ArrayDataset(x[own], y[own]), batch_size=16 // group.world_size)
        trainer = eo.Trainer(parallel.model, eo.SGD(parallel.model.parameters(), lr=0.1), nn.MSELoss())
        trainer.fit(loader, epochs=3, accumulation=2, verbose=False)
        return parallel.model.state_dict()

    alone, (first, second) = spawn(fit, 1)[0], spawn(fit, 2)
    for name in alone:
        assert first[name].tobytes() == second[name].tobytes()
        # Twelve steps whose gradients differ by at most ROUNDING.
        assert np.abs(first[name] - alone[name]).max() <= 12 * 0.1 * ROUNDING


def test_models_that_differ_are_refused():
    def worker(group, wide, broadcast):
        model = nn.Linear(4, 2 + group.rank if wide else 2, seed=group.rank)
        DataParallel(model, group, broadcast_weights=broadcast)

    with pytest.raises(DistributedError, match="'weight' has another name, shape or dtype on rank 1"):
        spawn(worker, 2, args=(True, True))
    with pytest.raises(DistributedError, match="'weight' has another value on rank 1"):
        spawn(worker, 2, args=(False, False))
    spawn(worker, 2, args=(False, True))


def test_a_rank_without_samples_takes_part_and_no_sync_adds_up():
    x, y = rows(8)

    def worker(group):
        model = net()
        parallel = DataParallel(model, group)
        if group.rank == 1:
            parallel.take_part()
            return gradients(model)
        with parallel.no_sync():
            (nn.mse_loss(parallel(x[:4]), y[:4]) * 0.5).backward()
        (nn.mse_loss(parallel(x[4:]), y[4:]) * 0.5).backward()
        return gradients(model)

    for result in spawn(worker, 2):
        assert close(result, whole_gradients(8))


@pytest.mark.parametrize("buffers", ["mean", "first", "none"])
def test_running_statistics_follow_the_rule(buffers):
    def worker(group):
        model = nn.Sequential(nn.BatchNorm1D(2))
        parallel = DataParallel(model, group, buffers=buffers)
        x = np.array([[0, 1], [2, 3]], np.float32) + group.rank
        (eo.sum(parallel(x)) + eo.sum(parallel(x))).backward()  # D05: two forwards before one backward
        return [array.copy() for array in model.buffers()]

    (mean_0, _, count_0), (mean_1, _, count_1) = spawn(worker, 2)
    alone = [0.19 * (1 + rank) for rank in range(2)]  # 1 - 0.9^2 of the batch's mean
    expected = {"mean": [sum(alone) / 2] * 2, "first": [alone[0]] * 2, "none": alone}[buffers]
    assert mean_0[0] == pytest.approx(expected[0], abs=1e-6) and mean_1[0] == pytest.approx(expected[1], abs=1e-6)
    assert count_0 == count_1 == 2


def test_a_parallel_model_ends_with_its_group():
    models = []

    def worker(group):
        models.append(net())
        parallel = DataParallel(models[-1], group)
        return parallel

    parallel = spawn(worker, 2, start_method="thread")[0]
    backward(models[0], *rows(4))  # as a model of its own
    with pytest.raises(DistributedError, match="closed"):
        parallel.set_weight(1)
    with pytest.raises(DistributedError, match="closed"):
        parallel.take_part()


def test_a_group_may_close_within_no_sync():
    def worker(group):
        parallel = DataParallel(net(), group)
        with parallel.no_sync():
            group.close()
        with pytest.raises(DistributedError, match="closed"):
            with parallel.no_sync():
                pass
        return True

    assert all(spawn(worker, 2))


def train_with_shards(group, shards):
    eo._core.set_step(0)  # forked ranks go on counting where this process is, and dropout's masks depend on it
    x, y = rows(50)
    model = net(seed=group.rank, batch_norm=True)
    virtual = VirtualShards(model, group, shards)
    optimizer = eo.Adam(model.parameters(), lr=0.01)
    losses = [0.0] * shards

    def forward_backward(shard):
        mine = shard_indices(50, shard, shards, drop_last=False)
        loss = nn.mse_loss(model(x[mine]), y[mine])
        losses[shard] = loss.item()
        (loss * (len(mine) / 50)).backward()

    for _ in range(4):
        optimizer.zero_grad()
        virtual.run(forward_backward)
        optimizer.step()
    return digest(model), virtual.share(losses), int(model[1].num_batches_tracked), list(virtual.own_shards)


def test_virtual_shards_have_the_same_bits_on_any_number_of_ranks():
    runs = [
        spawn(train_with_shards, ranks, args=(5,), start_method=method, threads=threads)
        for ranks, method, threads in [(1, "fork", 1), (1, "fork", 2), (2, "fork", 0), (3, "thread", 0), (4, "spawn", 1)]
    ]
    everyone = [rank for run in runs for rank in run]
    assert len({digest for digest, _, _, _ in everyone}) == 1
    assert all(losses == everyone[0][1] and count == 4 for _, losses, count, _ in everyone)
    assert [own for _, _, _, own in runs[2]] == [[0, 1, 2], [3, 4]]


def test_an_error_in_a_shard_comes_out():
    def worker(group):
        def forward_backward(shard):
            raise ValueError(f"shard {shard}")

        VirtualShards(net(), group, 4).run(forward_backward)

    with pytest.raises(DistributedError, match="rank 0: ValueError: shard 0|rank 1: ValueError: shard 2"):
        spawn(worker, 2)


def masks_of(group):
    """A rank's dropout in a loop of its own: two steps of two micro-batches."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 1, seed=0))
    parallel, optimizer = DataParallel(model, group), eo.SGD(model.parameters(), lr=0.1)
    masks = []
    for _ in range(2):
        optimizer.zero_grad()
        for part in eo.micro_batches(np.ones((2, 64), np.float32), np.ones((2, 1), np.float32), 2):
            masks.append(model[0](part.features).numpy().tobytes())
            with parallel.no_sync() if len(masks) % 2 else contextlib.nullcontext():
                (nn.mse_loss(parallel(part.features), part.targets) * part.weight).backward()
        optimizer.step()
    return masks


@pytest.mark.parametrize("method", ["fork", "spawn", "thread"])
def test_ranks_drop_units_of_their_own(method):
    ranks = spawn(masks_of, 3, start_method=method)
    assert len({mask for masks in ranks for mask in masks}) == 12


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_the_group_is_refused_to_a_shard(method):
    def worker(group):
        virtual = VirtualShards(net(), group, 2)
        for call in (group.barrier, group.close, lambda: virtual.run(print), lambda: group.all_reduce_async(np.ones(2))):
            with pytest.raises(DistributedError, match="while VirtualShards.run uses it"):
                virtual.run(lambda shard: call())
        return True

    assert all(spawn(worker, 1, start_method=method, timeout=5))


def test_a_gradient_that_is_assigned_is_averaged_with_what_follows():
    def worker(group):
        model = net()
        parallel = DataParallel(model, group)
        first, second = [p for p in model.parameters() if p.ndim == 2][:2]
        first.grad = np.full(first.shape, 4.0 * group.rank, np.float32)
        other = np.full(second.shape, 1.0, np.float32)
        second.grad = other
        (parallel(np.zeros((1, 8), np.float32)) * 0).sum().backward()
        return first.grad.min(), first.grad.max(), second.grad.min()

    assert spawn(worker, 2) == [(2.0, 2.0, 1.0)] * 2

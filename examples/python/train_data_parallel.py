# Trains a network on handwritten digits on two processes, each with half of every batch, and once more on one. Prints:
#
#     epoch 1  loss 1.5163
#     epoch 3  loss 0.3240
#     epoch 6  loss 0.1470
#     both ranks have the same weights: yes
#     held-out rows right: 97.22 % with two processes, 97.22 % with one
#
# Gradients are averaged while backward runs. The last batch of an epoch has 29 rows: each rank counts by its own.

import hashlib

import numpy as np

import everyo as eo
from everyo import nn
from everyo.distributed import DataParallel, init_process_group, shard_indices, spawn


def train(group) -> tuple[str, float]:
    """A rank's whole life: every rank draws the same batches and takes its block of each."""
    x, y = eo.datasets.load_handwritten_digits()  # [1797, 64], [1797]
    x_train, x_test, y_train, y_test = eo.train_test_split(x, y, test_size=360 / len(x), seed=0)
    loader = eo.DataLoader(eo.ArrayDataset(x_train, y_train), batch_size=32, shuffle=True, seed=0)
    model = nn.Sequential(nn.Linear(64, 128, seed=0), nn.ReLU(), nn.Linear(128, 10, seed=1))
    parallel = DataParallel(model, group)  # rank 0's weights, on all ranks
    optimizer = eo.Adam(model.parameters(), lr=2e-3)
    for epoch in range(1, 7):
        total = np.zeros(1)
        for features, labels in loader:
            own = shard_indices(len(labels), group.rank, group.world_size, drop_last=False)
            optimizer.zero_grad()
            loss = nn.cross_entropy(model(features[own]), labels[own])
            parallel.set_weight(len(own))
            loss.backward()
            optimizer.step()
            total += loss.item() * len(own)
        group.all_reduce(total)
        if group.rank == 0 and group.world_size > 1 and epoch in (1, 3, 6):
            print(f"epoch {epoch}  loss {total[0] / len(y_train):.4f}", flush=True)
    weights = b"".join(np.asarray(p.numpy()).tobytes() for p in model.parameters())
    with eo.no_grad():
        right = np.mean(model(x_test).numpy().argmax(axis=1) == y_test)
    return hashlib.sha256(weights).hexdigest(), 100 * float(right)


def main() -> None:
    two = spawn(train, 2)
    one = train(init_process_group())  # a group of one, unless 'everyo launch' started this program
    print("both ranks have the same weights:", "yes" if two[0] == two[1] else "no")
    print(f"held-out rows right: {two[0][1]:.2f} % with two processes, {one[1]:.2f} % with one")


if __name__ == "__main__":
    main()

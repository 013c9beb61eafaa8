"""Time of a training step of mlp-small written in Python, one call per op: 64-32-10, ReLU, batch 32, SGD.

python_step.py [everyo | torch]: one line with the library, the loss after 20 steps (2.7512606 from any library; a time
without it means nothing) and the best microseconds a step.
"""

import sys
import time

import numpy as np

ROUNDS, STEPS = 9, 1000


def numbers():
    """Weights and a batch: those of the other workloads of this name."""
    weights = {}
    for i, (name, shape) in enumerate([("w0", (64, 32)), ("b0", (32,)), ("w1", (32, 10)), ("b1", (10,))]):
        limit = np.sqrt(6 / shape[0])
        draw = np.random.default_rng(1000 + i).uniform(-limit, limit, shape)
        weights[name] = (draw if len(shape) == 2 else np.zeros(shape)).astype(np.float32)
    rng = np.random.default_rng(7)
    return weights, rng.standard_normal((32, 64)).astype(np.float32), rng.integers(0, 10, 32)


def everyo_step():
    import everyo as eo

    weights, features, labels = numbers()
    w = {name: eo.Tensor(values, requires_grad=True) for name, values in weights.items()}
    x, y = eo.Tensor(features), eo.Tensor(labels, dtype="int64")
    optimizer = eo.SGD(list(w.values()), lr=0.01)

    def step():
        hidden = eo.relu(x @ w["w0"] + w["b0"])
        loss = eo.nn.cross_entropy(hidden @ w["w1"] + w["b1"], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def torch_step():
    import torch

    torch.set_num_threads(1)
    weights, features, labels = numbers()
    w = {name: torch.from_numpy(values).requires_grad_() for name, values in weights.items()}
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    optimizer = torch.optim.SGD(w.values(), lr=0.01)

    def step():
        hidden = torch.relu(x @ w["w0"] + w["b0"])
        loss = torch.nn.functional.cross_entropy(hidden @ w["w1"] + w["b1"], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else "everyo"
    step = {"everyo": everyo_step, "torch": torch_step}[library]()
    for _ in range(20):
        loss = step()
    best = np.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        best = min(best, (time.perf_counter() - start) / STEPS)
    print(f"{library}: loss {loss.item():.7f}, {best * 1e6:.2f} us a step")


if __name__ == "__main__":
    main()

"""Writes tests/oracle/steps_*.safetensors: losses and gradients of five training steps by PyTorch in float64, for
tests/oracle/training_steps_test.cpp.

    pip install torch==2.13.0 numpy safetensors; python3 tests/oracle/make_training_steps.py tests/oracle

Weights are default_rng(1000 + k).uniform(-a, a), a = sqrt(6 / fan_in), of the net's parameter k; biases 0, norm weights
1; images default_rng(7).standard_normal, then labels integers(0, 10); all rounded to float32 first. Layouts are
everyo's: images NHWC, Conv2D (kh, kw, in, out), Linear (in, out). Of each gradient the file holds, a row a step: at most
`sampled` elements at equal distances, its norm, and the sum of element i times cos(i), which no element is left out of.
"""
import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import save
from torch import nn

steps, sampled = 5, 128


class Flatten(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def digits():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
                         nn.ReLU(), Flatten(), nn.Linear(256, 10))


def cifar():
    layers = []
    for k, (inputs, outputs) in enumerate([(3, 32), (32, 64), (64, 128)]):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if k else []
    return nn.Sequential(*layers, Flatten(), nn.Linear(128 * 64, 10))


def batch_norm():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), Flatten(), nn.Linear(16, 12),
                         nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))


# name: (net, images, learning rate of SGD)
nets = {"cnn-digits": (digits, (64, 8, 8, 1), 0.01), "cnn-cifar": (cifar, (64, 32, 32, 3), 1e-4),
        "batch-norm": (batch_norm, (7, 9, 9, 3), 0.01)}


def to_everyo(a):
    """A weight or gradient in everyo's layout: (out, in) -> (in, out), (out, in, kh, kw) -> (kh, kw, in, out)."""
    return a.transpose(2, 3, 1, 0) if a.ndim == 4 else a.T if a.ndim == 2 else a


def from_everyo(a):
    return a.transpose(3, 2, 0, 1) if a.ndim == 4 else a.T if a.ndim == 2 else a


def run(name):
    make, shape, lr = nets[name]
    net = make().double()
    for k, p in enumerate(net.parameters()):
        if p.ndim > 1:
            mine = to_everyo(np.empty(p.shape)).shape
            bound = np.sqrt(6.0 / np.prod(mine[:-1]))
            value = np.random.default_rng(1000 + k).uniform(-bound, bound, mine).astype(np.float32)
            p.data = torch.from_numpy(from_everyo(value).astype(np.float64))
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.zeros_(m.bias)
    rng = np.random.default_rng(7)
    x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32).astype(np.float64)).permute(0, 3, 1, 2)
    y = torch.from_numpy(rng.integers(0, 10, shape[0]))
    optimizer = torch.optim.SGD(net.parameters(), lr)
    losses, rows = [], {n: [] for n, _ in net.named_parameters()}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        losses.append(loss.item())
        for n, p in net.named_parameters():
            rows[n].append(to_everyo(p.grad.numpy()).reshape(-1).copy())
        optimizer.step()
    out = {"loss": np.array(losses)}
    for n, gradients in rows.items():
        g = np.stack(gradients)
        out[f"{n}.sample"] = np.ascontiguousarray(g[:, ::-(-g.shape[1] // sampled)]).astype(np.float32)
        out[f"{n}.norm"] = np.linalg.norm(g, axis=1)
        out[f"{n}.wave"] = g @ np.cos(np.arange(g.shape[1]))
    for n, b in net.named_buffers():
        if "running" in n:
            out[n] = b.numpy()
    net.eval()
    with torch.no_grad():
        out["eval"] = net(x).numpy()
    return save(out)


folder = pathlib.Path(sys.argv[1])
for name in nets:
    (folder / f"steps_{name}.safetensors").write_bytes(run(name))

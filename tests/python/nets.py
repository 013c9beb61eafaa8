"""Modules that several tests use."""

import numpy as np

import everyo as eo
from everyo import nn


class Block(nn.Module):
    def __init__(self, width, seed=0):
        super().__init__()
        self.linear = nn.Linear(width, width, seed=seed)
        self.scale = nn.Parameter(np.ones(width, np.float32))
        self.register_buffer("count", np.zeros((), np.int64))

    def forward(self, x):
        return eo.relu(self.linear(x)) * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4, seed=1)
        self.offset = nn.Parameter(np.zeros(4, np.float32))
        self.blocks = [Block(4, seed=2), Block(4, seed=3)]
        self.size = 4

    def forward(self, x):
        x = self.stem(x) + self.offset
        for block in self.blocks:
            x = block(x)
        return x


NET_PARAMETERS = [
    "offset",
    "stem.weight",
    "stem.bias",
    "blocks.0.scale",
    "blocks.0.linear.weight",
    "blocks.0.linear.bias",
    "blocks.1.scale",
    "blocks.1.linear.weight",
    "blocks.1.linear.bias",
]

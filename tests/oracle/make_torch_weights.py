"""Writes tests/python/torch_model.safetensors with PyTorch and the format's own library, for tests/python/test_weights.py.

    pip install torch safetensors; python3 tests/oracle/make_torch_weights.py tests/python

The file holds the state dict of a small network, and beside it "input" [2, 8, 8, 3], "features" and "output", as the trained
network in evaluation mode gives them.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

torch.manual_seed(0)
features = nn.Sequential(
    nn.Conv2d(3, 4, (3, 2), padding=(1, 0)),
    nn.BatchNorm2d(4),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(4, 5, 1, bias=False),
)
head = nn.Sequential(nn.Flatten(), nn.Linear(60, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3))
optimizer = torch.optim.SGD([*features.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(head(features(torch.randn(16, 3, 8, 8))), torch.randint(3, (16,))).backward()
    optimizer.step()
features.eval(), head.eval()
x = torch.randn(2, 3, 8, 8)
with torch.no_grad():
    found = features(x)
    state = {f"features.{name}": value for name, value in features.state_dict().items()}
    state |= {f"head.{name}": value for name, value in head.state_dict().items()}
    channels_last = lambda images: images.permute(0, 2, 3, 1).contiguous()
    examples = {"input": channels_last(x), "features": channels_last(found), "output": head(found)}
save_file({**state, **examples}, pathlib.Path(sys.argv[1]) / "torch_model.safetensors")

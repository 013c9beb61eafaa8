"""Modules: layers, containers, losses, and where their first values come from."""

from everyo.nn import initialization
from everyo.nn.activations import GELU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Tanh
from everyo.nn.container import Sequential
from everyo.nn.images import AdaptiveAvgPool2D, AvgPool2D, Conv2D, GlobalAvgPool2D, MaxPool2D
from everyo.nn.layers import Dropout, Flatten, Linear, Unflatten
from everyo.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Loss,
    MAELoss,
    MSELoss,
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    mae_loss,
    mse_loss,
)
from everyo.nn.module import MODULE_REGISTRY, LoadReport, Module, get_module_class, register_module
from everyo.nn.normalization import BatchNorm1D, BatchNorm2D, GroupNorm, LayerNorm
from everyo.nn.parameter import Parameter
from everyo.nn.weights import load_arrays, load_torch_weights, save_arrays

__all__ = [
    "AdaptiveAvgPool2D",
    "AvgPool2D",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1D",
    "BatchNorm2D",
    "Conv2D",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "GELU",
    "GlobalAvgPool2D",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "LoadReport",
    "LogSoftmax",
    "Loss",
    "MAELoss",
    "MODULE_REGISTRY",
    "MSELoss",
    "MaxPool2D",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "Unflatten",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "get_module_class",
    "initialization",
    "load_arrays",
    "load_torch_weights",
    "mae_loss",
    "mse_loss",
    "register_module",
    "save_arrays",
]

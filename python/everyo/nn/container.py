"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everyo.nn.activations import GELU, ReLU, Sigmoid, SiLU, Tanh
from everyo.nn.images import Conv2D
from everyo.nn.layers import Linear
from everyo.nn.module import Module, get_module_class, register_module
from everyo.nn.normalization import BatchNorm1D, BatchNorm2D, GroupNorm, LayerNorm

_ACTIVATIONS: dict[type[Module], str] = {ReLU: "relu", Sigmoid: "sigmoid", Tanh: "tanh", GELU: "gelu", SiLU: "silu"}
_FUSED = (Linear, Conv2D, BatchNorm1D, BatchNorm2D, LayerNorm, GroupNorm)  # they take an activation, to the same bits


@register_module
class Sequential(Module):
    """Modules one after the other, named "0", "1", ...; `layers` is the list of them.

    A Linear, a Conv2D or a norm runs as one op with the activation right behind it, to the same bits.
    Raises TypeError "Module instances".
    """

    layers: list[Module]

    def __init__(self, *layers: Module) -> None:
        super().__init__()
        self.__dict__["layers"] = []
        for layer in layers:
            self.append(layer)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "layers":
            raise AttributeError("[Sequential] layers cannot be replaced; change the list itself, or append()")
        super().__setattr__(name, value)

    def append(self, layer: Module) -> Sequential:
        """Adds a module at the end; returns self."""
        if not isinstance(layer, Module):
            raise TypeError(f"[Sequential] {type(layer).__name__} was given; it takes Module instances")
        if not any(layer is other for other in self.layers):
            layer.__dict__["_name"] = str(len(self.layers))
        self.layers.append(layer)
        return self

    def _children(self) -> Iterator[tuple[str, Module]]:
        yield from ((str(i), layer) for i, layer in enumerate(self.layers))
        yield from super()._children()

    def forward(self, x: Any) -> Any:
        layers = self.layers
        i, count = 0, len(layers)
        while i < count:
            layer = layers[i]
            i += 1
            if type(layer) in _FUSED and i < count and "forward" not in layer.__dict__:
                activation = _ACTIVATIONS.get(type(layers[i]))
                if activation is not None and "forward" not in layers[i].__dict__:
                    x = layer(x, activation)
                    i += 1
                    continue
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    def __getitem__(self, index: int) -> Module:
        return self.layers[index]

    def get_config(self) -> dict[str, Any]:
        return {"layers": [{"class_name": type(layer).__name__, "config": layer.get_config()} for layer in self.layers]}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Sequential:
        return cls(*(get_module_class(layer["class_name"]).from_config(layer["config"]) for layer in config["layers"]))

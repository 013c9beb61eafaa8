"""Weights of models in files, and those that PyTorch trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOSerializationError, Tensor
from everyo.nn.images import Conv2D
from everyo.nn.layers import Linear
from everyo.nn.module import LoadReport, Module

Array = npt.NDArray[Any]
Path = str | PathLike[str]
NameMap = Mapping[str, str] | Callable[[str], str]


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file by name; bfloat16 becomes float32. Raises FileNotFoundError, EveryOSerializationError."""
    tensors, _ = _core.load_safetensors(path)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes arrays or tensors, such as a state_dict(), as a safetensors file, which is replaced at once."""
    _core.save_safetensors(path, dict(arrays))


def _torch_name(name: str, name_map: NameMap | None) -> str:
    """Where the map sends a name: by itself, or by the longest of its parents that the map holds."""
    if name_map is None:
        return name
    if not isinstance(name_map, Mapping):
        return name_map(name)
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        parent = ".".join(parts[:count])
        if parent in name_map:
            return ".".join([part for part in (name_map[parent], *parts[count:]) if part])
    return name


def _torch_array(value: Any) -> Array:
    """A value of a state dict: also a PyTorch parameter, and bfloat16, which NumPy has not and which becomes float32."""
    if hasattr(value, "detach"):
        value = value.detach()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = _core.from_dlpack(value.cpu())
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _in_our_layout(module: Module, name: str, value: Array, image: tuple[int, int, int] | None) -> Array:
    if name != "weight":
        return value
    if isinstance(module, Conv2D) and value.ndim == 4:
        return value.transpose(2, 3, 1, 0)  # (O, I, KH, KW) -> (KH, KW, I, O)
    if isinstance(module, Linear) and value.ndim == 2:
        value = value.T  # (out, in) -> (in, out)
        if image is None:
            return value
        channels, height, width = image
        if value.shape[0] != channels * height * width:
            raise EveryOSerializationError(
                f"[load_torch_weights] an image {image} does not flatten to {value.shape[0]} features"
            )
        rows = value.reshape(channels, height, width, -1)
        return rows.transpose(1, 2, 0, 3).reshape(value.shape)
    return value


def load_torch_weights(
    model: Module,
    source: Path | Mapping[str, Any],
    name_map: NameMap | None = None,
    *,
    flattened: Mapping[str, tuple[int, int, int]] | None = None,
    strict: bool = True,
) -> LoadReport:
    """Loads what PyTorch calls a state dict: a safetensors file, or a mapping of names to arrays.

    `name_map` leads from this model's names to PyTorch's, of values ("stem.weight") or of modules ("stem"), or is a
    function that does; other names are the same. A Linear's weight (out, in) is transposed, a kernel (O, I, KH, KW) becomes
    (KH, KW, I, O). PyTorch flattens an image channels first: `flattened` gives (channels, height, width) for each Linear
    that stands behind such a Flatten, and its rows are put in our order. Raises EveryOSerializationError as
    load_state_dict does, with PyTorch's names.
    """
    if not isinstance(model, Module):
        raise TypeError(f"[load_torch_weights] model is a {type(model).__name__}; it must be a Module")
    given: Mapping[str, Any] = source if isinstance(source, Mapping) else load_arrays(source)
    images = dict(flattened or {})
    modules = dict(model.named_modules())
    for path in images:
        if not isinstance(modules.get(path), Linear):
            raise EveryOSerializationError(
                f"[load_torch_weights] flattened names {path!r}, which is no Linear of the model"
            )
    state: dict[str, Array] = {}
    missing: list[str] = []
    used: set[str] = set()
    for name in model.state_dict():
        path, _, own_name = name.rpartition(".")
        torch_name = _torch_name(name, name_map)
        if torch_name not in given:
            missing.append(torch_name)
            continue
        used.add(torch_name)
        value = given[torch_name]
        state[name] = _in_our_layout(modules[path], own_name, _torch_array(value), images.get(path))
    unexpected = [name for name in given if name not in used]
    if strict and (missing or unexpected):
        faults = [
            f"{what}: {', '.join(map(repr, names))}"
            for what, names in (("Missing keys", missing), ("Unexpected keys", unexpected))
            if names
        ]
        raise EveryOSerializationError(f"[load_torch_weights] {'; '.join(faults)}; strict=False passes over them")
    model.load_state_dict(state, strict=False)
    return LoadReport(missing, unexpected)

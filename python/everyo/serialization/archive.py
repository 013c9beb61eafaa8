"""Models in `.evo` archives: architecture and values in one file, a ZIP of manifest.json and parameters.npz."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from everyo import _core
from everyo._core import EveryOError, EveryOSerializationError
from everyo.nn.module import Module, get_module_class


def _as_json(what: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise EveryOSerializationError(f"[save] {what} is not JSON-serialisable: {error}") from error


def save(
    model: Module, path: str | PathLike[str], *, metadata: Mapping[str, Any] | None = None, overwrite: bool = True
) -> Path:
    """Writes a module's class, config and state_dict() as an archive, which is replaced at once; returns its path.

    load() makes the module again if its class is registered. Raises EveryOSerializationError for what is no "everyo Module", a
    path that "already exists" unless `overwrite`, and metadata or a config that is not "JSON-serialisable".
    """
    if not isinstance(model, Module):
        raise EveryOSerializationError(
            f"[save] a {type(model).__name__} is no everyo Module; load_arrays and save_arrays keep plain arrays"
        )
    if metadata is not None and not isinstance(metadata, Mapping):
        raise EveryOSerializationError(
            f"[save] metadata is not JSON-serialisable as an object: it is a {type(metadata).__name__}; give a dict"
        )
    target = Path(fspath(path))
    described = _as_json("metadata", dict(metadata or {}))
    config = _as_json(f"the config of {type(model).__name__}", model.get_config())
    _core.save_archive(target, type(model).__name__, config, model.state_dict(), described, overwrite)
    return target


def load(path: str | PathLike[str]) -> Module:
    """The module in an archive, made by its registered class's from_config, whose dtypes it has: values of a float16 or
    bfloat16 parameter are kept, in the float32 one that a class of the library makes.

    Runs no code of the file. Raises EveryOSerializationError for a file that is "not found" or "not a valid" archive, has a newer
    "format version", or names an "Unknown module type".
    """
    class_name, config, parameters, _ = _core.load_archive(fspath(path))
    module_class = get_module_class(class_name)
    try:
        model = module_class.from_config(json.loads(config))
    except EveryOSerializationError:
        raise
    except (EveryOError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError) as error:
        raise EveryOSerializationError(
            f"[load] '{fspath(path)}' is not a valid everyo archive: its config makes no {class_name}: {error}"
        ) from error
    model.load_state_dict(parameters)
    return model


def load_metadata(path: str | PathLike[str]) -> dict[str, Any]:
    """The metadata that save() put into an archive. Raises as load() does for the file."""
    _, _, _, metadata = _core.load_archive(fspath(path))
    described: dict[str, Any] = json.loads(metadata)
    return described

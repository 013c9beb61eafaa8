"""Models as ONNX files: written by tracing the ops of a run, and run in ONNX Runtime."""

from __future__ import annotations

import glob
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from everyo import _core
from everyo._core import EveryOSerializationError, EveryOShapeError, Tensor
from everyo.core.checks import real, whole
from everyo.core.dtype import dtype_name, is_floating
from everyo.nn.module import Module

_PathLike = str | os.PathLike[str]


def _library() -> str:
    """ONNX Runtime's library in its package, if that is installed, unless the environment names another."""
    if os.environ.get("EVERYO_ONNXRUNTIME"):
        return ""
    try:
        package = importlib.util.find_spec("onnxruntime")
    except (ImportError, ValueError):
        return ""
    for folder in (package.submodule_search_locations or []) if package else []:
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "capi", "libonnxruntime.so.*"))):
            return path
    return ""


def _state_of(model: Module) -> dict[str, Any]:
    """The values of a module, not copies, by the names that state_dict() gives them."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _require_eval(model: Module) -> None:
    for name, module in model.named_modules():
        if module.training:
            what = f"module {name!r}" if name else "the model"
            raise EveryOSerializationError(
                f"[export_onnx] {what} ({type(module).__name__}) is in training mode, and a file holds what a model computes in "
                "use; call eval() on the model before the export, train() after it"
            )


def _mapping(what: str, value: Any) -> dict[Any, Any]:
    """A mapping, or None for an empty one. Raises TypeError that names `what`."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{what} is a {type(value).__name__}; give a mapping")
    return dict(value or {})


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r:.60}, of type {type(value).__name__}; it must be text")
    return value


def _callable(what: str, value: Any) -> Any:
    if not callable(value):
        raise TypeError(f"{what} is a {type(value).__name__}; it must be callable")
    return value


def _count(what: str, value: Any) -> int:
    return min(max(whole(what, value), -1), 2**62)


def _axes(dynamic_axes: Mapping[str, Mapping[int, str]] | None) -> list[tuple[str, int, str]]:
    axes: list[tuple[str, int, str]] = []
    for name, sizes in _mapping("[export_onnx] dynamic_axes", dynamic_axes).items():
        if not isinstance(sizes, Mapping):
            raise TypeError(f"[export_onnx] dynamic_axes[{name!r}] is a {type(sizes).__name__}; give {{axis: name}}, as {{1: 'time'}}")
        axes += [(_text("[export_onnx] an input of dynamic_axes", name), axis, size) for axis, size in sizes.items()]
    return axes


def export_onnx_traced(
    function: Callable[..., Any],
    path: _PathLike,
    *,
    input_shape: Sequence[int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    input_name: str = "input",
    output_name: str = "output",
    opset: int = 17,
    model_name: str = "everyo_model",
    input_dtype: Any = "float32",
    batch_name: str = "batch",
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    autocast: str | None = None,
    metadata: Mapping[str, str] | None = None,
    external_data_above: int = 1_900_000_000,
    check: bool = False,
    tolerance: float = 0.0,
) -> Path:
    """Writes what `function` computes as an ONNX file, by running it; returns the path.

    A function of one tensor needs `input_shape`, that of a batch; one of several `inputs`, examples by name in the order of its
    arguments. It returns a tensor or a tuple of them. Axis 0 of every input stays open, under `batch_name` ("" fixes it), and
    so do `dynamic_axes`, {input: {axis: name}}. When it is a Module, initializers have the names of its state_dict(). `autocast`
    exports the casts of a run in "float16" or "bfloat16". `check` runs the file in ONNX Runtime on batches of 1, 2, 3 and 7.
    Nothing is written unless all went well. Raises EveryOSerializationError naming module and op: "training mode",
    "track_running_stats", "recorded no operations", "opset 13 or newer".
    """
    given: list[tuple[str, str, tuple[int, ...], int]] = []
    if (inputs is None) == (input_shape is None):
        raise TypeError("[export_onnx] give input_shape for one input, or inputs by name")
    if input_shape is not None:
        if not isinstance(input_shape, Sequence):
            raise TypeError(f"[export_onnx] input_shape is {input_shape!r}; give all sizes of a batch, as (1, 64)")
        given.append((_text("[export_onnx] input_name", input_name), dtype_name(input_dtype), tuple(input_shape), 2))
    for name, example in _mapping("[export_onnx] inputs", inputs).items():
        _text("[export_onnx] a name of inputs", name)
        value = example if isinstance(example, Tensor) else np.asarray(example)
        integers = not is_floating(value.dtype) and value.size > 0
        below = int(np.max(value.numpy() if isinstance(value, Tensor) else value)) + 1 if integers else 2
        given.append((name, dtype_name(value.dtype), tuple(value.shape), below))
    state: dict[str, Any] = {}
    if isinstance(function, Module):
        _require_eval(function)
        state = _state_of(function)
    options = {
        "opset": _count("[export_onnx] opset", opset),
        "output_name": output_name,
        "model_name": model_name,
        "batch_name": batch_name,
        "symbolic": _axes(dynamic_axes),
        "autocast": autocast,
        "metadata": _mapping("[export_onnx] metadata", metadata),
        "external_data_above": _count("[export_onnx] external_data_above", external_data_above),
        "check": bool(check),
        "tolerance": real("[export_onnx] tolerance", tolerance),
        "library": _library(),
    }
    target = Path(os.fspath(path))
    _core.export_onnx(_callable("[export_onnx] function", function), target, given, state, options)
    return target


def export_onnx(
    model: Module,
    path: _PathLike,
    *,
    input_shape: Sequence[int],
    input_name: str = "input",
    output_name: str = "output",
    opset: int = 17,
    model_name: str = "everyo_model",
    **options: Any,
) -> Path:
    """Writes a model as an ONNX file; returns the path. `input_shape` is that of a batch, (N, ...); any N will do.

    Further options as for export_onnx_traced. Raises EveryOSerializationError as that does.
    """
    if not isinstance(model, Module):
        raise EveryOSerializationError(
            f"[export_onnx] a {type(model).__name__} is no everyo Module; export_onnx_traced takes any function"
        )
    if isinstance(input_shape, Sequence) and not input_shape:
        raise EveryOShapeError("[export_onnx] input_shape is (); it needs the batch's axis, as (N, ...)")
    return export_onnx_traced(
        model,
        path,
        input_shape=input_shape,
        input_name=input_name,
        output_name=output_name,
        opset=opset,
        model_name=model_name,
        **options,
    )


class OnnxModel:
    """An ONNX file, loaded in ONNX Runtime to be run many times."""

    def __init__(self, path: _PathLike, *, threads: int = 0) -> None:
        self._model = _core.OnnxModel(os.fspath(path), _library(), min(_count("[OnnxModel] threads", threads), 2**31))

    @property
    def inputs(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """Name, dtype and shape of each; an open size is its name, or None."""
        return self._model.inputs

    @property
    def outputs(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """As inputs."""
        return self._model.outputs

    @property
    def metadata(self) -> dict[str, str]:
        """Texts that the file keeps."""
        return self._model.metadata

    def run(self, inputs: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """All outputs by name. Numbers are converted within their kind to the dtype that the file asks for."""
        dtypes = {name: dtype for name, dtype, _ in self._model.inputs}
        outputs = self._model.run({name: _converted(value, dtypes.get(name)) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}


def _converted(value: Any, dtype: str | None) -> Any:
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if dtype in (None, "bfloat16"):
        return array
    wanted = np.dtype(dtype)
    floats = array.dtype.kind == "f" and wanted.kind == "f"
    return array.astype(wanted, copy=False) if floats or (array.dtype.kind in "iu" and wanted.kind in "iuf") else array


def run_onnx(path: _PathLike, inputs: Any, *, input_name: str = "input") -> npt.NDArray[Any]:
    """The first output of an ONNX file, run once in ONNX Runtime on one array, or on a mapping of arrays by name.

    Raises EveryOSerializationError for a damaged file, and EveryOBackendError with a hint when ONNX Runtime is missing.
    """
    model = OnnxModel(path)
    outputs = model.run(inputs if isinstance(inputs, Mapping) else {_text("[run_onnx] input_name", input_name): inputs})
    return next(iter(outputs.values()))


def onnx_available() -> bool:
    """Whether ONNX Runtime can be loaded."""
    return _core.onnx_available(_library())


class OnnxAgreement(NamedTuple):
    """Largest difference between a file's output and the model's, and the same over the larger of 1 and |the model's value|."""

    absolute: float
    relative: float


def compare_onnx(
    model: Callable[..., Any], path: _PathLike, batches: Iterable[Mapping[str, Any] | Any], *, input_name: str = "input"
) -> dict[str, OnnxAgreement]:
    """How far a file's outputs in ONNX Runtime are from the model's, over `batches`: arrays, or mappings in the order of arguments.

    A NaN or an infinity that only one of them has differs by infinity. Raises EveryOShapeError when they differ in number or shape.
    """
    named = [dict(batch) if isinstance(batch, Mapping) else {_text("[compare_onnx] input_name", input_name): batch} for batch in batches]
    found = _core.compare_onnx(_callable("[compare_onnx] model", model), _core.OnnxModel(os.fspath(path), _library()), named)
    return {name: OnnxAgreement(*differences) for name, differences in found.items()}

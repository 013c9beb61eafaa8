"""Models in files."""

from everyo.serialization.archive import load, load_metadata, save
from everyo.serialization.onnx import (
    OnnxAgreement,
    OnnxModel,
    compare_onnx,
    export_onnx,
    export_onnx_traced,
    onnx_available,
    run_onnx,
)

__all__ = [
    "OnnxAgreement",
    "OnnxModel",
    "compare_onnx",
    "export_onnx",
    "export_onnx_traced",
    "load",
    "load_metadata",
    "onnx_available",
    "run_onnx",
    "save",
]

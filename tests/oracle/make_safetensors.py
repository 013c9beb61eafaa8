"""Writes tests/io/*.safetensors with the format's own library, for safetensors_test.cpp and model_file_test.cpp there.

    pip install safetensors ml_dtypes torch; python3 tests/oracle/make_safetensors.py tests/io
"""
import pathlib
import sys

import ml_dtypes
import numpy as np
import torch
from safetensors.numpy import save
from safetensors.torch import save_model

folder = pathlib.Path(sys.argv[1])
all_dtypes = {
    "i64": np.array([-(2**63), 2**63 - 1], np.int64),
    "f64": np.array([[0.1, -np.inf]], np.float64),
    "f32": np.array([[1.5, -2.0, 3.25], [0.0, -0.0, np.inf]], np.float32),
    "i32": np.array([[-1], [2]], np.int32),
    "bf16": np.array([1.0, -3.0, 0.5], ml_dtypes.bfloat16),
    "f16": np.array([65504.0, 6e-8], np.float16),
    "u8": np.array([0, 255, 7], np.uint8),
    "bool": np.array([True, False, True], np.bool_),
    "scalar": np.array(3.0, np.float32),
    "empty": np.zeros((2, 0, 3), np.float32),
    'ünï "q"\n\x01/': np.array([9], np.uint8),
}
(folder / "all_dtypes.safetensors").write_bytes(save(all_dtypes, {"format": "np"}))
(folder / "nothing.safetensors").write_bytes(save({}))

# A weight that two layers share: the package writes it once and notes the other name.
ends = torch.nn.ModuleDict({"in": torch.nn.Linear(2, 2, bias=False), "out": torch.nn.Linear(2, 2, bias=False)})
ends["out"].weight = ends["in"].weight
with torch.no_grad():
    ends["in"].weight.copy_(torch.arange(4.0).reshape(2, 2))
save_model(ends, str(folder / "tied.safetensors"))

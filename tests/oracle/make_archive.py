"""Writes tests/io/model.evo, an archive as the earlier library made them, for tests/io/archive_test.cpp. Needs NumPy only.

    python3 tests/oracle/make_archive.py tests/io
"""

import io
import json
import pathlib
import sys
import zipfile

import numpy as np

arrays = {
    "0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "0.bias": np.zeros(3, np.float16),
    "1.running_mean": np.full(1, 0.5),
    "1.num_batches_tracked": np.int64(7),
}
layers = [
    {"class_name": "Linear", "config": {"in_features": 2, "out_features": 3, "bias": True, "initializer": "he_uniform"}},
    {"class_name": "ReLU", "config": {}},
]
manifest = {
    "format_version": 1,
    "everyo_version": "0.2.0",
    "created_at": "2025-03-01T12:00:00+00:00",
    "architecture": {"class_name": "Sequential", "config": {"layers": layers}},
    "parameters": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
    "num_parameters": 9,
    "metadata": {"note": "für alle"},
}
npz = io.BytesIO()
np.savez(npz, **arrays)
path = pathlib.Path(sys.argv[1]) / "model.evo"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, content in (("manifest.json", json.dumps(manifest, indent=2)), ("parameters.npz", npz.getvalue())):
        archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)

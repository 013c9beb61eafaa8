"""save and load: `.evo` archives, those of the earlier library among them."""

import io
import json
import zipfile

import numpy as np
import pytest

import everyo as eo

LINEAR = {"class_name": "Linear", "config": {"in_features": 2, "out_features": 3}}
WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def earlier_archive(path, arrays, **changes):
    """An archive as the earlier library wrote it: NumPy and zipfile, nothing of this library."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    described = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
    manifest = {
        "format_version": 1,
        "everyo_version": "0.2.0",
        "created_at": "2025-03-01T12:00:00+00:00",
        "architecture": LINEAR,
        "parameters": described,
        "num_parameters": sum(array.size for array in arrays.values()),
        "metadata": {"note": 1},
    } | changes
    npz = io.BytesIO()
    np.savez(npz, **arrays)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest, indent=2))
        archive.writestr("parameters.npz", npz.getvalue())
    return path


def net():
    return eo.Sequential(
        eo.Conv2D(1, 2, 3, padding="same", seed=0), eo.BatchNorm2D(2), eo.ReLU(), eo.MaxPool2D(2), eo.Flatten(),
        eo.Linear(8, 3, seed=1), eo.Dropout(0.5), eo.Softmax(),
    )  # fmt: skip


def test_a_model_comes_back_as_it_was_saved(tmp_path):
    model = net()
    x = eo.normal((5, 4, 4, 1), seed=0)
    model(x)  # moves the running moments
    path = eo.save(model, tmp_path / "net.evo", metadata={"accuracy": 0.5, "name": "ü"})
    assert path == tmp_path / "net.evo"
    again = eo.load(str(path))
    assert repr(again) == repr(model) and again.training
    ours, theirs = model.state_dict(), again.state_dict()
    assert list(ours) == list(theirs)
    assert all(ours[name].dtype == theirs[name].dtype and np.array_equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(model.eval()(x).numpy(), again.eval()(x).numpy())
    assert eo.load_metadata(path) == {"accuracy": 0.5, "name": "ü"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_of_halves_come_back_in_the_dtype_of_the_class(tmp_path, dtype):
    layer = eo.Linear(2, 3, seed=0)
    layer.weight = eo.Parameter(layer.weight.detach().astype(dtype))
    assert layer.weight.dtype == dtype
    again = eo.load(eo.save(layer, tmp_path / "half.evo"))
    assert again.weight.dtype == "float32"
    np.testing.assert_array_equal(again.weight.numpy(), layer.weight.astype("float32").numpy())


def test_an_archive_is_what_the_earlier_library_reads(tmp_path):
    path = eo.save(eo.Linear(2, 3, seed=0), tmp_path / "linear.evo", metadata={"a": [1]})
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and archive.namelist() == ["manifest.json", "parameters.npz"]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_DEFLATED}
        manifest = json.loads(archive.read("manifest.json"))
        with np.load(io.BytesIO(archive.read("parameters.npz")), allow_pickle=False) as arrays:
            assert np.array_equal(arrays["weight"], eo.Linear(2, 3, seed=0).weight.numpy())
    assert manifest["format_version"] == 1 and manifest["everyo_version"] == eo.__version__
    assert manifest["architecture"]["class_name"] == "Linear" and manifest["architecture"]["config"]["in_features"] == 2
    assert manifest["parameters"] == {
        "weight": {"shape": [2, 3], "dtype": "float32"},
        "bias": {"shape": [3], "dtype": "float32"},
    }
    assert manifest["num_parameters"] == 9 and manifest["metadata"] == {"a": [1]} and manifest["created_at"].startswith("20")


def test_an_archive_of_the_earlier_library_is_read(tmp_path):
    path = earlier_archive(tmp_path / "old.evo", {"weight": WEIGHT, "bias": np.ones(3, np.float32)})
    model = eo.load(path)
    assert isinstance(model, eo.Linear) and model(eo.ones(1, 2)).numpy().tolist() == [[4, 6, 8]]
    assert eo.load_metadata(path) == {"note": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 99}, "format version 99"),
        ({"architecture": {"class_name": "Gone", "config": {}}}, "Unknown module type"),
        ({"architecture": {"class_name": "Sequential", "config": {"layers": [{"class_name": "os.system", "config": {}}]}}},
         "Unknown module type"),
        ({"architecture": {"class_name": "Sequential", "config": {"layers": 3}}}, "not a valid"),
        ({"architecture": {"class_name": "Sequential", "config": {"layers": [{}]}}}, "not a valid"),
        ({"architecture": {"class_name": "Linear", "config": {"in_features": 2}}}, "not a valid"),
        ({"architecture": {"class_name": "Linear", "config": {"in_features": -2, "out_features": 3}}}, "not a valid"),
        ({"architecture": {"class_name": "Linear", "config": {"in_features": 2**40, "out_features": 2**40}}}, "not a valid"),
        ({"architecture": {"class_name": "Linear", "config": {"in_features": 3, "out_features": 2}}}, "expects shape"),
        ({"architecture": {"class_name": "ReLU", "config": {}}}, "Unexpected keys"),
        ({"architecture": 3}, "not a valid"),
        ({"parameters": {"weight": {"shape": [3, 2], "dtype": "float32"}}}, "not a valid"),
    ],
)  # fmt: skip
def test_Y16_AMistakenArchiveIsRefused(tmp_path, changes, words):
    arrays = {"weight": WEIGHT, "bias": np.ones(3, np.float32)}
    path = earlier_archive(tmp_path / "old.evo", arrays, **changes)
    with pytest.raises(eo.EveryOSerializationError, match=words):
        eo.load(path)


def test_Y16_AFileThatIsNoArchiveIsRefused(tmp_path):
    path = tmp_path / "model.evo"
    with pytest.raises(eo.EveryOSerializationError, match="not found"):
        eo.load(path)
    path.write_text("this is not a zip archive")
    with pytest.raises(eo.EveryOSerializationError, match="not a valid"):
        eo.load(path)
    pickled = io.BytesIO()
    np.savez(pickled, weight=np.array([{}], object))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format_version": 1, "architecture": LINEAR, "parameters": {}}))
        archive.writestr("parameters.npz", pickled.getvalue())
    with pytest.raises(eo.EveryOSerializationError, match="not a valid.*O"):
        eo.load(path)


def test_Y16_AnArchiveCutAnywhereIsRefused(tmp_path):
    whole = tmp_path / "whole.evo"
    eo.save(eo.nn.Linear(2, 1), whole)
    content = whole.read_bytes()
    path = tmp_path / "cut.evo"
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(eo.EveryOSerializationError, match="not a valid"):
            eo.load(path)


def test_what_cannot_be_saved_is_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "model.evo"
    for model in (3, eo.ones(2), eo.Linear):
        with pytest.raises(eo.EveryOSerializationError, match="everyo Module"):
            eo.save(model, path)
    for metadata in ({"a": object()}, {"a": float("nan")}, {(1, 2): 3}, [1]):
        with pytest.raises(eo.EveryOSerializationError, match="JSON-serialisable"):
            eo.save(eo.ReLU(), path, metadata=metadata)
    assert not path.exists()
    eo.save(eo.Linear(1, 1), path)
    with pytest.raises(eo.EveryOSerializationError, match="already exists"):
        eo.save(eo.ReLU(), path, overwrite=False)
    assert isinstance(eo.load(path), eo.Linear)
    eo.save(eo.ReLU(), path)
    assert isinstance(eo.load(path), eo.ReLU)


def test_a_class_of_ones_own_comes_back_when_it_is_registered(tmp_path):
    class Doubled(eo.Module):
        def __init__(self, width):
            super().__init__()
            self.width = width
            self.inner = eo.Linear(width, width, seed=3)

        def forward(self, x):
            return self.inner(x) * 2

        def get_config(self):
            return {"width": self.width}

    path = eo.save(Doubled(2), tmp_path / "mine.evo")
    with pytest.raises(eo.EveryOSerializationError, match="Unknown module type 'Doubled'"):
        eo.load(path)
    try:
        eo.register_module(Doubled)
        model = eo.load(path)
    finally:
        eo.MODULE_REGISTRY.pop("Doubled", None)
    assert np.array_equal(model.inner.weight.numpy(), Doubled(2).inner.weight.numpy())

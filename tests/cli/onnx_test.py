"""`everyo export` and `everyo run-onnx`: files of trained models, and what the runtime makes of them."""

import os
import pathlib
import tempfile
import unittest

from command import last_json, run


class Onnx(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.run_folder = cls.folder / "run"
        result = run("train", "--model", "cnn", "--epochs", "2", "--batch", "100", "--out", cls.run_folder)
        assert result.returncode == 0, result
        cls.half_folder = cls.folder / "half"
        result = run("train", "--epochs", "1", "--precision", "float16", "--out", cls.half_folder)
        assert result.returncode == 0, result

    def test_a_checked_file_classes_all_rows_as_the_model(self):
        path = self.folder / "cnn.onnx"
        result = run("export", self.run_folder, "-o", path, "--check", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = last_json(result)
        self.assertEqual(report["opset"], 17)
        self.assertTrue(report["loaded"])
        self.assertLessEqual(report["agreements"]["output"]["relative"], 1e-5)
        self.assertIn("differs from the model by at most", result.stdout)
        shown = run("run-onnx", path, "--data", "digits", "--json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        found = last_json(shown)
        self.assertEqual(found["inputs"], [{"name": "input", "dtype": "float32", "shape": [-1, 64], "sizes": ["batch", ""]}])
        self.assertEqual((found["samples"], len(found["predictions"])), (1797, 1797))
        self.assertEqual(found["metadata"]["everyo.model"], "cnn")
        evaluated = last_json(run("evaluate", self.run_folder, "--json", "--data", "digits"))
        self.assertGreater(found["accuracy"], 0.5)
        self.assertEqual(last_json(run("evaluate", self.run_folder, "--json"))["digest"], found["metadata"]["everyo.digest"])
        self.assertGreater(evaluated["samples"], 0)

    def test_halves_only_on_request(self):
        plain, casts = self.folder / "plain.onnx", self.folder / "casts.onnx"
        self.assertEqual(run("export", self.half_folder, "-o", plain, "--check").returncode, 0)
        self.assertEqual(run("export", self.half_folder, "-o", casts, "--casts", "--check").returncode, 0)
        self.assertLess(last_json(run("export", self.half_folder, "-o", plain, "--json"))["nodes"],
                        last_json(run("export", self.half_folder, "-o", casts, "--casts", "--json"))["nodes"])
        wrong = run("export", self.run_folder, "-o", casts, "--casts")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("float32", wrong.stderr)

    def test_arrays_from_files(self):
        import numpy as np  # with Python's tools

        path, out = self.folder / "arrays.onnx", self.folder / "out.safetensors"
        self.assertEqual(run("export", self.run_folder, "-o", path).returncode, 0)
        np.save(self.folder / "x.npy", np.zeros((3, 64), np.float32))
        for given in (f"input={self.folder / 'x.npy'}", self.folder / "x.npy"):
            result = run("run-onnx", path, "--input", given, "-o", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("output: float32 (3, 10)", result.stdout)
        self.assertIn("output", run("inspect", out).stdout)
        np.save(self.folder / "x.npy", np.zeros((3, 63), np.float32))
        result = run("run-onnx", path, "--input", self.folder / "x.npy")
        self.assertEqual(result.returncode, 1)
        self.assertIn("64", result.stderr)

    def test_numbers_become_those_the_file_takes(self):
        import numpy as np  # with Python's tools

        path, x = self.folder / "doubles.onnx", self.folder / "doubles.npy"
        self.assertEqual(run("export", self.run_folder, "-o", path).returncode, 0)
        for dtype in (np.float64, np.int64):
            np.save(x, np.zeros((3, 64), dtype))
            result = run("run-onnx", path, "--input", x)
            self.assertEqual(result.returncode, 0, result.stderr)
        result = run("run-onnx", path, "--input", x, "--input", x)
        self.assertEqual(result.returncode, 2)
        self.assertIn("2 are given of the file's 1", result.stderr)

    def test_without_a_runtime_a_file_is_shown_and_not_run(self):
        path = self.folder / "shown.onnx"
        without = {**os.environ, "EVERYO_ONNXRUNTIME": "/nowhere/libonnxruntime.so.1"}
        result = run("export", self.run_folder, "-o", path, "--json", env=without)
        self.assertEqual((result.returncode, last_json(result)["loaded"]), (0, False), result.stderr)
        shown = run("run-onnx", path, "--json", env=without)
        self.assertEqual((shown.returncode, last_json(shown)["loaded"]), (0, False), shown.stderr)
        self.assertIn("input input: float32 [batch, 64]", shown.stdout)
        self.assertIn("only the structure is checked", shown.stdout)
        self.assertTrue(last_json(run("run-onnx", path, "--json"))["loaded"])
        wanted = run("run-onnx", path, "--data", "digits", env=without)
        self.assertEqual(wanted.returncode, 1)
        self.assertIn("input input: float32 [batch, 64]", wanted.stdout)
        self.assertIn("pip install onnxruntime", wanted.stderr)

    def test_wrong_usage_and_damaged_files(self):
        path = self.folder / "wrong.onnx"
        for arguments, code, words in (
            (("export", self.folder / "none", "-o", path), 1, "no folder"),
            (("export", self.run_folder), 2, "--output"),
            (("export", self.run_folder, "-o", path, "--opset", "12"), 2, "13"),
            (("run-onnx", path), 1, "wrong.onnx"),
            (("run-onnx", self.run_folder / "config.json"), 1, "config.json"),
            (("run-onnx", path, "-o", "x"), 2, "--input"),
        ):
            result = run(*arguments)
            self.assertEqual(result.returncode, code, (arguments, result.stderr))
            self.assertIn(words, result.stderr)
        self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()

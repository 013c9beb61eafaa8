"""Trained models on rows that they have not seen."""

import json
import pathlib
import re
import shutil
import struct
import tempfile
import unittest

from command import last_json, run


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.trained = pathlib.Path(cls.temporary.name) / "trained"
        cls.training = last_json(run("train", "--epochs", "3", "--out", cls.trained, "--json"))

    def setUp(self):
        """A copy of the run, to be damaged."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name) / "run"
        shutil.copytree(self.trained, self.run_folder)

    def failure_of(self, folder):
        result = run("evaluate", folder, "--json")
        self.assertEqual(result.returncode, 1, result)
        self.assertEqual(result.stdout, "")
        return result.stderr

    def change_config(self, change):
        path = self.run_folder / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))

    def test_gives_what_training_measured(self):
        result = run("evaluate", self.trained, "--data", "digits", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        last = last_json(result)
        self.assertEqual(set(last), {"accuracy", "loss", "confusion", "samples", "digest"})
        self.assertEqual((last["accuracy"], last["loss"]), (self.training["test_accuracy"], self.training["test_loss"]))
        self.assertEqual(last["digest"], self.training["digest"])
        self.assertEqual(last["samples"], 360)
        confusion = last["confusion"]
        self.assertEqual([len(row) for row in confusion], [10] * 10)
        self.assertEqual(sum(map(sum, confusion)), 360)
        right = sum(confusion[k][k] for k in range(10))
        self.assertEqual(right / 360, last["accuracy"])

        lines = result.stdout.splitlines()
        self.assertIn(f"{360 - right} of 360 rows are wrong", lines[0])
        for k, row in enumerate(confusion):
            recall = f"{100 * row[k] / sum(row):.1f} %"
            self.assertEqual(lines[3 + k].split(), [str(k), *map(str, row), *recall.split()])
        precision = [f"{100 * confusion[k][k] / sum(row[k] for row in confusion):.1f}" for k in range(10)]
        self.assertEqual(lines[13].replace("%", "").split(), ["precision", *precision])

    def test_rows_are_the_true_classes(self):
        # A last layer whose bias favours class 7 above all: every row is taken for a 7, so only column 7 has counts.
        path = self.run_folder / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        begin, end = (8 + length + offset for offset in header["4.bias"]["data_offsets"])
        bias = struct.pack("<10f", *(1e6 if k == 7 else 0 for k in range(10)))
        self.assertEqual(end - begin, len(bias))
        path.write_bytes(data[:begin] + bias + data[end:])
        message = self.failure_of(self.run_folder)
        self.assertIn("different runs", message)
        found = re.search(r"has the digest ([0-9a-f]{64})", message).group(1)
        self.change_config(lambda config: config.update(digest=found))
        result = run("evaluate", self.run_folder, "--json")
        confusion = last_json(result)["confusion"]
        self.assertEqual(sum(row[7] for row in confusion), 360)
        precision = next(line for line in result.stdout.splitlines() if "precision" in line)
        self.assertEqual(precision.split().count("-"), 9)  # never predicted, so it has none

    def test_folders_that_are_missing_or_unfinished(self):
        message = self.failure_of(self.run_folder / "gone")
        self.assertIn(f"{self.run_folder / 'gone'} is no folder", message)
        self.assertIn("train --out", message)
        (self.run_folder / "model.safetensors").unlink()
        self.assertIn("model.safetensors", self.failure_of(self.run_folder))
        (self.run_folder / "config.json").unlink()
        message = self.failure_of(self.run_folder)
        self.assertIn("config.json not found", message)
        self.assertIn(f"everyo train --resume --out {self.run_folder}", message)

    def test_options_of_data_without_data(self):
        for option in ("--labels", "--target"):
            result = run("evaluate", self.trained, option, "anything")
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(f"{option} goes with --data FILE; add it, or leave it out", result.stderr)

    def test_damaged_files(self):
        path = self.run_folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-5])
        message = self.failure_of(self.run_folder)
        self.assertIn(str(path), message)
        self.assertIn("where the file ends", message)
        for text in ("", "{", "[]", "{}", '{"model": 3}', '{"model": {"name": "mlp"}, "digest": ""}'):
            (self.run_folder / "config.json").write_text(text)
            self.assertIn("config.json is damaged", self.failure_of(self.run_folder), text)

    def test_models_that_do_not_fit(self):
        self.change_config(lambda config: config["model"].update(name="resnet"))
        message = self.failure_of(self.run_folder)
        self.assertIn('names the model "resnet"', message)
        self.assertIn("known: mlp", message)
        self.change_config(lambda config: config["model"].update(name="mlp", classes=10**15))
        self.assertRegex(self.failure_of(self.run_folder), "64 inputs and 1000000000000000 classes, and .* holds 17226 numbers")
        self.change_config(lambda config: config["model"].update(classes=10))
        path = self.run_folder / "model.safetensors"
        path.write_bytes(path.read_bytes().replace(b'"4.bias"', b'"5.bias"'))
        message = self.failure_of(self.run_folder)
        self.assertIn("does not fit the model 'mlp'", message)
        self.assertIn("Missing keys: '4.bias'; Unexpected keys: '5.bias'", message)


if __name__ == "__main__":
    unittest.main()

"""Options from a file: --config, and the settings.json that each run leaves."""

import json
import pathlib
import tempfile
import unittest

from command import last_json, run, usage_of


class Config(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "options.json"

    def write(self, content):
        self.file.write_text(content if isinstance(content, str) else json.dumps(content))
        return self.file

    def test_flags_come_before_the_file_and_the_file_before_defaults(self):
        config = self.write({"epochs": 2, "batch": 64, "optimizer": "sgd", "lr": 0.1, "warm_up": 3, "clip": 2})
        out = self.folder / "run"
        result = run("train", "--config", config, "--batch", "128", "--out", out, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        settings = json.loads((out / "settings.json").read_text())
        expected = {"data": "digits", "model": "mlp", "epochs": 2, "batch": 128, "accumulate": 1, "optimizer": "sgd", "lr": 0.1,
                    "precision": "float32", "schedule": "constant", "warm_up": 3, "clip": 2.0, "seed": 0, "workers": 1,
                    "transport": "shm", "virtual_shards": 0, "loader_workers": 0}
        self.assertEqual(settings, expected)
        flags = run("train", "--epochs", "2", "--batch", "128", "--optimizer", "sgd", "--lr", "0.1", "--warm-up", "3", "--clip",
                    "2", "--json")
        self.assertEqual(last_json(flags)["digest"], last_json(result)["digest"])

    def test_a_runs_settings_make_it_again(self):
        first, again = self.folder / "first", self.folder / "again"
        arguments = ("--epochs", "2", "--validation", "0.1", "--patience", "4", "--schedule", "cosine", "--seed", "3")
        digest = last_json(run("train", *arguments, "--out", first, "--json"))["digest"]
        result = run("train", "--config", first / "settings.json", "--out", again, "--json")
        self.assertEqual(last_json(result)["digest"], digest)
        self.assertEqual((again / "settings.json").read_text(), (first / "settings.json").read_text())
        self.assertFalse([path for path in again.iterdir() if path.name.startswith(".")], "left from writing")

    def test_what_is_wrong_is_named(self):
        for content, words in (
            ({"eopchs": 3}, ("unknown key 'eopchs'", "known: data", "Did you mean 'epochs'")),
            ({"out": "folder"}, ("unknown key 'out'",)),
            ({"epochs": "3"}, ("'epochs' is \"3\"; give a whole number",)),
            ({"epochs": 2.5}, ("'epochs' is 2.5; give a whole number",)),
            ({"epochs": True}, ("'epochs' is true; give a whole number",)),
            ({"epochs": 0}, ("--epochs", "'0'", "from 1 to")),
            ({"seed": 2**64}, ("'seed'",)),
            ({"lr": "fast"}, ("'lr' is \"fast\"; give a number",)),
            ({"lr": None}, ("'lr' is null; give a number",)),
            ({"lr": 0}, ("--lr", "'0'", "above 0")),
            ({"model": 3}, ("'model' is 3; give a text",)),
            ({"model": "resnet"}, ("--model", "'resnet' is unknown", "mlp")),
            ({"schedule": ["cosine"]}, ("'schedule' is [\"cosine\"]; give a text",)),
            ([1], ("one object",)),
            ("{", ("no valid JSON", "line 1")),
            ("", ("no valid JSON",)),
            ('{"epochs": 3, "epochs": 4}', ("the name 'epochs' twice",)),
            ("[" * 10**5, ("more than 100 deep",)),
            ("{\0}", ("zero byte",)),
        ):
            with self.subTest(content=content):
                message = usage_of("train", "--config", self.write(content))
                for word in (str(self.file), *words):
                    self.assertIn(word, message)

    def test_a_file_that_is_not_there_is_a_failure(self):
        result = run("train", "--config", self.folder / "gone.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("gone.json not found", result.stderr)

    def test_a_resumed_run_keeps_what_it_was_begun_with(self):
        out = self.folder / "run"
        self.assertEqual(run("train", "--epochs", "1", "--out", out).returncode, 0)
        self.assertIn("--batch 64 is not what the run", usage_of("train", "--config", self.write({"batch": 64}), "--resume", "--out", out))
        result = run("train", "--config", self.write({"epochs": 2}), "--resume", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()

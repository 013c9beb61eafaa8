"""`everyo inspect`: what runs, checkpoints and files hold, and that damage is noticed."""

import pathlib
import shutil
import tempfile
import unittest

from command import last_json, run


class Inspect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.trained = pathlib.Path(cls.temporary.name) / "trained"
        result = run("train", "--epochs", "3", "--batch", "100", "--validation", "0.2", "--out", cls.trained)
        assert result.returncode == 0, result

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name) / "run"
        shutil.copytree(self.trained, self.run_folder)

    def newest(self):
        return self.run_folder / "checkpoints" / (self.run_folder / "checkpoints" / "latest").read_text().strip()

    def test_a_checkpoint(self):
        result = run("inspect", self.newest(), "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = last_json(result)
        self.assertEqual((found["kind"], found["step"], found["epoch"]), ("checkpoint", 36, 3))
        arrays = {array["name"]: array for array in found["arrays"]}
        self.assertEqual(arrays["trainer/model/0.weight"],
                         {"name": "trainer/model/0.weight", "dtype": "float32", "shape": [64, 128], "bytes": 4 * 64 * 128})
        self.assertEqual(len([name for name in arrays if name.startswith("trainer/optimizer/")]), 2 * 6)  # Adam's moments
        self.assertEqual(found["values"]["run/model"], "mlp")
        self.assertIn("step 36, 3 epochs done; all sums are right", result.stdout)
        self.assertRegex(result.stdout, r"trainer/model/0\.weight +float32 +\[64,128\] +32\.8 kB")

    def test_a_run(self):
        for folder in (self.run_folder, self.run_folder / "checkpoints"):
            result = run("inspect", folder, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            found = last_json(result)
            self.assertEqual(found["kind"], "run")
            latest = [row["name"] for row in found["checkpoints"] if row["latest"]]
            self.assertEqual(latest, [self.newest().name])
            self.assertEqual(len([row for row in found["checkpoints"] if row["best"]]), 1)
            self.assertTrue(all(row["whole"] for row in found["checkpoints"]))
            self.assertEqual(found["newest"]["step"], 36)
        self.assertNotIn("model", found)
        self.assertEqual(len(last_json(run("inspect", self.run_folder, "--json"))["model"]["arrays"]), 6)

    def test_a_safetensors_file(self):
        result = run("inspect", self.run_folder / "model.safetensors", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([array["name"] for array in last_json(result)["arrays"]],
                         ["0.bias", "0.weight", "2.bias", "2.weight", "4.bias", "4.weight"])

    def test_damage_is_an_error_that_says_where(self):
        newest = self.newest()
        data = newest / "state.safetensors"
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        one = run("inspect", newest, "--json")
        self.assertEqual((one.returncode, one.stdout), (1, ""))
        self.assertIn(f"{newest}' is no whole checkpoint: state.safetensors was changed", one.stderr)
        whole = run("inspect", self.run_folder, "--json")
        self.assertEqual(whole.returncode, 1)
        self.assertIn("state.safetensors was changed", whole.stderr)
        rows = last_json(whole)["checkpoints"]
        self.assertEqual([row["whole"] for row in rows if row["latest"]], [False])
        self.assertTrue(any(row["whole"] for row in rows))  # the others are told all the same
        (newest / "manifest.json").write_text("{}")
        self.assertIn("its manifest is damaged", run("inspect", newest).stderr)
        model = self.run_folder / "model.safetensors"
        model.write_bytes(model.read_bytes()[:-5])
        self.assertIn("where the file ends", run("inspect", model).stderr)

    def test_what_is_nothing_of_the_kind(self):
        for path, words in ((self.run_folder / "gone", "not found"), (pathlib.Path(__file__).parent, "neither a checkpoint nor a model"),
                            (self.run_folder / "settings.json", "settings.json")):
            result = run("inspect", path, "--json")
            self.assertEqual((result.returncode, result.stdout), (1, ""), path)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main()

"""Training runs: what they print, write, and how they fail."""

import json
import os
import pathlib
import pty
import subprocess
import tempfile
import unittest

from command import COMMAND, FILES, SANITIZED, last_json, metrics_of, run


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "runs" / "first"

    def test_writes_the_run_and_ends_with_one_json_line(self):
        result = run("train", "--data", "digits", "--model", "mlp", "--epochs", "3", "--seed", "1", "--out", self.out, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        last = last_json(result)
        self.assertEqual(set(last), {"test_accuracy", "test_loss", "seconds", "out", "digest"})
        self.assertEqual(last["out"], str(self.out))
        self.assertRegex(last["digest"], r"^[0-9a-f]{64}$")
        self.assertGreater(last["test_accuracy"], 0.8)  # three epochs; chance is 0.1
        self.assertEqual({p.name for p in self.out.iterdir()}, FILES)

        rows = metrics_of(self.out)
        self.assertEqual([row["epoch"] for row in rows], [1, 2, 3])
        for row in rows:
            self.assertEqual(row["samples"], 1437)
            self.assertLessEqual({"loss", "accuracy", "learning_rate", "seconds", "samples_per_second"}, set(row))
        self.assertLess(rows[2]["loss"], rows[0]["loss"])
        config = json.loads((self.out / "config.json").read_text())
        self.assertEqual((config["model"]["name"], config["epochs"], config["seed"]), ("mlp", 3, 1))
        self.assertEqual(config["digest"], last["digest"])
        self.assertEqual(config["test_accuracy"], last["test_accuracy"])

    def test_plain_lines_when_standard_output_is_no_terminal(self):
        lines = run("train", "--epochs", "2").stdout
        self.assertNotIn("\r", lines)
        self.assertNotIn("\033", lines)
        epochs = [line for line in lines.splitlines() if line.startswith("epoch ")]
        self.assertEqual(len(epochs), 2)
        for line in epochs:
            self.assertRegex(line, r"^epoch \d/2  loss \d+\.\d{4}  accuracy [\d.]+ %  \d+ samples/s  .* left$")

    def test_one_line_is_written_over_on_a_terminal(self):
        parent, child = pty.openpty()
        process = subprocess.Popen([COMMAND, "train", "--epochs", "2"], stdout=child, env={**os.environ, "TERM": "xterm"})
        os.close(child)
        text = b""
        try:
            while chunk := os.read(parent, 4096):
                text += chunk
        except OSError:  # the other end is closed
            pass
        self.assertEqual(process.wait(timeout=300), 0)
        os.close(parent)
        self.assertIn(b"\r\033[K[", text)
        self.assertIn(b"[####################] epoch 2/2", text)

    def test_a_seed_gives_the_same_bits_on_every_run_and_any_number_of_threads(self):
        def digest(*arguments):
            return last_json(run("train", "--epochs", "2", "--json", *arguments))["digest"]

        first = digest("--seed", "5", "--threads", "1")
        self.assertEqual(digest("--seed", "5", "--threads", "1"), first)
        self.assertEqual(digest("--seed", "5", "--threads", "2"), first)
        self.assertEqual(digest("--seed", "5", "--loader-workers", "2"), first)
        self.assertNotEqual(digest("--seed", "6"), first)

    def test_each_run_says_its_effective_batch(self):
        for arguments, words in (
            ((), "effective batch 32 = micro-batch 32 x accumulation 1 x ranks 1"),
            (("--batch", "64", "--accumulate", "4"), "effective batch 64 = micro-batch 16 x accumulation 4 x ranks 1"),
            (("--batch", "10", "--accumulate", "4"), "effective batch 10 = micro-batch up to 3 x accumulation 4 x ranks 1"),
        ):
            self.assertIn(words, run("train", "--epochs", "1", *arguments).stdout.splitlines())

    def test_accumulation_changes_the_rounding_alone(self):
        def trained(accumulate):
            return last_json(run("train", "--epochs", "2", "--batch", "64", "--accumulate", accumulate, "--json"))

        whole = trained("1")
        for accumulate in ("3", "8"):
            parts = trained(accumulate)
            self.assertNotEqual(parts["digest"], whole["digest"])
            self.assertAlmostEqual(parts["test_loss"], whole["test_loss"], delta=1e-4)  # 46 steps, each off by a few ulp

    def test_a_validation_shows_the_best_epoch_and_stops_early(self):
        # At this rate the loss on 3 rows of 100 that are not trained on soon rises.
        result = run("train", "--epochs", "100000", "--batch", "1437", "--lr", "0.05", "--validation", "0.05", "--patience", "3",
                     "--out", self.out, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = metrics_of(self.out)
        losses = [row["val_loss"] for row in rows]
        best = losses.index(min(losses))
        self.assertEqual(len(rows), best + 1 + 4)  # more than 3 epochs without an improvement
        self.assertEqual([row["best"] for row in rows], [loss == min(losses[: i + 1]) for i, loss in enumerate(losses)])
        self.assertRegex(result.stdout, rf"stopped early: the validation loss was best in epoch {best + 1}, {losses[best]:.4f}; the model has its weights")
        self.assertIn(f"validation loss {losses[best]:.4f}  accuracy {100 * rows[best]['val_accuracy']:.2f} %  best", result.stdout)
        found = last_json(run("inspect", self.out, "--json"))
        self.assertEqual([row["epoch"] for row in found["checkpoints"] if row["best"]], [best + 1])
        self.assertEqual([row["epoch"] for row in found["checkpoints"] if row["latest"]], [best + 5])
        # The model that is left is the best epoch's.
        best_run = last_json(run("train", "--epochs", str(best + 1), "--batch", "1437", "--lr", "0.05", "--validation", "0.05",
                                 "--json"))
        self.assertEqual(best_run["digest"], last_json(result)["digest"])

    def test_a_schedule_moves_the_rate(self):
        self.assertEqual(run("train", "--epochs", "4", "--schedule", "cosine", "--warm-up", "45", "--lr", "0.002", "--out", self.out).returncode, 0)
        rates = [row["learning_rate"] for row in metrics_of(self.out)]
        self.assertEqual(rates[0], 0.002)  # after the 45 steps of its first epoch
        self.assertEqual(sorted(rates, reverse=True), rates)
        self.assertGreater(rates[3], 0)
        self.assertLess(rates[3], 1e-5)

    def test_every_optimizer_learns(self):
        for name in ("sgd", "adam", "adamw"):
            last = last_json(run("train", "--optimizer", name, "--epochs", "5", "--json"))
            self.assertGreater(last["test_accuracy"], 0.85, name)
            self.assertIsNone(last["out"])

    @unittest.skipIf(SANITIZED, "three whole runs; the release build makes them")
    def test_digits_reach_96_percent_with_the_defaults(self):
        for seed in ("0", "1", "2"):
            last = last_json(run("train", "--data", "digits", "--model", "mlp", "--seed", seed, "--json"))
            self.assertGreaterEqual(last["test_accuracy"], 0.96, seed)

    @unittest.skipIf(SANITIZED, "the release build shows the accuracy")
    def test_digits_reach_97_5_percent_with_the_cnn(self):
        for seed in ("0", "1", "2"):
            last = last_json(run("train", "--model", "cnn", "--seed", seed, "--json"))
            self.assertGreaterEqual(last["test_accuracy"], 0.975, seed)

    def test_a_cnn_is_trained_and_evaluated_as_any_model(self):
        trained = last_json(run("train", "--model", "cnn", "--epochs", "1", "--out", self.out, "--json"))
        evaluated = last_json(run("evaluate", self.out, "--json"))
        self.assertEqual(evaluated["accuracy"], trained["test_accuracy"])
        self.assertEqual(evaluated["digest"], trained["digest"])

    def test_a_loss_that_is_not_finite_names_step_and_parameter(self):
        result = run("train", "--optimizer", "sgd", "--lr", "1e30", "--json")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"step \d+: the loss is (nan|-?inf); .*'\d\.\w+' is the first .* lower learning rate")

    def test_a_trained_model_whose_loss_is_not_finite_is_a_failure(self):
        # One step, so that only the evaluation sees what it did.
        result = run("train", "--epochs", "1", "--batch", "2000", "--lr", "1e38", "--out", self.out, "--json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("held-out rows is", result.stderr)
        self.assertFalse((self.out / "config.json").exists())

    def test_closed_streams_do_not_end_up_in_the_run(self):
        code = subprocess.call(["/bin/sh", "-c", 'exec "$0" train --epochs 1 --out "$1" >&-', COMMAND, str(self.out)])
        self.assertEqual(code, 0)
        for line in (self.out / "metrics.jsonl").read_text().splitlines():
            json.loads(line)
        self.assertEqual(subprocess.call(["/bin/sh", "-c", 'exec "$0" train --lr nan 2>&-', COMMAND]), 2)

    def test_fewer_threads_than_asked_for_change_nothing(self):
        arguments = ("train", "--epochs", "1", "--batch", "512", "--json")
        digest = last_json(run(*arguments))["digest"]
        for limits in ({"OMP_THREAD_LIMIT": "1"}, {"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "8"},
                       {"OMP_MAX_ACTIVE_LEVELS": "0"}, {"OMP_NUM_THREADS": "4", "OMP_THREAD_LIMIT": "2"}):
            self.assertEqual(last_json(run(*arguments, env={**os.environ, **limits}))["digest"], digest, limits)

    def test_a_folder_that_cannot_be_made_fails_before_training(self):
        blocked = pathlib.Path(self.folder.name) / "file"
        blocked.write_text("")
        result = run("train", "--out", blocked / "run")
        self.assertEqual(result.returncode, 1)
        self.assertIn(str(blocked / "run"), result.stderr)
        self.assertEqual(result.stdout, "")

    def test_missing_data_is_an_error_that_says_where_it_was_looked_for(self):
        result = run("train", "--epochs", "1", env={**os.environ, "EVERYO_DATA": self.folder.name})
        self.assertEqual(result.returncode, 0)  # falls back on the data beside the build
        (pathlib.Path(self.folder.name) / "digits.csv").write_text("1,2\n3,x\n")
        result = run("train", "--epochs", "1", env={**os.environ, "EVERYO_DATA": self.folder.name})
        self.assertEqual(result.returncode, 1)
        self.assertIn("digits.csv, line 2, column 2: 'x'", result.stderr)


if __name__ == "__main__":
    unittest.main()

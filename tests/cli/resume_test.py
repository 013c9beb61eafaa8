"""Runs that stop and go on."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from command import COMMAND, FILES, last_json, metrics_of, run, usage_of


class Resume(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "runs" / "first"

    def stop(self, sent, *arguments):
        """Starts a run, sends it a signal in its second epoch, and gives its exit code and standard error."""
        process = subprocess.Popen([COMMAND, "train", "--epochs", "1000000", *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("epoch 2/"):
                break
        process.send_signal(sent)
        _, message = process.communicate(timeout=60)
        return process.returncode, message

    def test_an_interrupt_saves_where_the_run_stands(self):
        self.assertEqual(run("train", "--epochs", "1", "--out", self.out).returncode, 0)
        self.assertEqual({p.name for p in self.out.iterdir()}, FILES)
        for sent in (signal.SIGINT, signal.SIGTERM):
            if sent == signal.SIGTERM:
                shutil.rmtree(self.out / "checkpoints")  # what is not finished is not replaced
            code, message = self.stop(sent, "--out", self.out)
            self.assertEqual(code, 130)
            self.assertRegex(message, r"interrupted in epoch \d+ of 1000000; go on with: everyo train --resume --out ")
            self.assertEqual({p.name for p in self.out.iterdir()}, FILES - {"config.json"})  # the earlier run's model is left
            for line in (self.out / "metrics.jsonl").read_text().splitlines():
                json.loads(line)
        code, message = self.stop(signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn("nothing was saved; --out FOLDER would have", message)

    def test_a_resumed_run_ends_with_the_bits_of_one_that_never_stopped(self):
        arguments = ("--model", "cnn", "--batch", "64", "--optimizer", "adamw", "--lr", "0.002", "--seed", "4")
        whole = run("train", *arguments, "--epochs", "3", "--out", self.out.with_name("whole"), "--json")
        process = subprocess.Popen([COMMAND, "train", *arguments, "--epochs", "3", "--out", self.out], stdout=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)  # before, in, or after its last epoch
        process.communicate(timeout=300)
        resumed = run("train", "--resume", "--epochs", "3", "--out", self.out, "--json", env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("resumed from", resumed.stdout)
        self.assertEqual(last_json(resumed)["digest"], last_json(whole)["digest"])
        self.assertEqual([row["epoch"] for row in metrics_of(self.out)], [1, 2, 3])
        longer = last_json(run("train", "--resume", "--epochs", "4", "--out", self.out, "--json"))
        self.assertNotEqual(longer["digest"], last_json(whole)["digest"])

    def test_schedule_accumulation_and_early_stopping_resume_too(self):
        arguments = ("--batch", "32", "--accumulate", "3", "--schedule", "cosine", "--warm-up", "20", "--clip", "1", "--lr", "0.01",
                     "--validation", "0.1", "--patience", "2", "--epochs", "12")
        whole = run("train", *arguments, "--out", self.out.with_name("whole"), "--json")
        process = subprocess.Popen([COMMAND, "train", *arguments, "--out", self.out], stdout=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
        resumed = run("train", "--resume", "--out", self.out, "--json")  # all options are the run's own, epochs too
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(last_json(resumed)["digest"], last_json(whole)["digest"])
        same = lambda rows: [(row["epoch"], row["loss"], row["val_loss"], row["best"], row["learning_rate"]) for row in rows]
        self.assertEqual(same(metrics_of(self.out)), same(metrics_of(self.out.with_name("whole"))))
        # Once more: it has ended, and says so; the model is the same.
        again = run("train", "--resume", "--out", self.out, "--json")
        self.assertEqual(last_json(again)["digest"], last_json(whole)["digest"])
        self.assertIn("nothing to train", again.stderr)

    def test_a_run_that_is_not_finished_is_not_replaced(self):
        self.stop(signal.SIGINT, "--out", self.out)
        stood = (self.out / "checkpoints" / "latest").read_bytes()
        self.assertIn("holds a run that is not finished", usage_of("train", "--epochs", "1", "--out", self.out))
        self.assertRegex(usage_of("train", "--resume", "--epochs", "1", "--out", self.out),
                         r"--epochs 1: the run in \S+ is in epoch \d+ already")
        self.assertEqual((self.out / "checkpoints" / "latest").read_bytes(), stood)
        for manifest in self.out.glob("checkpoints/*/manifest.json"):
            manifest.write_text("{}")
        self.assertEqual(run("train", "--epochs", "1", "--out", self.out).returncode, 0)  # nothing to go on from

    def test_what_cannot_be_resumed(self):
        self.assertIn("--resume needs --out", usage_of("train", "--resume"))
        nothing = run("train", "--resume", "--out", self.out)
        self.assertEqual(nothing.returncode, 1)
        self.assertIn("has no whole checkpoint", nothing.stderr)
        self.assertEqual(run("train", "--epochs", "1", "--out", self.out).returncode, 0)
        self.assertIn("--batch 64 is not what the run", usage_of("train", "--resume", "--batch", "64", "--out", self.out))
        self.assertIn("--lr 0.5 is not what the run", usage_of("train", "--resume", "--lr", "0.5", "--out", self.out))
        for manifest in self.out.glob("checkpoints/*/manifest.json"):
            manifest.write_text("{}")
        damaged = run("train", "--resume", "--out", self.out)
        self.assertEqual(damaged.returncode, 1)
        self.assertIn("is no whole checkpoint", damaged.stderr)  # the notice
        self.assertIn("has no whole checkpoint", damaged.stderr)


if __name__ == "__main__":
    unittest.main()

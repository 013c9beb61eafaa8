"""Runs on several workers: the same bits, failures, and what everyo diff says of two runs."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from command import COMMAND, FILES, last_json, metrics_of, run, usage_of

LEVERS = ("--virtual-shards", "6", "--batch", "96", "--accumulate", "2", "--precision", "float16", "--clip", "1", "--validation", "0.1",
          "--schedule", "cosine", "--seed", "4")


def children_of(process):
    return [int(child) for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


class Workers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "run"

    def train(self, *arguments, out="run"):
        result = run("train", *arguments, "--out", self.folder / out, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return last_json(result)

    def start(self, *arguments):
        """A run that has ended its first epoch."""
        process = subprocess.Popen([COMMAND, "train", *arguments, "--out", self.out], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("epoch 1/"):
                break
        return process

    def test_virtual_shards_have_the_same_bits_on_any_number_of_workers(self):
        right = self.train(*LEVERS, "--epochs", "2", "--threads", "1", "--digests", out="one")
        for workers, transport in ((2, "shm"), (3, "threads"), (4, "shm")):
            with self.subTest(workers=workers, transport=transport):
                own = self.train(*LEVERS, "--epochs", "2", "--workers", str(workers), "--transport", transport, "--digests")
                self.assertEqual({key: own[key] for key in ("digest", "test_loss", "test_accuracy")},
                                 {key: right[key] for key in ("digest", "test_loss", "test_accuracy")})
                self.assertEqual([(row["loss"], row["val_loss"]) for row in metrics_of(self.out)],
                                 [(row["loss"], row["val_loss"]) for row in metrics_of(self.folder / "one")])
                equal = run("diff", self.folder / "one", self.out)
                self.assertEqual((equal.returncode, equal.stdout), (0, "equal: 28 steps have the same bits\n"), equal.stderr)
                config = json.loads((self.out / "config.json").read_text())
                self.assertEqual((config["workers"], config["transport"], config["virtual_shards"]), (workers, transport, 6))
                self.assertEqual({path.name for path in self.out.iterdir()}, FILES | {"digests.jsonl"})

    def test_without_them_workers_learn_the_same_but_for_rounding(self):
        right = self.train("--epochs", "2")
        own = self.train("--epochs", "2", "--workers", "2", out="two")
        # 90 steps of Adam, whose first ones turn roundings of small gradients into steps; the accuracy shows what was learned.
        self.assertAlmostEqual(own["test_loss"], right["test_loss"], delta=1e-3)
        text = run("train", "--epochs", "1", "--workers", "2").stdout
        self.assertIn("effective batch 32 = micro-batch 16 x accumulation 1 x ranks 2", text)
        self.assertEqual(text.count("epoch 1/1"), 1)  # rank 0 alone prints
        self.assertEqual(text.count("held-out accuracy"), 1)

    def test_an_interrupted_run_goes_on_with_another_number_of_them(self):
        # To the command alone, and as a terminal does to its workers, too.
        for send in (lambda process: process.send_signal(signal.SIGTERM), lambda process: os.killpg(process.pid, signal.SIGINT)):
            shutil.rmtree(self.out, ignore_errors=True)
            process = self.start(*LEVERS, "--epochs", "5", "--workers", "4", "--digests")
            send(process)
            _, message = process.communicate(timeout=300)
            if process.returncode != 0:  # it was not at its end already
                self.assertEqual(process.returncode, 130, message)
                self.assertRegex(message, r"interrupted in epoch \d of 5; go on with: everyo train --resume --out ")
            self.train("--resume", "--workers", "2", "--transport", "threads")
            self.train(*LEVERS, "--epochs", "5", "--digests", out="whole")
            equal = run("diff", self.out, self.folder / "whole")
            self.assertEqual(equal.returncode, 0, equal.stdout)
            self.assertEqual([row["epoch"] for row in metrics_of(self.out)], [1, 2, 3, 4, 5])

    def test_without_them_another_number_is_noted(self):
        self.train("--epochs", "1", "--workers", "2")
        result = run("train", "--resume", "--epochs", "2", "--workers", "3", "--out", self.out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("saved on 2 ranks, and this run has 3", result.stderr)
        self.assertEqual(run("train", "--resume", "--epochs", "3", "--out", self.out).stderr, "")  # it stays at three
        self.assertIn("--virtual-shards 3 is not what the run", usage_of("train", "--resume", "--virtual-shards", "3", "--out", self.out))

    def test_a_worker_that_is_killed_ends_the_run(self):
        process = self.start("--epochs", "1000000", "--workers", "3")
        workers = children_of(process)
        self.assertEqual(len(workers), 3)
        os.kill(workers[1], signal.SIGKILL)
        _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(message, r"^everyo: \[run_processes\] rank 1: the process was killed by signal 9")
        self.assertFalse([pid for pid in workers if pathlib.Path(f"/proc/{pid}").exists()])

    def test_a_worker_that_is_stopped_ends_the_run(self):
        process = self.start("--epochs", "1000000", "--workers", "2")
        workers = children_of(process)
        os.kill(workers[0], signal.SIGSTOP)
        _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(message, r"^everyo: \[run_processes\] rank 0: the process was stopped, and did not go on")
        self.assertFalse([pid for pid in workers if pathlib.Path(f"/proc/{pid}").exists()])

    def test_a_failure_on_workers_is_said_once_and_in_full(self):
        for transport in ("shm", "threads"):
            result = run("train", "--workers", "2", "--transport", transport, "--lr", "1e30", "--out", self.out)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"rank \d: StateError: \[Trainer\] step \d: the loss is nan; .* try a lower learning rate")
            self.assertEqual(result.stderr.count("everyo:"), 1)

    def test_wrong_usage(self):
        self.assertIn("--virtual-shards 2 are fewer than --workers 3", usage_of("train", "--workers", "3", "--virtual-shards", "2"))
        self.assertIn("--workers", usage_of("train", "--workers", "0"))
        self.assertIn("threads, shm", usage_of("train", "--transport", "tcp"))
        self.assertIn("--digests needs --out", usage_of("train", "--digests"))
        self.assertIn("--warm-up 99 is the whole run", usage_of("train", "--workers", "2", "--warm-up", "99", "--epochs", "1"))
        config = self.folder / "options.json"
        config.write_text(json.dumps({"workers": 2, "transport": "threads", "virtual_shards": 4, "epochs": 1}))
        text = run("train", "--config", config).stdout
        self.assertIn("effective batch 32 in 4 virtual shards, on 2 workers", text)


class Diff(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, *steps):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "digests.jsonl").write_text("".join(step if isinstance(step, str) else json.dumps(step) + "\n" for step in steps))
        return folder

    def step(self, number, changed=()):
        names = (("up.weight", "parameter"), ("down.weight", "parameter"), ("up.weight", "gradient"), ("down.weight", "gradient"))
        tensors = [[*name, "changed" if name in changed else "same"] for name in names]
        return {"step": number, "digest": f"{number} {changed}", "tensors": tensors}

    def test_names_the_first_step_module_and_tensor(self):
        one = self.write("one", self.step(1), self.step(2), self.step(3))
        self.assertEqual(run("diff", one, one).stdout, "equal: 3 steps have the same bits\n")
        changed = (("up.weight", "parameter"), ("down.weight", "parameter"), ("down.weight", "gradient"))
        two = self.write("two", self.step(1), self.step(2, changed), self.step(3, changed))
        result = run("diff", one, two, "--json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("step 2: the gradient of 'down.weight' is the first of 3 of 4 tensors that differ; equal steps before it: 1",
                      result.stdout)
        self.assertEqual(last_json(result), {"equal": False, "equal_steps": 1, "step": 2, "module": "down", "tensor": "down.weight",
                                             "kind": "gradient"})

    def test_of_runs_of_other_lengths_or_models(self):
        one, longer = self.write("one", self.step(1)), self.write("longer", self.step(1), self.step(2))
        result = run("diff", one, longer)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"step 2: only \S+longer has it; equal steps before it: 1")
        other = self.step(1)
        other["tensors"] = other["tensors"][:2]
        other["digest"] = "other"
        self.assertIn("other tensors", run("diff", one, self.write("other", other)).stdout)
        cut = json.dumps(self.step(2))[:40]  # a run that was killed while it wrote
        self.assertEqual(run("diff", one, self.write("cut", self.step(1), cut)).returncode, 0)
        self.assertIn("goes on with step 1", run("diff", one, self.write("later", self.step(4))).stdout)

    def test_what_cannot_be_compared_is_wrong_usage(self):
        one = self.write("one", self.step(1))
        for name, content, words in (
            ("empty", "", "have no steps"), ("text", "no JSON\n", "line 1: it is no valid JSON"),
            ("kind", "{}\n", "line 1 is damaged: it is no step"), ("deep", "[" * 200 + "]" * 200 + "\n", "nests more than"),
            ("tensor", '{"step": 1, "digest": "x", "tensors": [["a", "b"]]}\n', "a tensor is no name, kind and digest"),
        ):
            with self.subTest(name=name):
                folder = self.write(name, content)
                self.assertIn(words, usage_of("diff", folder, folder))
                if name != "empty":
                    self.assertIn(words, usage_of("diff", one, folder))
        self.assertIn("digests.jsonl not found", usage_of("diff", one, self.folder))
        self.assertIn("run_b", usage_of("diff", one))


if __name__ == "__main__":
    unittest.main()

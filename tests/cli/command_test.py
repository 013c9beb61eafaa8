"""The command from outside: exit codes, messages, the last line under --json, what it writes, and how fast it starts."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

COMMAND = os.environ.get("EVERYO_COMMAND", str(pathlib.Path(__file__).parents[2] / "build" / "everyo"))
SANITIZED = bool(os.environ.get("EVERYO_SANITIZE"))
FILES = {"model.safetensors", "config.json", "metrics.jsonl", "checkpoints"}


def run(*arguments, **options):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False, **options)


def last_json(result):
    return json.loads(result.stdout.splitlines()[-1])


def usage_of(*arguments):
    """Standard error of a call that must fail as wrong usage, and print nothing else."""
    result = run(*arguments)
    assert result.returncode == 2, (arguments, result)
    assert result.stdout == "", result.stdout
    return result.stderr


class Usage(unittest.TestCase):
    def test_help_names_the_commands_and_options(self):
        text = run("--help")
        self.assertEqual(text.returncode, 0)
        for word in ("train", "evaluate", "doctor", "verify", "--version", "--isa", "--json"):
            self.assertIn(word, text.stdout)
        text = run("train", "--help").stdout
        for word in ("--data", "--model", "--epochs", "--batch", "--optimizer", "--lr", "--seed", "--threads", "--out"):
            self.assertIn(word, text)

    def test_a_bad_instruction_set_of_the_environment_is_wrong_usage(self):
        result = run("train", env={**os.environ, "EVERYO_ISA": "mmx"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("need one of baseline, avx2, avx512", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_version(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^everyo \d+\.\d+\.\d+\n$")

    def test_messages_name_the_option_the_value_and_what_is_allowed(self):
        for arguments, words in (
            (("train", "--epochs", "0"), ("--epochs", "'0'", "from 1 to")),
            (("train", "--epochs", "ten"), ("--epochs", "'ten'", "whole number")),
            (("train", "--epochs", "1e3"), ("--epochs", "'1e3'")),
            (("train", "--batch=-5"), ("--batch", "'-5'", "from 1 to")),
            (("train", "--lr", "0"), ("--lr", "'0'", "above 0")),
            (("train", "--lr", "nan"), ("--lr", "'nan'")),
            (("train", "--seed", "-1"), ("--seed",)),
            (("train", "--optimizer", "adm"), ("--optimizer", "'adm'", "sgd, adam, adamw", "Did you mean 'adam'")),
            (("train", "--model", "resnet"), ("--model", "'resnet'", "mlp")),
            (("train", "--data", "mnist"), ("--data", "'mnist'", "digits")),
            (("train", "--threads", "-2"), ("--threads",)),
            (("train", "--epochs"), ("--epochs",)),
            (("train", "--eopchs", "3"), ("unknown option '--eopchs'", "did you mean '--epochs'")),
            (("train", "extra"), ("'extra'", "too many")),
            (("evaluate",), ("checkpoint", "required")),
            (("evaluate", "folder", "--data", "mnist"), ("--data", "'mnist'", "digits")),
            (("evaluate", "folder", "other"), ("'other'", "too many")),
            (("--isa", "avx9", "doctor"), ("--isa", "'avx9'", "baseline, avx2, avx512")),
            (("doctor", "--isa", "sse"), ("--isa", "'sse'")),
            (("verify", "precison"), ("'precison'", "Did you mean 'precision'")),
            (("trian",), ("unknown command 'trian'", "did you mean 'train'")),
            (("--frobnicate",), ("unknown option '--frobnicate'",)),
            ((), ("a command is needed",)),
        ):
            with self.subTest(arguments):
                message = usage_of(*arguments)
                for word in words:
                    self.assertIn(word, message)

    def test_errors_go_to_standard_error_under_json_too(self):
        self.assertIn("--epochs", usage_of("train", "--json", "--epochs", "0"))


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

        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
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
        self.assertNotEqual(digest("--seed", "6"), first)

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
        epochs = [json.loads(line)["epoch"] for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(epochs, [1, 2, 3])
        longer = last_json(run("train", "--resume", "--epochs", "4", "--out", self.out, "--json"))
        self.assertNotEqual(longer["digest"], last_json(whole)["digest"])

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

    def test_missing_data_is_an_error_that_says_where_it_was_looked_for(self):
        result = run("train", "--epochs", "1", env={**os.environ, "EVERYO_DATA": self.folder.name})
        self.assertEqual(result.returncode, 0)  # falls back on the data beside the build
        (pathlib.Path(self.folder.name) / "digits.csv").write_text("1,2\n3,x\n")
        result = run("train", "--epochs", "1", env={**os.environ, "EVERYO_DATA": self.folder.name})
        self.assertEqual(result.returncode, 1)
        self.assertIn("digits.csv, line 2, column 2: 'x'", result.stderr)


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
        self.assertIn("no whole run", message)

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
        self.assertIn("64 inputs and 1000000000000000 classes, and the data has 64 and 10", self.failure_of(self.run_folder))
        self.change_config(lambda config: config["model"].update(classes=10))
        path = self.run_folder / "model.safetensors"
        path.write_bytes(path.read_bytes().replace(b'"4.bias"', b'"5.bias"'))
        message = self.failure_of(self.run_folder)
        self.assertIn("does not fit the model 'mlp'", message)
        self.assertIn("Missing keys: '4.bias'; Unexpected keys: '5.bias'", message)


class Doctor(unittest.TestCase):
    def test_figures(self):
        result = run("doctor", "--json", "--seconds", "0.01")
        self.assertEqual(result.returncode, 0, result.stderr)
        figures = last_json(result)
        self.assertEqual(set(figures["peak_gflops"]), {"float32", "float64", "float16", "bfloat16"})
        self.assertTrue(all(value > 0 for value in figures["peak_gflops"].values()))
        self.assertGreater(figures["memory_bandwidth_gbs"], 0)
        self.assertGreaterEqual(figures["threads"], 1)
        self.assertIn(figures["isa"]["used"], ("baseline", "avx2", "avx512"))
        self.assertEqual(set(figures["versions"]), {"everyo", "onednn", "highway", "compiler"})

    def test_caps(self):
        figures = last_json(run("doctor", "--json", "--seconds", "0.01", "--isa", "baseline", "--threads", "1"))
        self.assertEqual(figures["isa"]["used"], "baseline")
        self.assertEqual(figures["threads"], 1)
        figures = last_json(run("--isa", "baseline", "doctor", "--json", "--seconds", "0.01"))
        self.assertEqual(figures["isa"]["used"], "baseline")


class Verify(unittest.TestCase):
    def test_all_pass_and_every_sabotage_is_found(self):
        result = run("verify", "--prove", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = last_json(result)
        self.assertLessEqual({"P1", "P2", "P3a", "P14"}, {row["requirement"] for row in rows})
        keys = {"requirement", "what", "reference", "measured", "tolerance", "pass", "sabotage", "sabotaged_pass"}
        for row in rows:
            self.assertEqual(set(row), keys)
            self.assertIs(row["pass"], True, row)
            self.assertIs(row["sabotaged_pass"], False, row)

    def test_without_prove_no_sabotage_runs(self):
        rows = last_json(run("verify", "precision", "--json"))
        self.assertTrue(rows)
        self.assertEqual({row["sabotaged_pass"] for row in rows}, {None})

    def test_a_figure_that_is_missed_fails(self):
        source = pathlib.Path(os.environ.get("EVERYO_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
        figures = json.loads((source / "data" / "verify" / "precision.json").read_text())
        figures["deep_zero_in_float16"]["reference"] = 79
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "verify").mkdir()
            (pathlib.Path(folder) / "verify" / "precision.json").write_text(json.dumps(figures))
            result = run("verify", "--json", env={**os.environ, "EVERYO_DATA": folder})
        self.assertEqual(result.returncode, 1)
        self.assertEqual([row["requirement"] for row in last_json(result) if not row["pass"]], ["P2"])
        self.assertIn("FAIL", result.stdout)


if __name__ == "__main__":
    unittest.main()

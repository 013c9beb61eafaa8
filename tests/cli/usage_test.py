"""Help, versions, and what wrong usage is told."""

import os
import unittest

from command import run, usage_of


class Usage(unittest.TestCase):
    def test_help_names_the_commands_and_options(self):
        text = run("--help")
        self.assertEqual(text.returncode, 0)
        for word in ("train", "evaluate", "inspect", "doctor", "verify", "launch", "diff", "--version", "--isa", "--json"):
            self.assertIn(word, text.stdout)
        text = run("train", "--help").stdout
        for word in ("--data", "--model", "--epochs", "--batch", "--optimizer", "--lr", "--seed", "--threads", "--out",
                     "--accumulate", "--validation", "--patience", "--schedule", "--clip", "--workers", "--transport",
                     "--virtual-shards", "--loader-workers", "--digests", "--config"):
            self.assertIn(word, text)

    def test_a_bad_instruction_set_of_the_environment_is_wrong_usage(self):
        result = run("train", env={**os.environ, "EVERYO_ISA": "mmx"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("need one of baseline, avx2, avx512, avx512_bf16, avx512_fp16, amx", result.stderr)
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
            (("train", "--accumulate", "0"), ("--accumulate", "'0'", "from 1 to")),
            (("train", "--schedule", "cosin"), ("--schedule", "'cosin'", "constant, step, cosine", "Did you mean 'cosine'")),
            (("train", "--validation", "1"), ("--validation", "'1'", "between 0 and 1")),
            (("train", "--clip", "-1"), ("--clip", "above 0")),
            (("train", "--patience", "3"), ("--patience needs --validation",)),
            (("train", "--epochs", "2", "--warm-up", "90"), ("--warm-up 90 is the whole run: 2 epochs of 45 steps",)),
            (("inspect",), ("path", "required")),
            (("train", "--threads", "-2"), ("--threads",)),
            (("train", "--epochs"), ("--epochs",)),
            (("train", "--eopchs", "3"), ("unknown option '--eopchs'", "did you mean '--epochs'")),
            (("train", "extra"), ("'extra'", "too many")),
            (("evaluate",), ("checkpoint", "required", "'everyo evaluate --help'")),
            (("evaluate", "folder", "--data", "mnist"), ("--data", "'mnist'", "digits")),
            (("evaluate", "folder", "other"), ("'other'", "too many")),
            (("--isa", "avx9", "doctor"), ("--isa", "'avx9'", "baseline, avx2, avx512, avx512_bf16, avx512_fp16, amx")),
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


if __name__ == "__main__":
    unittest.main()

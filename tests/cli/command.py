"""What the tests of the command share: calls of it, and what it prints."""

import json
import os
import pathlib
import subprocess

COMMAND = os.environ.get("EVERYO_COMMAND", str(pathlib.Path(__file__).parents[2] / "build" / "everyo"))
SANITIZED = bool(os.environ.get("EVERYO_SANITIZE"))
FILES = {"model.safetensors", "config.json", "settings.json", "metrics.jsonl", "checkpoints"}


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


def metrics_of(folder):
    """The rows of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

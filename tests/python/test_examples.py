"""Each example of examples/python prints what stands at its top: the same words, and numbers that agree to two percent."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "examples"))
from examples_test import agree  # noqa: E402  one rule for examples of both languages

EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_prints_what_it_says(path):
    expected = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if line.startswith("#     "):
            expected.append(line.removeprefix("#     "))
    assert expected, "no expected output at the top"
    result = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    printed = result.stdout.splitlines()
    assert len(printed) == len(expected), result.stdout
    for wanted, line in zip(expected, printed):
        assert agree(wanted, line), f"expected {wanted!r}, printed {line!r}"


def test_the_page_on_python_holds_programs_that_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    assert programs
    names = {}  # the later ones go on where the first ended
    for program in programs:
        exec(program, names)
        assert names["loss"].item() < 2.3  # a tenth for each class is log 10

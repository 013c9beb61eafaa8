"""Each example prints what stands at its top: the same words, and numbers that agree to two percent."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(os.environ.get("EVERYO_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("EVERYO_BINARY_DIR", ROOT / "build"))
NUMBER = re.compile(r"-?\d+\.\d+")
TOLERANCE = 0.02  # results on other instruction sets differ by roundings, which training makes larger


def expected_output(source):
    """Lines of the first comment that are set in by four blanks, after the words "Prints:"."""
    lines = []
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        if line.startswith("//     "):
            lines.append(line.removeprefix("//     "))
    return lines


def agree(expected, printed):
    """Whether two lines have the same words and nearly the same numbers; blanks do not count."""
    if NUMBER.sub("#", expected).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(map(float, NUMBER.findall(expected)), map(float, NUMBER.findall(printed)))
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in pairs)


class Examples(unittest.TestCase):
    def test_print_what_they_say(self):
        sources = sorted((ROOT / "examples").glob("*.cpp"))
        self.assertTrue(sources)
        for source in sources:
            with self.subTest(source.name):
                expected = expected_output(source)
                self.assertTrue(expected, "no expected output at the top")
                result = subprocess.run([BUILD / "examples" / source.stem], capture_output=True, text=True, timeout=600, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                printed = result.stdout.splitlines()
                self.assertEqual(len(printed), len(expected), result.stdout)
                for wanted, line in zip(expected, printed):
                    self.assertTrue(agree(wanted, line), f"expected {wanted!r}, printed {line!r}")

    def test_another_word_or_number_is_seen(self):
        self.assertTrue(agree("epoch  1  loss 0.1000", "epoch 1 loss 0.1015"))
        self.assertFalse(agree("epoch 1 loss 0.1000", "epoch 1 loss 0.1100"))
        self.assertFalse(agree("epoch 1 loss 0.1000", "epoch 2 loss 0.1000"))


if __name__ == "__main__":
    unittest.main()

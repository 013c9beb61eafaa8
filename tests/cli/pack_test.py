"""`everyo pack` from outside: what it takes, what it says, and what it refuses."""

import json
import os
import pathlib
import struct
import tempfile
import unittest

from command import run

DIGITS = pathlib.Path(os.environ.get("EVERYO_SOURCE_DIR", pathlib.Path(__file__).parents[2])) / "data" / "digits.csv"


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


class Pack(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, content=None):
        path = pathlib.Path(self.folder.name) / name
        if content is not None:
            path.write_bytes(content)
        return str(path)

    def pack(self, *arguments):
        return run("pack", *arguments)

    def test_a_table(self):
        out = self.file("out.pack")
        result = self.pack(str(DIGITS), out, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("1797 samples, features (64,) of float32, targets () of int64: 474664 bytes in ", result.stdout)
        value = json.loads(result.stdout.splitlines()[-1])
        self.assertEqual((value["samples"], value["bytes"]), (1797, os.path.getsize(out)))
        self.assertEqual(len(value["features_digest"]), 64)

    def test_columns_and_delimiters_of_a_table(self):
        table = self.file("table.csv", b"label;a;b\n1.5;2;3\n2.5;4;5\n")
        for target in ("label", "0", "-3"):
            result = self.pack(table, self.file("out"), f"--target={target}", "--target-type", "float32", "--delimiter", "semicolon")
            self.assertEqual((result.returncode, result.stderr), (0, ""), target)
            self.assertIn("2 samples, features (2,) of float32, targets () of float32", result.stdout)

    def test_two_arrays(self):
        images = self.file("images", bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3)) + bytes(6))
        labels = self.file("labels.npy", npy("<i8", "(2,)", struct.pack("<2q", 7, 8)))
        result = self.pack(images, labels, self.file("out"))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("2 samples, features (1, 3) of uint8, targets () of int64", result.stdout)

    def test_mistakes_are_named_and_leave_nothing(self):
        array = self.file("array.npy", npy("<f4", "(3,)", struct.pack("<3f", 1, 2, 3)))
        short = self.file("short.npy", npy("<f4", "(2,)", struct.pack("<2f", 1, 2)))
        text = self.file("text.csv", b"1,2\n3,word\n")
        out, none = self.file("out"), self.file("none")
        for arguments, code, words in (
            ((none, out), 1, "not found"),
            ((none, array, out), 1, "none is neither an .npy nor an IDX file"),
            ((text, out), 1, "line 2, column 2: 'word' is no finite number"),
            ((str(DIGITS), out, "--target", "weight"), 1, "has no column 'weight'"),
            ((array, out), 2, "give the file of its targets, too: everyo pack FEATURES TARGETS OUT"),
            ((array, short, out), 1, "features (3,) and targets (2,) must have the same number of samples"),
            ((array, text, out), 1, "text.csv is neither an .npy nor an IDX file"),
            ((str(DIGITS), self.folder.name), 1, "it is a directory"),
            ((str(DIGITS),), 2, "1 files are given; everyo pack takes TABLE.csv OUT or FEATURES TARGETS OUT"),
            ((array, array, array, out), 2, "4 files are given"),
            ((array, array, out, "--target", "0"), 2, "--target is of a table; FEATURES TARGETS OUT have none"),
            ((array, array, out, "--target-type", "int64"), 2, "--target-type is of a table; FEATURES TARGETS OUT have none"),
            ((array, array, out, "--delimiter", "comma"), 2, "--delimiter is of a table; FEATURES TARGETS OUT have none"),
        ):
            result = self.pack(*arguments)
            self.assertEqual((result.returncode, result.stdout), (code, ""), (arguments, result.stderr))
            self.assertIn(words, result.stderr, arguments)
            self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()

"""Training on data of one's own: CSV, and pairs of NPY and IDX files."""

import pathlib
import random
import struct
import tempfile
import unittest

from command import last_json, run, usage_of

ROWS, CLASSES = 200, 3


def points():
    """Rows of 16 bytes, a 4 x 4 image whose brightest row says the class, and their labels."""
    draw = random.Random(5)
    labels = [draw.randrange(CLASSES) for _ in range(ROWS)]
    images = [bytes(draw.randrange(200, 256) if pixel // 4 == label else draw.randrange(60) for pixel in range(16)) for label in labels]
    return images, labels


def write_idx(path, kind, sizes, content):
    path.write_bytes(struct.pack(">HBB", 0, kind, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes) + content)


def write_npy(path, descr, shape, content):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)


class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        images, labels = points()
        write_idx(cls.folder / "train-images-idx3-ubyte", 8, (ROWS, 4, 4), b"".join(images))
        write_idx(cls.folder / "train-labels-idx1-ubyte", 8, (ROWS,), bytes(labels))
        write_npy(cls.folder / "x.npy", "|u1", (ROWS, 4, 4), b"".join(images))
        write_npy(cls.folder / "y.npy", "<i8", (ROWS,), struct.pack(f"<{ROWS}q", *labels))
        header = ",".join(["class", *(f"p{i}" for i in range(16))])
        lines = [",".join([str(label), *(str(pixel / 255) for pixel in image)]) for image, label in zip(images, labels)]
        (cls.folder / "table.csv").write_text("\n".join([header, *lines]) + "\n")
        assert run("pack", cls.folder / "table.csv", cls.folder / "rows.pack", "--target", "class").returncode == 0
        cls.sources = {
            "packed": ("--data", cls.folder / "rows.pack"),
            "idx": ("--data", cls.folder / "train-images-idx3-ubyte", "--labels", cls.folder / "train-labels-idx1-ubyte"),
            "npy": ("--data", cls.folder / "x.npy", "--labels", cls.folder / "y.npy"),
            "csv": ("--data", cls.folder / "table.csv", "--target", "class"),
        }

    def test_each_kind_of_file_gives_the_same_run(self):
        digests = set()
        for name, source in self.sources.items():
            out = self.folder / name
            trained = run("train", *source, "--epochs", "10", "--batch", "16", "--out", out, "--json")
            self.assertEqual(trained.returncode, 0, trained.stderr)
            self.assertIn("160 samples", trained.stdout)  # a fifth is held out
            self.assertGreater(last_json(trained)["test_accuracy"], 0.9)  # chance is a third
            digests.add(last_json(trained)["digest"])
            evaluated = run("evaluate", out, "--json")
            self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
            self.assertIn("held-out accuracy", evaluated.stdout)
            self.assertEqual(last_json(evaluated)["accuracy"], last_json(trained)["test_accuracy"])
            self.assertEqual(last_json(evaluated)["samples"], 40)
            self.assertEqual(len(last_json(evaluated)["confusion"]), CLASSES)
        self.assertEqual(len(digests), 1)
        other = run("evaluate", self.folder / "idx", *self.sources["csv"], "--json")
        self.assertEqual(last_json(other)["samples"], ROWS)  # another file than the run's: all of it
        self.assertNotIn("held-out", other.stdout)
        resumed = run("train", "--resume", "--epochs", "11", "--out", self.folder / "npy", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_images_suit_the_cnn(self):
        result = run("train", "--model", "cnn", *self.sources["idx"], "--epochs", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("160 samples", result.stdout)

    def test_options_that_do_not_go_together(self):
        for arguments, words in (
            (self.sources["npy"][:2], ("x.npy needs --labels",)),
            (self.sources["idx"][:2], ("needs --labels",)),
            ((*self.sources["csv"][:2], "--labels", "y.npy"), ("--labels goes with .npy and IDX files",)),
            ((*self.sources["packed"], "--target", "class"), ("--target names a column of a .csv file",)),
            (("--labels", "y.npy"), ("--data digits has its labels inside",)),
            (("--target", "class"), ("--target names a column of a .csv file",)),
            (("--data", "imagenet"), ("--data", "'imagenet' is unknown", ".csv")),
        ):
            with self.subTest(arguments):
                message = usage_of("train", *arguments)
                for word in words:
                    self.assertIn(word, message)

    def test_files_that_cannot_be_trained_on(self):
        def failure_of(*source):
            result = run("train", *source)
            self.assertEqual(result.returncode, 1, result)
            return result.stderr

        write = lambda name, text: (self.folder / name).write_text(text)
        write("gaps.csv", "1,0\n2,1\n3,1000000000000\n")
        self.assertIn("label 1000000000000 in row 2 of 3", failure_of("--data", self.folder / "gaps.csv"))
        write("negative.csv", "1,0\n2,-1\n3,1\n")
        self.assertIn("label -1 in row 1 of 3", failure_of("--data", self.folder / "negative.csv"))
        write("parts.csv", "1,0.5\n2,1\n")
        self.assertIn("no whole number", failure_of("--data", self.folder / "parts.csv"))
        write("one.csv", "1,0\n")
        self.assertIn("too few to hold any out", failure_of("--data", self.folder / "one.csv"))
        self.assertIn("no column 'clas'", failure_of("--data", self.folder / "table.csv", "--target", "clas"))
        self.assertIn("gone.csv", failure_of("--data", self.folder / "gone.csv"))
        content = bytearray((self.folder / "rows.pack").read_bytes())
        content[300] ^= 1
        (self.folder / "changed.pack").write_bytes(content)
        self.assertIn("changed.pack", failure_of("--data", self.folder / "changed.pack"))
        write_npy(self.folder / "floats.npy", "<f4", (ROWS,), bytes(4 * ROWS))
        self.assertIn("labels are float32", failure_of("--data", self.folder / "x.npy", "--labels", self.folder / "floats.npy"))
        write_npy(self.folder / "fewer.npy", "<i8", (ROWS - 1,), bytes(8 * (ROWS - 1)))
        self.assertIn("same number of samples", failure_of("--data", self.folder / "x.npy", "--labels", self.folder / "fewer.npy"))
        (self.folder / "short.npy").write_bytes((self.folder / "x.npy").read_bytes()[:-1])
        self.assertIn("short.npy", failure_of("--data", self.folder / "short.npy", "--labels", self.folder / "y.npy"))

    def test_a_model_of_other_rows_is_refused(self):
        self.assertEqual(run("train", "--epochs", "1", "--out", self.folder / "digits").returncode, 0)
        result = run("evaluate", self.folder / "digits", *self.sources["csv"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("64 inputs and 10 classes, and the data has 16 and 3", result.stderr)


if __name__ == "__main__":
    unittest.main()

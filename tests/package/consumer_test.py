"""An install tree works for a project outside: find_package(everyo), with the compiler of the build and the other one."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ["EVERYO_BINARY_DIR"])
OTHERS = ("g++", "clang++-14")


def run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", self.prefix)

    def test_is_found_built_and_run_with_each_compiler(self):
        compilers = dict.fromkeys([os.environ["EVERYO_CXX"], *filter(shutil.which, OTHERS)])
        for number, compiler in enumerate(compilers):
            with self.subTest(compiler):
                build = self.folder / f"build{number}"
                run("cmake", "-S", SOURCE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={compiler}")
                run("cmake", "--build", build)
                self.assertIn("all holds", run(build / "consumer"))

    def test_names_no_path_of_the_build(self):
        for path in self.prefix.rglob("*.cmake"):
            self.assertNotIn(str(BUILD), path.read_text(), path)

    def test_of_another_version_is_refused(self):
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\nfind_package(everyo 99 CONFIG REQUIRED)\n"
        )
        with self.assertRaisesRegex(AssertionError, "everyo"):
            run("cmake", "-S", self.folder, "-B", self.folder / "other", f"-DCMAKE_PREFIX_PATH={self.prefix}")


if __name__ == "__main__":
    unittest.main()

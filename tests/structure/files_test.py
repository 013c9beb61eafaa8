"""Sizes and contents of the source files: budgets, words that have no place, paths of somebody's machine."""

import re
import unittest

import tree

WARN, FAIL = 400, 600  # lines of a source file
FOLDERS = ("src", "include", "cli", "tests", "bench", "examples", "python", "scripts")


def too_long(path, text):
    """None, "warn" or "fail"."""
    lines = text.count("\n")
    return "fail" if lines > FAIL else "warn" if lines > WARN else None


# The library throws; it never ends the program and never prints (the log goes to the user's sink).
ENDS_OR_PRINTS = re.compile(
    r"\b(std::)?(abort|exit|_exit|quick_exit|terminate|printf|fprintf|puts|fputs|perror)\s*\(|std::c(out|err|log)\b|<iostream>"
    r"|fmt::print\b|\bassert\s*\("
)
# A forked child may not return into its parent's program: here it ends.
ENDS_CHILDREN = "src/parallel/children.cpp"
DISPATCH = re.compile(r"\bHWY_DYNAMIC_DISPATCH\s*\(")
# Vendor names that a public header may not show.
VENDORS = re.compile(r"\b(dnnl\w*|omp_\w+|gomp\w*|nlohmann|hwy|fmt|CLI)\b|\bHWY_\w+")
# Written in pieces, so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "fa" + "rm", "t" + "mp")) + r")/[a-z]")


def lines_with(pattern, path, text):
    return [f"{path}:{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


class SourceFiles(unittest.TestCase):
    def test_are_short(self):
        sizes = {path: too_long(path, tree.read(path)) for path in tree.files(*FOLDERS)}
        for path in (path for path, size in sizes.items() if size == "warn"):
            print(f"warning: {path} has over {WARN} lines; could it be two files with clear names?")
        self.assertFalse([path for path, size in sizes.items() if size == "fail"], f"over {FAIL} lines")

    def test_lengths_are_told_apart(self):
        self.assertEqual([too_long("a.cpp", "x\n" * n) for n in (400, 401, 600, 601)], [None, "warn", "warn", "fail"])

    def test_of_the_library_neither_end_the_program_nor_print(self):
        found = []
        for path in tree.files("src", "include", suffixes=(".cpp", ".h")):
            text = tree.without_comments(tree.read(path))
            if path == ENDS_CHILDREN:
                text = text.replace("_exit(status)", "")
            found += lines_with(ENDS_OR_PRINTS, path, text)
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_words_that_end_or_print_are_found(self):
        for bad in ("  std::abort();", "exit (1);", "std::cerr << x;", "#include <iostream>", 'fmt::print("x");', "assert(n > 0);"):
            self.assertEqual(lines_with(ENDS_OR_PRINTS, "f", bad), [f"f:1: {bad.strip()}"])
        for fine in ("on_exit_hook(1);", "static_assert(sizeof(int) == 4);", "// prints nothing: std::cout", "row.abort_after = 1;"):
            self.assertEqual(lines_with(ENDS_OR_PRINTS, "f", tree.without_comments(fine)), [], fine)

    def test_that_dispatch_settle_the_instruction_set_first(self):
        found = [path for path in tree.files("src", suffixes=(".cpp",))
                 if DISPATCH.search(text := tree.without_comments(tree.read(path))) and "use_isa()" not in text]
        self.assertFalse(found, "no call of use_isa() (kernels/isa.h) in a file that dispatches")

    def test_that_are_public_headers_show_no_vendor(self):
        found = []
        for path in tree.files("include", suffixes=(".h",)):
            found += lines_with(VENDORS, path, tree.without_comments(tree.read(path)))
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_vendors_are_found(self):
        for bad in ("dnnl::memory m;", "#include <fmt/format.h>", "nlohmann::json j;", "omp_get_max_threads();"):
            self.assertTrue(lines_with(VENDORS, "f", bad), bad)
        self.assertFalse(lines_with(VENDORS, "f", "Format format; // fmt"[:14]))


class EveryFile(unittest.TestCase):
    def test_names_no_path_of_a_machine(self):
        found = []
        for path in tree.tracked():
            found += lines_with(MACHINE_PATH, path, tree.read(path))
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_paths_of_a_machine_are_found(self):
        self.assertTrue(lines_with(MACHINE_PATH, "f", "see /ho" + "me/somebody/everyo"))
        for fine in ("$TMPDIR/x", "docs/work/x", "https://example.org/work/x"):
            self.assertFalse(lines_with(MACHINE_PATH, "f", fine), fine)


if __name__ == "__main__":
    unittest.main()

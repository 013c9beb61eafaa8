"""tests/cases.md lists every handed case, and the cases of the issues that are built have their test."""

import re
import unittest

import tree

BUILT = ("3 core", "4 images", "5 Python", "6 files", "8 precision", "9 data parallel", "10 ONNX")
ROW = re.compile(r"^\| ([A-Z]\d\d) \| .+ \| ([^|]+) \| ([^|]*)\|$", re.M)
HOME = re.compile(r"^(\d+ \w[\w ]*|waits for \w[\w ]*)$")


def faults(listing, text_of):
    """What is wrong in the list: `text_of(path)` is the text of a test, or None."""
    found = []
    rows = [(case, home.strip(), test.strip()) for case, home, test in ROW.findall(listing)]
    cases = [case for case, _, _ in rows]
    found += [f"{case} is listed twice" for case in sorted(set(cases)) if cases.count(case) > 1]
    for case, home, test in rows:
        if not HOME.match(home):
            found.append(f"{case}: '{home}' is neither an issue nor what it waits for")
        if home in BUILT and not test:
            found.append(f"{case} belongs to '{home}', which is built, and has no test")
        if test and not re.search(rf"(\b|_){case}_?[A-Z]", text_of(test) or ""):
            found.append(f"{case}: {test} has no test whose name begins with {case}")
    return found


def text_of(test):
    path = f"tests/{test}"
    return tree.read(path) if (tree.ROOT / path).is_file() else None


class Cases(unittest.TestCase):
    def test_have_a_home_and_their_tests(self):
        listing = tree.read("tests/cases.md")
        rows = [line for line in listing.splitlines() if line.startswith("|") and not line.startswith(("| case ", "| --- "))]
        self.assertEqual(len(ROW.findall(listing)), len(rows), "rows that are not read")
        self.assertFalse(faults(listing, text_of), "\n" + "\n".join(faults(listing, text_of)))

    def test_are_all_listed(self):
        handed = tree.ROOT.parent / "shared" / "cases"
        if not handed.is_dir():
            print("not compared: the handed cases are not beside this checkout")
            return
        ids = {row for path in handed.glob("*.md") for row in re.findall(r"^\| ([A-Z]\d\d) ", path.read_text(), re.M)}
        self.assertEqual(ids - {case for case, _, _ in ROW.findall(tree.read("tests/cases.md"))}, set())

    def test_faults_of_the_list_are_found(self):
        row = "| N03 | loss 0 | 3 core | ops/a_test.cpp |"
        has_test = lambda test: "TEST(Numerics, N03_AllIgnored) {"
        self.assertEqual(faults(row, has_test), [])
        self.assertIn("N03 is listed twice", faults(row + "\n" + row, has_test))
        self.assertEqual(len(faults(row, lambda test: "TEST(Numerics, N031Other) {")), 1)
        self.assertEqual(len(faults(row, lambda test: None)), 1)
        self.assertEqual(len(faults("| N03 | loss 0 | 3 core | |", has_test)), 1)
        self.assertEqual(len(faults("| N03 | loss 0 | soon | |", has_test)), 1)


if __name__ == "__main__":
    unittest.main()

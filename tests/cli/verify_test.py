"""The checks of the library's promises."""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

from command import last_json, run

SOURCE = pathlib.Path(os.environ.get("EVERYO_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "tests" / "examples"))
from examples_test import agree  # noqa: E402  the rule for examples: the same words, numbers to two percent

ROUNDING = re.compile(r"\b\d+(\.\d+)?e-0[78]\b")


class Verify(unittest.TestCase):
    def test_all_pass_and_every_sabotage_is_found(self):
        result = run("verify", "--prove", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = last_json(result)
        self.assertLessEqual({f"P{n}" for n in range(1, 15) if n != 3} | {"P3a", "P3b"}, {row["requirement"] for row in rows})
        self.assertLessEqual({f"D{n}" for n in (1, 2, 3, 4, 6, 8, 10)}, {row["requirement"] for row in rows})
        keys = {"requirement", "what", "columns", "reference", "measured", "tolerance", "pass", "sabotage", "sabotaged_pass"}
        for row in rows:
            self.assertEqual(set(row) - {"remark"}, keys)
            self.assertIs(row["pass"], True, row)
            self.assertIs(row["sabotaged_pass"], False, row)

    def test_without_prove_no_sabotage_runs(self):
        rows = last_json(run("verify", "precision", "--json"))
        self.assertTrue(rows)
        self.assertEqual({row["sabotaged_pass"] for row in rows}, {None})

    def test_a_figure_that_is_missed_fails(self):
        figures = json.loads((SOURCE / "data" / "verify" / "precision.json").read_text())
        figures["deep_zero_in_float16"]["reference"] = 79
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "verify").mkdir()
            (pathlib.Path(folder) / "verify" / "precision.json").write_text(json.dumps(figures))
            result = run("verify", "precision", "--json", env={**os.environ, "EVERYO_DATA": folder})
        self.assertEqual(result.returncode, 1)
        self.assertEqual([row["requirement"] for row in last_json(result) if not row["pass"]], ["P2"])
        self.assertIn("FAIL", result.stdout)

    def test_the_pages_have_these_tables(self):
        for topic, page, least in (("precision", "precision.md", 100), ("parallel", "data_parallel.md", 40)):
            with self.subTest(topic):
                text = (SOURCE / "docs" / page).read_text()
                heading = f"<!-- everyo verify {topic} --markdown -->"
                told = re.search(heading + r"\n(.*)\n<!-- end -->", text, re.S).group(1).strip().splitlines()
                printed = run("verify", topic, "--markdown").stdout.strip().splitlines()
                self.assertGreater(len(printed), least)
                self.assertEqual(len(told), len(printed), f"print them anew with: everyo verify {topic} --markdown")
                if topic == "parallel":  # what is rounding, the checks bound; another instruction set has another
                    told, printed = ([ROUNDING.sub("rounding", line) for line in lines] for lines in (told, printed))
                for wanted, line in zip(told, printed):
                    self.assertTrue(agree(wanted, line), f"the page has {wanted!r}, printed is {line!r}")

    def test_times_are_told_and_not_judged(self):
        rows = last_json(run("verify", "parallel", "--json"))
        self.assertTrue(all("exposed" in row["remark"] for row in rows if row["requirement"] == "D10"))

    def test_the_page_on_precision_lists_the_ops_of_each_class(self):
        page = (SOURCE / "docs" / "precision.md").read_text()
        printed = run("verify", "precision").stdout
        classes = re.findall(r"ops of class (\w+) that do not give (?!float32 for a half).*?meaning +([^\n]+)", printed, re.S)
        self.assertEqual([name for name, _ in classes], ["low", "follow", "keep32", "promote"])
        for name, ops in classes:
            self.assertRegex(page, rf"\| {name} \|.*\| {re.escape(ops)} \|")


if __name__ == "__main__":
    unittest.main()

"""The pages say what is so: links lead somewhere, and the words of docs/errors.md stand in the code."""

import pathlib
import re
import unittest

import tree

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
QUOTED = re.compile(r'"([^"\n]+)"')


def dead_links(path, text, exists):
    folder = pathlib.PurePosixPath(path).parent
    links = (link for link in LINK.findall(text) if "://" not in link)
    return [f"{path}: {link}" for link in links if not exists(folder / link)]


class Pages(unittest.TestCase):
    def test_have_no_dead_links(self):
        pages = [path for path in tree.tracked() if path.endswith(".md")]
        self.assertIn("README.md", pages)
        found = [line for path in pages for line in dead_links(path, tree.read(path), lambda link: (tree.ROOT / link).exists())]
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_dead_links_are_found(self):
        text = "[a](there.md) [b](gone.md#part) [c](https://example.org/gone)"
        self.assertEqual(dead_links("docs/page.md", text, lambda link: link.name == "there.md"), ["docs/page.md: gone.md"])

    def test_of_errors_quote_the_code(self):
        rows = "\n".join(line for line in tree.read("docs/errors.md").splitlines() if line.startswith("| `"))
        words = QUOTED.findall(rows)
        self.assertGreater(len(words), 10)
        code = "\n".join(tree.read(path) for path in tree.files("src", suffixes=(".cpp", ".h")))
        self.assertEqual([word for word in words if word not in code], [])


if __name__ == "__main__":
    unittest.main()

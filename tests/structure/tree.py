"""What the tests of the tree's structure share: where things are, and reading them."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(os.environ.get("EVERYO_SOURCE_DIR", pathlib.Path(__file__).parents[2])).resolve()
BUILD = pathlib.Path(os.environ.get("EVERYO_BINARY_DIR", ROOT / "build")).resolve()

CODE = (".cpp", ".h", ".py")


def files(*folders, suffixes=CODE):
    """Paths below the folders, relative to the root, in order; build trees and caches left out."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT)
            hidden = any(part.startswith((".", "build", "__pycache__")) for part in relative.parts)
            if path.is_file() and not hidden and path.suffix in suffixes:
                found.append(str(relative))
    return found


def tracked():
    """Every text file the project ships: git's list, or a walk where there is no git."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
    return files(".", suffixes=(*CODE, ".md", ".txt", ".cmake", ".json", ""))


def read(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def without_comments(text):
    """C++ text with its comments blanked out, lines kept. Strings are kept, and looked over for comment marks."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    keep = lambda match: match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])
    return token.sub(keep, text)


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

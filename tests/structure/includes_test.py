"""Includes point down only: docs/architecture.md draws the layers, this holds the tree to them."""

import pathlib
import re
import unittest

import tree

# From the bottom up. A room may use rooms of the layers below it, and itself; rooms of one layer do not know each other.
LAYERS = (
    ("base",),
    ("tensor",),
    ("kernels",),
    ("autograd",),
    ("ops",),
    ("nn", "optim", "data"),
    ("precision", "memory", "parallel", "onnx", "io", "profile"),
    ("train", "verify", "plan"),
    ("cli", "python", "examples", "bench"),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

# Public headers whose name is not their room's.
HEADER_ROOMS = {
    **dict.fromkeys(("communicator", "context", "dtype", "error", "events", "export", "half", "isa", "logging", "random", "ref",
                     "shape", "state"), "base"),
    **dict.fromkeys(("memory", "storage"), "tensor"),
    **dict.fromkeys(("attributes", "onnx_graph", "op"), "autograd"),
    **dict.fromkeys(("window",), "ops"),
    **dict.fromkeys(("archive", "checkpoint", "model_file"), "io"),
    **dict.fromkeys(("data_parallel", "virtual_shards"), "parallel"),
    **dict.fromkeys(("accumulation", "early_stopping", "step_digest"), "train"),
}

# Libraries and instruction sets that only kernels/ may see, and what bench/ calls directly beside them.
ONNX_ONLY = re.compile(r"^(google/protobuf|onnx_file\.pb|onnxruntime)")
KERNELS_ONLY = re.compile(r"^(dnnl|oneapi/|hwy/|omp\.h|immintrin|x86intrin|arm_neon)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of_file(path):
    """Room of a file of src/, include/everyo/ or a top folder; None for the header of everything."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[0] == "src":
        return parts[1]
    if parts[:2] == ("include", "everyo"):
        name = pathlib.PurePosixPath(path).stem
        return None if name == "everyo" else HEADER_ROOMS.get(name, name if len(parts) == 3 else parts[2])
    return parts[0]


def violations(path, text):
    """Lines of one file that include what its room may not, as `file:line: what is wrong`."""
    room = room_of_file(path)
    if room is None:
        return []
    if room not in LEVEL:
        return [f"{path}:1: '{room}' is no room of LAYERS; put the header into HEADER_ROOMS of includes_test.py"]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        include = INCLUDE.match(line)
        if not include:
            continue
        quote, name = include.groups()
        if KERNELS_ONLY.match(name):
            if room != "kernels" and not (room == "bench" and name.startswith("dnnl")):
                found.append(f"{path}:{number}: includes {name}; only kernels/ may see it")
            continue
        if ONNX_ONLY.match(name):
            if room != "onnx" or path.startswith("include/"):
                found.append(f"{path}:{number}: includes {name}; only src/onnx/ may see it")
            continue
        if quote == "<":
            continue
        if name == "everyo/everyo.h":
            if LEVEL[room] < LEVEL["cli"]:
                found.append(f"{path}:{number}: includes the header of everything; include what is used")
            continue
        if path.startswith(f"{room}/") and (name.startswith(f"{room}/") or (tree.ROOT / room / name).is_file()):
            continue  # a header of a top folder's own: cli/, bench/
        target = room_of_file(f"include/{name}" if name.startswith("everyo/") else f"src/{name}")
        if path.startswith("include/") and not name.startswith("everyo/"):
            found.append(f"{path}:{number}: a public header includes the private {name}")
        elif target not in LEVEL:
            found.append(f"{path}:{number}: {name} belongs to no room; private headers are included as ROOM/name.h")
        elif target != room and LEVEL[target] >= LEVEL[room]:
            found.append(f"{path}:{number}: {room}/ includes {name} of {target}/, which is not below it")
    return found


class Includes(unittest.TestCase):
    def test_point_down_only(self):
        paths = tree.files("src", "include", "cli", "bench", "examples", suffixes=(".cpp", ".h"))
        self.assertGreater(len(paths), 10)
        found = [line for path in paths for line in violations(path, tree.read(path))]
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_each_kind_of_violation_is_found_and_named(self):
        for path, line, words in (
            ("src/tensor/seeded.cpp", '#include "everyo/ops.h"', "src/tensor/seeded.cpp:2: tensor/ includes everyo/ops.h of ops/"),
            ("src/nn/seeded.cpp", '#include "optim/step.h"', "nn/ includes optim/step.h of optim/"),
            ("src/ops/seeded.cpp", '#include "dnnl.hpp"', "only kernels/ may see it"),
            ("src/ops/seeded.cpp", "#include <hwy/highway.h>", "only kernels/ may see it"),
            ("src/io/seeded.cpp", '#include "onnx_file.pb.h"', "only src/onnx/ may see it"),
            ("include/everyo/tensor.h", '#include "tensor/pool.h"', "private tensor/pool.h"),
            ("include/everyo/unheard_of.h", "", "'unheard_of' is no room"),
            ("src/base/seeded.cpp", '#include "everyo/everyo.h"', "header of everything"),
        ):
            found = violations(path, "// seeded\n" + line)
            self.assertEqual(len(found), 1, (path, line, found))
            self.assertIn(words, found[0])

    def test_what_is_allowed_passes(self):
        for path, line in (
            ("src/ops/fine.cpp", '#include "kernels/matmul.h"'),
            ("src/kernels/fine.cpp", "#include <dnnl.hpp>"),
            ("src/io/fine.cpp", '#include "everyo/nn.h"'),
            ("cli/fine.cpp", '#include "everyo/everyo.h"'),
        ):
            self.assertEqual(violations(path, line), [])


if __name__ == "__main__":
    unittest.main()

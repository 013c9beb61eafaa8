"""libeveryo.so as a program that loads it sees it: what it exports, needs, and does at load."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import tree

LIBRARY = tree.BUILD / "libeveryo.so"

# Namespace everyo::v1 and its type information, vtables, guards and thread-local wrappers; C entry points of plug-ins.
EXPORTED = re.compile(r"^(_Z(TI|TS|TV|TW|TH|TT|GV|Th\w*?_)?N[VKRO]*6everyo2v1|everyo_)")
NEEDED = re.compile(
    r"^lib(dnnl\.so\.3|gomp\.so\.1|hwy\.so\.1|fmt\.so\.\d+|crypto\.so\.3|z\.so\.1|stdc\+\+\.so\.6|gcc_s\.so\.1|m\.so\.6|c\.so\.6)$|^ld-linux"
)
THREAD_LOCAL_BYTES = 1024  # so that the library can still be loaded late, into the room the loader reserves


# Functions of the compiler's own run-time library: the start of exception tables, the probe of the processor.
COMPILERS_OWN = ("frame_dummy", "__cpu_indicator_init")
# Those of protobuf-lite and of the messages it generated, which put addresses and counters into place, and those that its
# headers, by <iostream>, give the files that include them.
PROTOBUFS = re.compile(
    r"_GLOBAL__sub_I(\.00101)?_(onnx_file\.pb|arena|arenastring|coded_stream|common|extension_set|generated_enum_util|"
    r"generated_message_util|implicit_weak_message|int128|message_lite|parse_context|repeated_field|repeated_ptr_field|"
    r"structurally_valid|strutil|wire_format_lite|zero_copy_stream|zero_copy_stream_impl|zero_copy_stream_impl_lite)\.cc")


def static_initialisers(library):
    """Names of functions that run when the library is loaded, apart from the compiler's and protobuf's own."""
    section = re.search(r"\.init_array\s+INIT_ARRAY\s+(\w+)\s+\w+\s+(\w+)", tree.output_of("readelf", "-SW", str(library)))
    if not section:
        return []
    begin, size = (int(field, 16) for field in section.groups())
    names = {}
    for line in tree.output_of("nm", str(library)).splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in "tTW":
            names[int(fields[0], 16)] = fields[2]
    found = []
    for line in tree.output_of("readelf", "-rW", str(library)).splitlines():
        fields = line.split()  # offset, info, type, then an address, or a symbol's value and name
        if len(fields) < 4 or not re.fullmatch(r"[0-9a-f]{16}", fields[0]) or not begin <= int(fields[0], 16) < begin + size:
            continue
        found.append(names.get(int(fields[3], 16), f"a function at {fields[3]}") if len(fields) == 4 else fields[4])
    own = {f"_GLOBAL__sub_I_{path.name}" for path in (tree.ROOT / "src/onnx").glob("*.cpp") if "messages.h" in path.read_text()}
    return [name for name in found if name not in COMPILERS_OWN and name not in own and not PROTOBUFS.fullmatch(name)]


def foreign(names):
    return [name for name in names if not EXPORTED.match(name)]


class Library(unittest.TestCase):
    def test_does_nothing_when_it_is_loaded(self):
        self.assertEqual(static_initialisers(LIBRARY), [])

    def test_uses_no_thread_locals_of_other_libraries(self):
        # They would need a place in the room the loader reserves, which a library loaded earlier may have used up.
        relocations = [line.split() for line in tree.output_of("readelf", "-rW", str(LIBRARY)).splitlines() if "TPOFF" in line]
        self.assertTrue(relocations)
        self.assertEqual([fields[4] for fields in relocations if len(fields) > 4 and "@" in fields[4]], [])

    def test_a_static_initialiser_is_found_and_named(self):
        compiler = os.environ.get("EVERYO_CXX", "c++")
        for source, name in (
            ("#include <string>\nstd::string text(std::getenv(\"PATH\"));", "seeded.cpp"),
            ("[[gnu::constructor]] void start() { std::srand(1); }", "start"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder)
                (path / "seeded.cpp").write_text("#include <cstdlib>\n" + source)
                subprocess.run([compiler, "-O2", "-fPIC", "-shared", "seeded.cpp", "-o", "seeded.so"], cwd=path, check=True)
                found = static_initialisers(path / "seeded.so")
            self.assertEqual(len(found), 1, found)
            self.assertIn(name, found[0])

    def test_exports_its_namespace_only(self):
        lines = tree.output_of("nm", "-D", "--defined-only", str(LIBRARY)).splitlines()
        names = [line.split()[-1] for line in lines]
        self.assertGreater(len(names), 20)
        self.assertEqual(foreign(names), [])

    def test_foreign_exports_are_found(self):
        fine = ["_ZN6everyo2v17contextEv", "_ZTIN6everyo2v15ErrorE", "_ZNK6everyo2v16Tensor5shapeEv", "everyo_transport_v1"]
        bad = ["_ZNSt6vectorIN6everyo2v16TensorESaIS2_EED1Ev", "_ZN6everyo7kernels6matmulEv", "_ZN3fmt2v96formatEv", "helper"]
        self.assertEqual(foreign(fine + bad), bad)

    def test_needs_the_known_libraries_only(self):
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", tree.output_of("readelf", "-dW", str(LIBRARY)))
        self.assertIn("libstdc++.so.6", needed)
        self.assertEqual([name for name in needed if not NEEDED.match(name)], [])

    def test_has_few_thread_locals(self):
        segment = re.search(r"^\s+TLS\s+(?:\w+\s+){4}(\w+)", tree.output_of("readelf", "-lW", str(LIBRARY)), re.M)
        self.assertIsNotNone(segment, "the thread's Context is a thread-local")
        self.assertLessEqual(int(segment[1], 16), THREAD_LOCAL_BYTES)


class PublicHeaders(unittest.TestCase):
    def test_each_compiles_alone(self):
        compiler = os.environ.get("EVERYO_CXX", "c++")
        for header in tree.files("include", suffixes=(".h",)):
            with self.subTest(header):
                command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-I", "include", "-x", "c++"]
                run = subprocess.run([*command, header], cwd=tree.ROOT, capture_output=True, text=True, check=False)
                errors = [line for line in run.stderr.splitlines() if "#pragma once in main file" not in line and "error" in line]
                self.assertFalse(errors, run.stderr)
                self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()

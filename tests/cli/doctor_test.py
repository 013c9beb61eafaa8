"""The machine's figures."""

import os
import unittest

from command import last_json, run


class Doctor(unittest.TestCase):
    def test_figures(self):
        result = run("doctor", "--json", "--seconds", "0.01")
        self.assertEqual(result.returncode, 0, result.stderr)
        figures = last_json(result)
        self.assertEqual(set(figures["peak_gflops"]), {"float32", "float64", "float16", "bfloat16"})
        self.assertTrue(all(value > 0 for value in figures["peak_gflops"].values()))
        self.assertGreater(figures["memory_bandwidth_gbs"], 0)
        self.assertGreaterEqual(figures["threads"], 1)
        levels = ("baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "amx")
        self.assertLessEqual(levels.index(figures["isa"]["used"]), levels.index(figures["isa"]["detected"]))
        self.assertEqual(set(figures["versions"]), {"everyo", "onednn", "highway", "compiler"})

    def test_onnx_runtime(self):
        result = run("doctor", "--json", "--seconds", "0.01")
        version = last_json(result)["onnx_runtime"]["version"]
        self.assertRegex(version, r"^1\.\d+\.\d+ \(.*libonnxruntime\.so\.1")
        self.assertIn(f"ONNX Runtime     {version}\n", result.stdout)
        without = {**os.environ, "EVERYO_ONNXRUNTIME": "/nowhere/libonnxruntime.so.1"}
        result = run("doctor", "--json", "--seconds", "0.01", env=without)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(set(last_json(result)["onnx_runtime"]), {"missing"})
        self.assertRegex(result.stdout, r"ONNX Runtime +none: .*pip install onnxruntime.*/nowhere/libonnxruntime\.so\.1")

    def test_caps(self):
        figures = last_json(run("doctor", "--json", "--seconds", "0.01", "--isa", "baseline", "--threads", "1"))
        self.assertEqual(figures["isa"]["used"], "baseline")
        self.assertEqual(figures["threads"], 1)
        figures = last_json(run("--isa", "baseline", "doctor", "--json", "--seconds", "0.01"))
        self.assertEqual(figures["isa"]["used"], "baseline")


if __name__ == "__main__":
    unittest.main()

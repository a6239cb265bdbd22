#!/usr/bin/env python3
"""scripts/gpu_check finds the sources that it compiles, without a GPU and without nvcc."""
import importlib.machinery
import importlib.util
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load(path):
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("gpu_check", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class Sources(unittest.TestCase):
    def test_exist(self):
        build = load(os.path.join(ROOT, "scripts", "gpu_check")).Build("nvcc", "90a")
        sources = build.test_sources + build.shim_sources
        self.assertEqual([source for source in sources if not os.path.exists(os.path.join(ROOT, source))], [])
        for part in ("cuda/kernels/gemm_sm90.cu", "examples/cuda_lab/memory.cpp", "tests/cuda/gemm_test.cpp"):
            self.assertIn(part, sources)


if __name__ == "__main__":
    unittest.main()

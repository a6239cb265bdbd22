#!/usr/bin/env python3
"""The limits of GPUs that reports and comparisons state: scripts/gpu/limits.py."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "bench", "cuda")]
import interface  # noqa: E402
import models  # noqa: E402
import step  # noqa: E402
from gpu import limits, report  # noqa: E402


class Table(unittest.TestCase):
    def test_names_that_drivers_give(self):
        for name, expected in (("NVIDIA H100 80GB HBM3", (989e12, 3.0e12)), ("NVIDIA H200", (989e12, 4.26e12)),
                               ("NVIDIA H100 PCIe", (756e12, 2.0e12)), ("NVIDIA H100 NVL", (835e12, 3.9e12)),
                               ("NVIDIA H200 NVL", (835e12, 4.8e12)), ("NVIDIA A100-SXM4-80GB", (312e12, 2.039e12)),
                               ("NVIDIA A100-SXM4-40GB", (312e12, 1.555e12)),
                               ("NVIDIA A100 80GB PCIe", (312e12, 1.935e12)),
                               ("NVIDIA A100-PCIE-40GB", (312e12, 1.555e12))):
            found = limits.of(name)
            self.assertEqual((found.flops, found.bandwidth()), expected, name)
        for name in ("NVIDIA L40S", "NVIDIA GH100", "none, emulated"):
            self.assertIsNone(limits.of(name), name)

    def test_clocks(self):
        self.assertAlmostEqual(limits.of("NVIDIA H200").clock(), 1829, delta=1)
        self.assertAlmostEqual(limits.of("NVIDIA A100-SXM4-80GB").clock(), 1410, delta=1)
        self.assertAlmostEqual(limits.of("NVIDIA H200").flops_at(1980) / 1e12, 1070, delta=1)
        self.assertEqual(limits.megahertz({"clocks.max.sm": "1980 MHz"}), 1980)
        self.assertIsNone(limits.megahertz({"clocks.max.sm": "[N/A]"}))
        self.assertIsNone(limits.megahertz({}))


class Statements(unittest.TestCase):
    def test_of_a_device(self):
        self.assertEqual(limits.statement("NVIDIA H100 80GB HBM3", 1980),
                         "Limits of the H100: 989 TFLOP/s of dense bf16 at 1829 MHz (1071 at 1980 MHz, the highest "
                         "clock of this GPU); 3.35 TB/s of memory by the data sheet, of which copies reach about 3.0 "
                         "TB/s.")
        self.assertEqual(limits.statement("NVIDIA A100-SXM4-40GB"),
                         "Limits of the A100 40 GB: 312 TFLOP/s of dense bf16 at 1411 MHz; 1.555 TB/s of memory by the "
                         "data sheet.")
        self.assertIn("not known", limits.statement("NVIDIA L40S", 2520))

    def test_shares(self):
        h100 = limits.of("NVIDIA H100 80GB HBM3")
        self.assertAlmostEqual(limits.share(h100, {"tflops": 494.5}), 0.5)
        self.assertAlmostEqual(limits.share(h100, {"gbytes_per_s": 2700}), 0.9)
        self.assertIsNone(limits.share(h100, {}))
        self.assertIsNone(limits.share(None, {"tflops": 494.5}))
        self.assertIn("90% of the limit", interface.line_of({"case": "x", "ms": {}, "of_limit": 0.9}))


class Reports(unittest.TestCase):
    ROWS = [{"case": "gemm", "ms": {"trireme": 1.0}, "tflops": 494.5},
            {"case": "copy", "ms": {"torch": 1.0}, "gbytes_per_s": 2400.0}, {"case": "other", "ms": {}}]

    def text(self, gpu):
        return "\n".join(report.figure_lines(self.ROWS, gpu))

    def test_state_the_limits_of_the_device(self):
        text = self.text({"name": "NVIDIA H200", "clocks.max.sm": "1980 MHz"})
        self.assertIn("Limits of the H200: 989 TFLOP/s of dense bf16 at 1829 MHz (1071 at 1980 MHz", text)
        self.assertIn("| gemm |  | trireme 1 | 494 TFLOP/s | 50% |  |", text)
        self.assertIn("2400 GB/s | 56% |", text)
        self.assertIn("| other |  | not timed |  |  |  |", text)

    def test_leave_out_shares_of_unknown_devices(self):
        text = self.text({"name": "none, emulated"})
        self.assertIn("not known", text)
        self.assertIn("2400 GB/s |  |", text)

    def test_steps(self):
        times = {"trireme": [50.0], "torch.compile": [40.0]}
        row = step.row_of(models.GPT2, times, limits.of("NVIDIA A100-SXM4-80GB").flops)
        flops = models.flops_per_token(models.GPT2) * 16 * 1024
        self.assertAlmostEqual(row["utilisation"]["trireme"], flops / 0.05 / 312e12)
        self.assertNotIn("utilisation", step.row_of(models.GPT2, times, None))
        text = "\n".join(report.figure_lines([row], {"name": "NVIDIA A100-SXM4-80GB"}))
        self.assertIn(f"trireme {flops / 0.05 / 312e12:.1%}; torch.compile", text)


if __name__ == "__main__":
    unittest.main()

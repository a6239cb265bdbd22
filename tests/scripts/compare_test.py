#!/usr/bin/env python3
"""bench/compare.py without measuring: what it refuses, what becomes of stored contests, rows without a second core."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench")
sys.path.insert(0, BENCH)
import compare  # noqa: E402
import goals  # noqa: E402
import kernel_tables  # noqa: E402


def machine(f32_flops):
    return {"cpu": "A Processor", "cores": 2, "features": ["avx2"], "memory_bytes": 2**34, "kernel": "6.1",
            "compiler": "GCC 12.2.0", "threads": 2, "f32_flops": f32_flops, "bf16_flops": 2 * f32_flops,
            "bf16_unit": "vectors", "read_bytes": 30e9, "update_bytes": 50e9}


def contest(flops, faults=0, sides=("Trireme",), command="step_bench --context 64"):
    side = {"command": command, "environment": {}, "round_seconds": [0.02], "steps": 1, "end": {"peak_rss": 1e9},
            "ready": {"flops": flops, "tokens": 768, "parameters": 809856}, "major_faults": 0, "minor_faults": faults}
    return {"date": "2026-01-01", "commit": "abc", "sides": {who: dict(side) for who in sides}}


def of_limit(results):
    return {r["what"]: r["of_limit"] for r in results["rows"]}


class Refused(unittest.TestCase):
    def test_nonsense_in_one_line(self):
        for flags in (["--rounds", "0"], ["--rounds", "x"], ["--threads", "0"], ["--seconds", "-1"],
                      ["--seconds", "nan"], ["--bin", "/nonexistent"], ["--only", "nothing"], ["--readme"]):
            with self.subTest(flags):
                command = [sys.executable, "-B", os.path.join(BENCH, "compare.py"), *flags]
                ended = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(ended.returncode, 64)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
                self.assertIn(flags[0], ended.stderr)

    def test_what_is_absent(self):
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "machine_bench"), "w").close()
            os.chmod(os.path.join(folder, "machine_bench"), 0o755)
            o = argparse.Namespace(readme=False, write=False, name=None, bin=folder, preload="", python=None, llmc=None)
            self.assertIn("has no attention_bench, gemm_bench, kernel_bench;", compare.refusal(o, ["kernels"]))
            self.assertIn("has no step_bench;", compare.refusal(o, ["char"]))
            os.symlink("machine_bench", os.path.join(folder, "step_bench"))
            self.assertIsNone(compare.refusal(o, ["char"]))
            for flag, value in (("python", "/nonexistent"), ("python", "/bin/false"), ("llmc", folder)):
                wrong = argparse.Namespace(**vars(o) | {flag: value})
                self.assertIn(f"[--{flag}] '{value}'", compare.refusal(wrong, ["char"]))

    def test_rounds(self):
        default = argparse.Namespace(rounds=None)
        self.assertEqual([compare.rounds_of(name, default) for name in ("char", "f32-T64")], [9, 5])
        self.assertEqual(compare.rounds_of("char", argparse.Namespace(rounds=3)), 3)


class Stored(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.mkdir(os.path.join(self.folder.name, "results"))
        here, compare.HERE = compare.HERE, self.folder.name
        self.addCleanup(setattr, compare, "HERE", here)

    def results(self, f32_flops, only=None):
        return compare.Results(argparse.Namespace(name="m", write=True, only=only), machine(f32_flops))

    def test_a_contest_keeps_its_machine(self):
        first = self.results(200e9)
        for name in ("f32-T64", "char"):
            first.add(name, contest(1e9), machine(220e9) | {"read_bytes": 1e9})
        before = of_limit(first.all)
        self.assertNotIn("Measured apart", goals.table(first.all))

        again = self.results(100e9, ["char"])
        again.add("char", contest(1e9), machine(110e9))
        after = of_limit(again.all)
        kept, measured = "GPT-2 124M step, f32, B=4 T=64", "small character model, step, f32"
        self.assertEqual(after[kept], before[kept])
        self.assertGreater(after[measured], before[measured])
        table = goals.table(again.all)
        self.assertIn("2 threads: 110 GFLOP/s in f32", table)
        self.assertIn("2 threads: 220 GFLOP/s in f32, 440 in bf16 (vectors); 30.0 GB/s read", table)
        self.assertEqual(table.count("Measured apart, 2026-01-01, commit abc: "), 1)

    def test_the_largest_group_heads_the_table(self):
        contests = {name: contest(1e9) | {"machine": machine(2e11)} for name in ("f32-T64", "f32-T256", "char")}
        contests["char"] = contest(1e9) | {"machine": machine(1e11) | {"kernel": "6.2"}, "date": "2026-01-02"}
        lines = goals.group_lines(contests).split("\n\n")
        self.assertEqual(len(lines), 3)
        self.assertIn("2026-01-01, commit abc, 2 threads: 200 GFLOP/s", lines[1])
        self.assertIn("apart, 2026-01-02, commit abc, on A Processor, 2 cores, 16 GiB, avx2; Linux 6.2;", lines[2])
        self.assertIn(": char; 2 threads: 100 GFLOP/s", lines[2])

    def test_page_faults_of_meshes(self):
        ranks = contest(1e9, sides=("Trireme dp=2", "Trireme one rank", "PyTorch"))
        contests = {"char": contest(1e9), "ranks-f32": ranks}
        self.assertEqual(goals.fault_rows(contests)[0]["ours"], "0 (in each of 3 runs)")
        ranks["sides"]["Trireme dp=2"]["minor_faults"] = 70
        self.assertEqual(goals.fault_rows(contests)[0]["ours"], "70 (ranks-f32 dp=2)")
        self.assertFalse(goals.fault_rows(contests)[0]["met"])

    def test_rows_for_the_readme(self):
        results = self.results(200e9)
        for name in ("f32-T64", "f32-T256", "char"):
            results.add(name, contest(1e9), machine(220e9))
        lines = goals.summary(results.all).splitlines()
        self.assertEqual(lines[0], "A Processor, 2 cores, 2 threads, 2026-01-01, commit abc:")
        self.assertEqual([line.split(" | ")[0] for line in lines[4:]],
                         ["| GPT-2 124M step, f32, B=4 T=256",
                          "| GPT-2 124M step, f32, B=4 T=256: peak memory of the process",
                          "| small character model, step, f32"])
        readme = os.path.join(self.folder.name, "README.md")
        compare.write(readme, "before\n<!-- performance: begin -->\nold\n<!-- performance: end -->\nafter\n")
        results.into_readme(readme)
        with open(readme, encoding="utf-8") as file:
            self.assertEqual(file.read(), "before\n<!-- performance: begin -->\n\n" + "\n".join(lines)
                             + "\n\n<!-- performance: end -->\nafter\n")


class Written(unittest.TestCase):
    """README and the pages in bench/results say what the stored figures say."""

    def test_readme_and_page(self):
        base = os.path.join(BENCH, "results", "cpu_amd_epyc_2_cores")
        with open(base + ".json", encoding="utf-8") as file:
            results = json.load(file)
        with open(base + ".md", encoding="utf-8") as file:
            self.assertEqual(file.read(), goals.page(results))
        with open(os.path.join(os.path.dirname(BENCH), "README.md"), encoding="utf-8") as file:
            self.assertIn(goals.summary(results), file.read(), "bench/compare.py --write --readme writes these rows")


def products(*rows, threads=2):
    names = ["ours", "theirs"]
    header = ["model", "form", "M x N x K"] + [f"{n}, {t}" for t in ("1 thread", f"{threads} threads") for n in names]
    lines = ["### Products", "", f"| {' | '.join(header)} |", "| --- |"]
    for model, *speeds in rows:
        lines.append(f"| {model} | nn | 8 x 8 x 8 | {' | '.join(f'{each} (50%)' for each in speeds)} |")
    return [*lines, ""]


class MissingCore(unittest.TestCase):
    good, half, slow = ("char", 100, 80, 190, 150), ("char", 100, 80, 190, 81), ("char", 100, 80, 105, 81)
    other = ("gpt2", 100, 80, 190, 150)

    def settle(self, table, *answers):
        asked, answers = [], iter(answers)

        def measure(model):
            asked.append(model)
            return next(answers)
        return kernel_tables.with_slow_models_again(table, measure), asked

    def test_good_tables_stay(self):
        for table in (products(self.good, self.half, self.other), products(self.slow, threads=4)):
            self.assertEqual(self.settle(table), (table, []))

    def test_measured_again(self):
        table = products(self.slow, self.good, self.other)
        settled, asked = self.settle(table, products(self.good, self.half))
        self.assertEqual((settled, asked), (products(self.good, self.half, self.other), ["char"]))

    def test_remark(self):
        slow = products(self.slow, self.other)
        settled, asked = self.settle(slow, products(self.slow), products(self.slow))
        self.assertEqual(asked, ["char", "char"])
        self.assertEqual(settled[:2] + settled[4:], slow)
        self.assertIn("for char nn 8 x 8 x 8.", settled[2])

    def test_all_tables(self):
        asked = []

        def run(*flags):
            asked.append(" ".join(flags))
            return products() if flags[0] != "kernel_bench" else ["### Kernels bound by memory: GB/s", "", "| k |", ""]
        lines = kernel_tables.tables(run, 2)
        self.assertEqual(asked, [f"{p} --dtype {d} --threads 1,2" for p in ("gemm_bench", "attention_bench")
                                 for d in ("f32", "bf16")] + ["kernel_bench 1", "kernel_bench 2"])
        self.assertIn("### Kernels bound by memory, 1 thread: GB/s", lines)
        self.assertIn("### Kernels bound by memory, 2 threads: GB/s", lines)


if __name__ == "__main__":
    unittest.main()

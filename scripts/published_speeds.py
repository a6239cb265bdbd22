#!/usr/bin/env python3
"""Compares the planner with published speeds of training (bench/published).

  scripts/published_speeds.py                    with the efficiencies of examples/machines
  scripts/published_speeds.py --fit              each table's efficiencies are fitted to every other row of it
  scripts/published_speeds.py --table NAME ...   some tables alone

Prints every row: how much longer the predicted step is than the published one, and the parts of the predicted step. A
fitted table is judged by the rows that were not used. The fitted efficiencies are three, of products, attention and
elementwise kernels: they stand for the kernels and the framework that were measured, which are not ours. That of copies
stays, as they are the same everywhere.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

top = pathlib.Path(__file__).resolve().parent.parent
published = top / "bench/published"
fitted_names = ("products", "attention", "elementwise")


class Table:
    """The rows of a table, and what plan predicts for them."""

    def __init__(self, name, common, rows, folder):
        self.name, self.rows, self.unit = name, rows, common["unit"]
        self.arguments = common["arguments"].split()
        self.machine = json.loads((top / f"examples/machines/{common['machine']}.json").read_text())
        self.machine["device"] |= common.get("device", {})
        self.machine["device"]["memory_gb"] = 1e5  # speeds are compared, not memory
        self.path = folder / f"{name}.json"

    def efficiency(self):
        return [self.machine["device"]["efficiency"][name] for name in fitted_names]

    def predict(self, row):
        arguments = ["--machine", self.path, "--dtype", "bf16", "--json", *self.arguments, *row["arguments"].split()]
        run = subprocess.run([top / "build/bin/plan", *arguments], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"plan {' '.join(map(str, arguments))}\n{run.stderr}{run.stdout}")
        plan = json.loads(run.stdout)
        return plan["choices"][0] | {"flops_per_sample": plan["flops_per_sample"]}

    def predictions(self, rows, efficiency):
        self.machine["device"]["efficiency"] |= dict(zip(fitted_names, efficiency))
        self.path.write_text(json.dumps(self.machine))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(self.predict, rows))

    def published_seconds(self, row, choice):
        """Of a step."""
        ranks = math.prod(int(axis.split("=")[1]) for axis in choice["mesh"].split(",") if not axis.startswith("ep"))
        if self.unit == "seconds":
            return float(row["published"])
        if self.unit == "tokens per second and GPU":
            return choice["step_seconds"] * choice["targets_per_second"] / (float(row["published"]) * ranks)
        return choice["flops_per_sample"] * choice["global_batch"] / (1e12 * float(row["published"]) * ranks)

    def residual(self, row, choice):
        return math.log(choice["step_seconds"] / self.published_seconds(row, choice))

    def fitted(self, rows):
        """Efficiencies of at most 1 with the least squares of residuals. By Gauss and Newton on their logarithms; the
        slope of a logarithm of time by that of an efficiency is, nearly, the part of the step that it is of."""
        efficiency = self.efficiency()
        for _ in range(8):
            choices = self.predictions(rows, efficiency)
            residuals = [self.residual(row, choice) for row, choice in zip(rows, choices)]
            slopes = [[-share(choice, name) for choice in choices] for name in fitted_names]
            a = [[dot(slopes[i], slopes[j]) + 1e-3 * len(rows) * (i == j) for j in range(3)] for i in range(3)]
            change = solve(a, [-dot(slope, residuals) for slope in slopes])
            better = [min(1, e * math.exp(max(-0.7, min(0.7, c)))) for e, c in zip(efficiency, change)]
            if all(abs(b / e - 1) < 0.01 for b, e in zip(better, efficiency)):
                break
            efficiency = better
        return efficiency

    def compare(self, fit):
        efficiency = self.fitted(self.rows[::2]) if fit else self.efficiency()
        errors = []
        for place, (row, choice) in enumerate(zip(self.rows, self.predictions(self.rows, efficiency))):
            errors.append(math.exp(self.residual(row, choice)) - 1)
            shares = [share(choice, name) for name in (*fitted_names, "copies", "optimizer")]
            parts = "  ".join(f"{100 * part:3.0f}" for part in (*shares, 1 - sum(shares)))
            use = "" if not fit else "f " if place % 2 == 0 else "h "
            print(f"{use}{row['published']:>7}  step {100 * errors[-1]:+4.0f} %  [{parts}]  {row['arguments']}")
        print(f"{self.name}: {self.unit}; efficiency " + ", ".join(f"{n} {e:.2f}" for n, e in zip(fitted_names, efficiency)))
        print(f"{self.name}: {len(errors)} rows, {summary(errors)}" if not fit else
              f"{self.name}: fitted rows {summary(errors[::2])}; held rows {summary(errors[1::2])}", flush=True)


def share(choice, part):
    return choice["parts_seconds"].get(part, 0) / choice["step_seconds"]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def solve(a, b):
    """x with a x = b, by Gaussian elimination."""
    n = len(b)
    rows = [list(a[i]) + [b[i]] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def summary(errors):
    mean, bias = sum(map(abs, errors)) / len(errors), sum(errors) / len(errors)
    return f"mean {100 * mean:.1f} %, largest {100 * max(map(abs, errors)):.1f} %, bias {100 * bias:+.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit three efficiencies to every other row of a table")
    parser.add_argument("--table", nargs="+", help="these tables alone")
    args = parser.parse_args()
    rows = list(csv.DictReader(line for line in (published / "speeds.csv").open() if not line.startswith("#")))
    print("parts of the predicted step: products, attention, elementwise, copies, optimizer, exposed communication")
    with tempfile.TemporaryDirectory() as folder:
        for name, common in json.loads((published / "tables.json").read_text()).items():
            if not args.table or name in args.table:
                chosen = [row for row in rows if row["table"] == name]
                Table(name, common, chosen, pathlib.Path(folder)).compare(args.fit and len(chosen) > 8)


main()

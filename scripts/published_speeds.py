#!/usr/bin/env python3
"""Compares the planner with published speeds of training (bench/published/speeds.csv).

  scripts/published_speeds.py                    with the efficiencies of examples/machines
  scripts/published_speeds.py --fit              each table's efficiencies are fitted to every other row of it

Prints every row: tokens per second and GPU as published and as predicted, and the parts of the predicted step. A fitted
table is judged by the rows that were not used. The efficiencies are three: of products, attention and memory traffic;
they stand for the kernels and the framework that were measured, which are not ours.
"""
import argparse
import concurrent.futures
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

top = pathlib.Path(__file__).resolve().parent.parent
names = ("products", "attention", "memory")


def read_rows():
    lines = [line for line in (top / "bench/published/speeds.csv").open() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def machine_file(folder, name, efficiency):
    machine = json.loads((top / f"examples/machines/{name}.json").read_text())
    machine["device"]["memory_gb"] = 1e5  # speeds are compared, not memory
    if efficiency:
        machine["device"]["efficiency"] = dict(zip(names, efficiency))
    path = folder / f"{name}.json"
    path.write_text(json.dumps(machine))
    return path, [machine["device"]["efficiency"][name] for name in names]


def predict(row, machine):
    common = ["--vocab", "50368", "--bias", "off", "--dtype", "bf16", "--json"]
    command = [top / "build/bin/plan", "--machine", machine, *common, *row["arguments"].split()]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{run.stderr}{run.stdout}")
    return json.loads(run.stdout)["choices"][0]


def groups(choice):
    """Seconds of products, attention and memory traffic, and the rest."""
    parts = choice["parts_seconds"]
    memory = parts.get("other kernels", 0) + parts.get("optimizer", 0)
    known = [parts.get("products", 0), parts.get("attention", 0), memory]
    return known, choice["step_seconds"] - sum(known)


def published_seconds(row, choice):
    return choice["step_seconds"] * choice["targets_per_second"] / (float(row["tokens"]) * int(row["gpus"]))


def solve(a, b):
    """a x = b, by Gaussian elimination."""
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


def fitted(rows, choices, efficiency):
    """Efficiencies with the least squares of relative errors."""
    scaled = []
    for row, choice in zip(rows, choices):
        known, rest = groups(choice)
        seconds = published_seconds(row, choice)
        scaled.append(([k / seconds for k in known], 1 - rest / seconds))
    a = [[sum(x[i] * x[j] for x, _ in scaled) for j in range(3)] for i in range(3)]
    b = [sum(x[i] * y for x, y in scaled) for i in range(3)]
    return [min(1, max(0.02, e / factor)) for e, factor in zip(efficiency, solve(a, b))]


def summary(errors):
    mean = sum(map(abs, errors)) / len(errors)
    bias = sum(errors) / len(errors)
    return f"mean {100 * mean:.1f} %, largest {100 * max(map(abs, errors)):.1f} %, bias {100 * bias:+.1f} %"


def compare(name, rows, fit, folder):
    efficiency = None
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for turn in range(3 if fit else 1):  # times are not quite proportional: small kernels take what they take
            path, efficiency = machine_file(folder, rows[0]["machine"], efficiency)
            choices = list(pool.map(lambda row, path=path: predict(row, path), rows))
            if fit and turn < 2:
                efficiency = fitted(rows[::2], choices[::2], efficiency)
    errors = []
    for place, (row, choice) in enumerate(zip(rows, choices)):
        seconds = published_seconds(row, choice)
        errors.append(choice["step_seconds"] / seconds - 1)
        known, rest = groups(choice)
        shares = "  ".join(f"{100 * part / choice['step_seconds']:3.0f}" for part in (*known, rest))
        use = "  " if not fit else "f " if place % 2 == 0 else "h "
        print(f"{use}{row['tokens']:>7} published {choice['targets_per_second'] / int(row['gpus']):7.0f} predicted  "
              f"step {100 * errors[-1]:+4.0f} %  [{shares}]  {row['arguments']}")
    print(f"{name}: efficiency " + ", ".join(f"{n} {e:.2f}" for n, e in zip(names, efficiency)))
    if fit:
        print(f"{name}: fitted rows {summary(errors[::2])}")
        print(f"{name}: held rows   {summary(errors[1::2])}")
    else:
        print(f"{name}: {summary(errors)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit three efficiencies to every other row of a table")
    parser.add_argument("--table", help="this table alone")
    args = parser.parse_args()
    tables = {}
    for row in read_rows():
        tables.setdefault(row["table"], []).append(row)
    print("   tokens/s and GPU; parts of the predicted step: products, attention, memory traffic, exposed communication")
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in tables.items():
            if args.table in (None, name):
                compare(name, rows, args.fit, pathlib.Path(folder))


main()

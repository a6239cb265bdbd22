#!/usr/bin/env python3
"""Which kernels a training step spends its time in: train_gpt under Nsight Compute.

  bench/cuda/step_kernels.py --program build-gpu/bin/train_gpt --out step_kernels.json
  bench/cuda/step_kernels.py --model llama --program build-gpu/bin/train_gpt --out step_kernels.json

Nsight Compute runs one kernel at a time, so the sum is more than the step takes where kernels overlap, and less where
the GPU waits for the host. It measures only launches after the first step, as each takes it some milliseconds; the
table has those from the end of one AdamW to the end of the next.
Read next: bench/cuda/step.py, which times whole steps.
"""
import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "cuda"))
from models import MODELS  # noqa: E402
from step import Ours  # noqa: E402

STEPS = 4
# Launches of a layer and step, at least as many as there are. Evaluation comes before the first step.
LAUNCHES = {"gpt2": 38, "llama": 52}
TIME, DRAM = "gpu__time_duration.sum", "dram__bytes.sum"
SCALES = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1.0, "msecond": 1.0, "s": 1e3, "second": 1e3,
          "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}  # to milliseconds and bytes


def profiled(program, model, dtype, folder, limit):
    """The table that Nsight Compute writes: a line for each launch and metric."""
    shape = MODELS[model]
    launches_a_step = LAUNCHES[model] * shape["layers"] + 20
    ours, written = Ours(program, shape, folder, dtype), os.path.join(folder, "kernels.csv")
    command = ["ncu", "--csv", "--log-file", written, "--clock-control", "none", "--cache-control", "none",
               "--launch-skip", str(launches_a_step), "--launch-count", str(2 * launches_a_step), "--metrics",
               f"{TIME},{DRAM}", *ours.command(STEPS, os.path.join(folder, "run"))]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"ncu had not ended after {limit:.0f} s; expected less; raise --within") from None
    if not os.path.exists(written) or ended.returncode != 0:
        raise SystemExit(f"ncu: exit status {ended.returncode}: {ended.stdout.strip()[-1500:]}")
    with open(written, encoding="utf-8", errors="replace") as lines:
        return lines.read()


def short(name):
    """A kernel's function without namespaces, and its template arguments."""
    name = re.sub(r"(?:\b(?:trireme|cuda|detail)|\(anonymous namespace\)|<?unnamed>)::|\((?:int|bool|long|unsigned)\)", "",
                  re.sub(r"^void ", "", name))
    depth = 0
    for at in range(len(name) - 1, -1, -1) if name.endswith(")") else ():
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at][:110]  # without its parameters
    return name[:110]


def launches(text):
    """{"kernel": name, metric: value in ms or bytes} of each launch, in their order."""
    found = {}
    begin = text.find('"ID"')
    for row in csv.DictReader(text[max(0, begin):].splitlines()):
        if not (row.get("Metric Name") and row.get("ID", "").isdigit()):
            continue
        launch = found.setdefault(int(row["ID"]), {"kernel": short(row["Kernel Name"])})
        value, unit = row["Metric Value"].replace(",", ""), row["Metric Unit"]
        if unit not in SCALES:
            raise SystemExit(f"ncu states {row['Metric Name']} in {unit!r}; expected one of {', '.join(SCALES)}")
        launch[row["Metric Name"]] = float(value) * SCALES[unit]
    return [found[number] for number in sorted(found)]


def one_step(found):
    """The launches after one AdamW up to the end of the next."""
    ends = [i for i, launch in enumerate(found) if "adamw" in launch["kernel"].lower() and
            (i + 1 == len(found) or "adamw" not in found[i + 1]["kernel"].lower())]
    if len(ends) < 2:
        raise SystemExit(f"ncu measured {len(found)} launches with the end of {len(ends)} steps; expected two ends")
    return found[ends[0] + 1:ends[1] + 1]


def summed(found):
    """A row for each kernel, the dearest first: its launches, milliseconds and gigabytes."""
    rows = {}
    for launch in found:
        row = rows.setdefault(launch["kernel"], {"kernel": launch["kernel"], "launches": 0, "ms": 0.0, "gbytes": 0.0})
        row["launches"] += 1
        row["ms"] += launch.get(TIME, 0.0)
        row["gbytes"] += launch.get(DRAM, 0.0) / 1e9
    return sorted(rows.values(), key=lambda row: -row["ms"])


def table(rows):
    total = sum(row["ms"] for row in rows)
    lines = [f"{total:.2f} ms a step in {sum(row['launches'] for row in rows):.0f} launches",
             f"{'ms':>8} {'part':>6} {'launches':>8} {'GB':>7} {'GB/s':>6}  kernel"]
    lines += [f"{row['ms']:8.3f} {row['ms'] / total:6.1%} {row['launches']:8} {row['gbytes']:7.2f} "
              f"{1e3 * row['gbytes'] / max(row['ms'], 1e-9):6.0f}  {row['kernel']}" for row in rows]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="train_gpt, built with CUDA")
    parser.add_argument("--out", required=True, help="JSON")
    parser.add_argument("--model", default="gpt2", choices=MODELS)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--within", type=float, default=120, metavar="SECONDS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = profiled(options.program, options.model, options.dtype, folder, options.within)
        rows = summed(one_step(launches(text)))
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump({"kernels": [{"model": MODELS[options.model]["name"], **row} for row in rows]}, out, indent=1)
    print(MODELS[options.model]["name"] + ": " + table(rows))


if __name__ == "__main__":
    main()

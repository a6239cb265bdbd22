#!/usr/bin/env python3
"""Compares AdamW and Muon on a small GPT: validation loss by step, each with its best learning rates of a few.

    python3 bench/optimizers.py --data TEXT --steps 240

Trains one run for each learning rate, on one thread, --jobs runs at a time. The best run of each optimizer is repeated
with other seeds, which change the initial weights and the samples. Prints Markdown: bench/results/optimizers.md is such
an output. The losses do not depend on the machine, but for rounding.
"""
import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from statistics import mean

ROOT = pathlib.Path(__file__).resolve().parent.parent
ADAMW_LR = ["1e-3", "2e-3", "4e-3", "8e-3"]
MUON_MATRIX_LR, MUON_OTHER_LR = ["0.01", "0.02", "0.04"], ["2e-3", "4e-3"]
SEEDS = ["1337", "1", "2"]  # the first chooses the learning rates
MODEL = "--tokenizer char --layers 4 --heads 4 --width 128 --context 128 --micro-batch 16 --warmup-steps 20"


def settings():
    """The flags of each run, by optimizer."""
    muon = itertools.product(MUON_MATRIX_LR, MUON_OTHER_LR)
    return {
        "AdamW": [f"--optimizer adamw --lr {lr}" for lr in ADAMW_LR],
        "Muon": [f"--optimizer muon --muon-lr {matrices} --lr {others}" for matrices, others in muon],
    }


def command(options, flags, seed):
    common = f"{MODEL} --steps {options.steps} --eval-every {options.eval_every} --eval-batches 10 --seed {seed}"
    return f"build/bin/train_gpt --data {options.data} {common} {flags}"


def train(options, flags, seed):
    """The validation losses of a run: [(step, loss), ...]."""
    with tempfile.TemporaryDirectory() as folder:
        line = command(options, flags, seed).split()
        line += ["--threads", "1", "--pin", "off", "--quiet", "--keep-best", "off"]
        run = subprocess.run(line + ["--out", folder], cwd=ROOT, text=True, capture_output=True, check=False)
        if run.returncode != 0:
            sys.exit(f"optimizers: {' '.join(line)}: {run.stderr.strip()}")
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [(m["step"], m["val_loss"]) for m in map(json.loads, lines) if "val_loss" in m]


def steps_to(curve, level):
    return next((step for step, loss in curve if loss <= level), None)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(*columns):
    row(*columns)
    row(*["---"] * len(columns))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text, of a million characters or so")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--eval-every", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    options = parser.parse_args()
    options.data = os.path.abspath(options.data)

    def train_all(jobs):
        with ThreadPoolExecutor(options.jobs) as pool:
            return dict(zip(jobs, pool.map(lambda job: train(options, *job), jobs)))

    grid = settings()
    curves = train_all([(flags, SEEDS[0]) for all_flags in grid.values() for flags in all_flags])
    best = {name: min(flags, key=lambda f: curves[f, SEEDS[0]][-1][1]) for name, flags in grid.items()}
    curves |= train_all([(best[name], seed) for name in grid for seed in SEEDS[1:]])

    print("Learning rates, with one seed:\n")
    table("flags", f"validation loss after {options.steps} steps")
    for name, flags in grid.items():
        for f in flags:
            row(f"`{f}`" + (" (best)" if f == best[name] else ""), f"{curves[f, SEEDS[0]][-1][1]:.4f}")
    level = max(curves[best["AdamW"], seed][-1][1] for seed in SEEDS)
    print(f"\nThe best of each, with seeds {', '.join(SEEDS)}; the level is {level:.4f}, AdamW's highest final loss:\n")
    table("optimizer", "final validation losses", "mean", "steps to the level")
    for name in grid:
        each = [curves[best[name], seed] for seed in SEEDS]
        last = [curve[-1][1] for curve in each]
        row(name, ", ".join(f"{x:.4f}" for x in last), f"{mean(last):.4f}",
            ", ".join(str(steps_to(curve, level) or "not reached") for curve in each))
    print("\nValidation loss by step, mean of the seeds:\n")
    table("step", *grid)
    for i, (step, _) in enumerate(curves[best["AdamW"], SEEDS[0]]):
        row(step, *(f"{mean(curves[best[name], seed][i][1] for seed in SEEDS):.4f}" for name in grid))
    print(f"\nThe command of the first row: `{command(options, grid['AdamW'][0], SEEDS[0])}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())

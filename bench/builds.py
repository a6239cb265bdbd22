#!/usr/bin/env python3
"""The time of a training step of one build over that of another, by alternating runs (bench/paired.py).

    git worktree add ../before REVISION && (cd ../before && ./trireme build)
    bench/builds.py --data TEXT --before ../before/build/bin              the small character model, 20 pairs
    bench/builds.py --data TEXT --before ../before/build/bin --contest gpt2-bf16 --pairs 10

The figure of a run is a low quantile of its steps: other programs only ever lengthen a step. --null compares the new
build with itself, which shows how far a ratio can be from 1 by chance.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import paired

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHAR = ["--tokenizer", "char", "--layers", "4", "--heads", "4", "--width", "128", "--context", "64",
        "--micro-batch", "12", "--steps", "200"]
GPT2 = ["--tokenizer", "byte", "--model", "gpt2-124m", "--vocab", "50304", "--context", "256", "--micro-batch", "4",
        "--steps", "6"]
CONTESTS = {"char": CHAR, "char-bf16": CHAR + ["--dtype", "bf16"], "gpt2": GPT2,
            "gpt2-bf16": GPT2 + ["--dtype", "bf16"]}


def train(folder, o):
    """A low quantile of the milliseconds of a run's steps."""
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "run")
        command = [os.path.join(folder, "train_gpt"), *CONTESTS[o.contest], "--data", o.data, "--log-every", "1",
                   "--eval-batches", "1", "--out", out, *o.flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-500:]}{done.stderr[-500:]}{' '.join(command)} ended with {done.returncode}")
        times = paired.step_times(out)
    return statistics.quantiles(times, n=8)[0], ""


def main():
    parser = argparse.ArgumentParser(description="A training step of one build over that of another.")
    parser.add_argument("--data", required=True, help="a text, of a million characters or so")
    parser.add_argument("--before", metavar="FOLDER", help="the folder of the earlier train_gpt")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="that of the new one [build/bin]")
    parser.add_argument("--contest", choices=sorted(CONTESTS), default="char", help="what is trained [char]")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of runs [20]")
    parser.add_argument("--null", action="store_true", help="the new build against itself: the noise of this machine")
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="more flags of train_gpt, after --")
    o = parser.parse_args()
    before = o.bin if o.null else o.before
    if not before:
        parser.error("--before FOLDER or --null is needed")
    paired.compare(("before", "after"), (lambda: train(before, o), lambda: train(o.bin, o)), o.pairs, o.bin)


if __name__ == "__main__":
    main()

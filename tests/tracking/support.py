"""What the tests with other people's programs share. Each is skipped (exit code 77) where that program is absent."""

import json
import os
import subprocess
import sys

SKIPPED = 77
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def train_gpt():
    """The program, from the command line of the test."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} PATH/OF/train_gpt")
    return os.path.abspath(sys.argv[1])


def command(out, *flags):
    """A small run of train_gpt."""
    return [train_gpt(), "--data", os.path.join(ROOT, "LICENSE"), "--layers", "1", "--heads", "1", "--width", "16",
            "--context", "16", "--micro-batch", "4", "--eval-batches", "1", "--log-every", "1", "--threads", "1",
            "--pin", "off", "--out", out, *flags]


def train(out, *flags):
    done = subprocess.run(command(out, *flags), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"{done.args} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def records(out):
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]

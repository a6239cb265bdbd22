#!/usr/bin/env python3
"""What trackers cost a run: the time of a step with all of them, over that without any.

    bench/trackers.py --data TEXT                                 ten pairs of runs of the small character model
    bench/trackers.py --data TEXT --pairs 20 --steps 600
    VENV/bin/python bench/trackers.py --data TEXT --bridges wandb,mlflow     scripts/track.py runs beside it, too

With trackers: --tensorboard on, and --prometheus, whose page is read once a second; Prometheus itself reads it every 15
seconds. Every step is logged in both runs (--log-every 1; by default a run logs every tenth), and nothing is saved or
evaluated between the first step and the last. The figure of a run is the median step_ms of metrics.jsonl without its
first tenth. Runs alternate (bench/paired.py). The result means something on a quiet machine only: --null compares runs
without trackers, whose ratios must be closer to 1 than the cost that is looked for.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request

import paired

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = ["--tokenizer", "char", "--layers", "4", "--heads", "4", "--width", "128", "--context", "64",
         "--micro-batch", "12", "--log-every", "1", "--eval-every", "0", "--eval-batches", "1", "--keep-best", "off"]


class Reader:
    """Reads the page of a run once every `seconds`, as Prometheus does, until it is closed."""

    def __init__(self, address, seconds):
        self.address, self.seconds, self.pages = address, seconds, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.ended.wait(self.seconds):
            try:
                with urllib.request.urlopen(self.address, timeout=5) as page:
                    self.pages += b"trireme_step" in page.read()
            except OSError:  # the run has ended
                return

    def close(self):
        self.ended.set()
        self.thread.join()
        return self.pages


def start_bridge(package, out, folder):
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true",
                   "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    command = [sys.executable, os.path.join(ROOT, "scripts", "track.py"), package, out, "--patience", "10"]
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)


def train(o, tracked, folder):
    """The median step_ms of a run, and a note: how often its page was read."""
    out = os.path.join(folder, "run")
    command = [os.path.join(o.bin, "train_gpt"), *MODEL, "--data", o.data, "--steps", str(o.steps), "--out", out]
    if tracked:
        command += ["--tensorboard", "on", "--prometheus", "127.0.0.1:0"]
    bridges = [start_bridge(package, out, folder) for package in o.bridges.split(",") if tracked and package]
    run = subprocess.Popen(command + o.flags, stdout=subprocess.PIPE, text=True)
    reader, said = None, []
    for line in run.stdout:
        said.append(line)
        address = re.search(r"metrics for Prometheus: (\S+)", line)
        if address:
            reader = Reader(address[1], o.read_every)
    code = run.wait()
    pages = reader.close() if reader else 0
    for bridge in bridges:
        if bridge.wait() != 0:
            sys.exit("trackers.py: a bridge of scripts/track.py failed; it says why above")
    if code != 0:
        sys.exit("".join(said) + f"trackers.py: {' '.join(command)} ended with {code}")
    if tracked and not (reader and os.listdir(os.path.join(out, "tensorboard"))):
        sys.exit("".join(said) + "trackers.py: the run has no trackers; expected its page's address, and event files")
    return statistics.median(paired.step_times(out)), f"page read {pages} times" if pages else ""


def measure(o):
    def run(tracked):
        with tempfile.TemporaryDirectory() as folder:
            return train(o, tracked, folder)

    names = ("none", "none" if o.null else "all")
    paired.compare(names, (lambda: run(False), lambda: run(not o.null)), o.pairs, o.bin)


def main():
    parser = argparse.ArgumentParser(description="The time of a step with all trackers over that without any.")
    parser.add_argument("--data", required=True, help="a text, of a million characters or so")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of runs [10]")
    parser.add_argument("--steps", type=int, default=300, help="of a run [300]")
    parser.add_argument("--read-every", type=float, default=1, metavar="SECONDS", help="between reads of the page [1]")
    parser.add_argument("--bridges", default="", metavar="NAMES",
                        help="wandb, mlflow or both: scripts/track.py beside the tracked runs, offline []")
    parser.add_argument("--null", action="store_true", help="no trackers in either run: the noise of this machine")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="the folder of train_gpt [build/bin]")
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="more flags of train_gpt, after --")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sends a run of train_gpt to Weights & Biases or MLflow, while it trains or afterwards:

    scripts/track.py wandb runs/gpt-20260131-120000 --project shakespeare
    scripts/track.py mlflow runs/gpt-20260131-120000 --project shakespeare

It reads config.json and metrics.jsonl in the run's folder, follows the latter, and ends when the run has made its last
step, or when no program has written to the folder for --patience seconds. It changes nothing in the folder. Where the
values go is up to those packages: WANDB_MODE=offline, MLFLOW_TRACKING_URI=sqlite:///mlflow.db, and so on.

After a resume the run makes steps again, with the same data: they are not sent twice. After a rollback (or with other
learning rates) their values differ, and neither package can delete points. Then a second tracked run begins, with all
steps that are still in metrics.jsonl, and the first one gets the tag "superseded".

docs/tracking.md says more.
"""

import argparse
import fcntl
import gc
import json
import math
import os
import sys
import time


class Refused(Exception):
    """What the user asked for is not possible; the message says why."""


class Metrics:
    """Follows metrics.jsonl. The program appends whole lines, but a reader may see the beginning of one. To remove
    steps that are made again, the program replaces the file."""

    def __init__(self, path):
        self.path = path
        self.file = None
        self.part = b""

    def replaced(self):
        """Whether there is another file now, or this one is shorter than what was read."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self.file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino) or now.st_size < self.file.tell()

    def read(self):
        """The new records; and whether they are those of the file from its beginning."""
        from_beginning = False
        if self.file is None or self.replaced():
            try:
                file = open(self.path, "rb")
            except FileNotFoundError:
                return [], False
            if self.file is not None:
                self.file.close()
            self.file, self.part, from_beginning = file, b"", True
        *lines, self.part = (self.part + self.file.read(1 << 22)).split(b"\n")
        try:
            return [json.loads(line) for line in lines], from_beginning
        except ValueError as error:
            if from_beginning:
                raise Refused(f"{self.path}: a line is not JSON: {error}") from error
        self.file.seek(0)  # a line was cut after its beginning was read, and others followed: read all again
        self.part = b""
        return self.read_again()

    def read_again(self):
        self.file.close()
        self.file = None
        return self.read()


def is_writing(folder):
    """Whether a program writes to the run's folder: it holds a lock there."""
    try:
        with open(os.path.join(folder, ".lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def values_of(record):
    """The numbers of a line, by name. JSON has null for NaN and infinity."""
    return {key: math.nan if value is None else value for key, value in record.items() if key != "step"}


def collect_garbage_seldom():
    """The packages make dozens of objects for each value, and Python's search for cycles of objects that nothing uses
    takes a fifth of the time of MLflow. From now on the search leaves out the objects that are here already, and runs
    only where this script asks for it."""
    gc.collect()
    gc.freeze()
    gc.disable()


class Wandb:
    def __init__(self, arguments):
        import wandb
        self.wandb, self.arguments, self.run = wandb, arguments, None

    def begin(self, name, config):
        self.run = self.wandb.init(project=self.arguments.project, name=name, group=self.arguments.name, config=config)

    def log(self, records):
        for record in records:
            self.run.log(values_of(record), step=record["step"])

    def end(self, completed, superseded=False):
        if superseded:
            self.run.tags = (self.run.tags or ()) + ("superseded",)
        self.run.finish(exit_code=0 if completed else 1)


class Mlflow:
    most_metrics, most_params = 1000, 100  # that a request may have
    requests_per_collection = 20           # of garbage

    def __init__(self, arguments):
        import mlflow
        self.mlflow, self.arguments, self.run, self.requests = mlflow, arguments, None, 0
        self.client = mlflow.MlflowClient()
        experiment = self.client.get_experiment_by_name(arguments.project)
        self.experiment = (experiment.experiment_id if experiment is not None
                           else self.client.create_experiment(arguments.project))

    def begin(self, name, config):
        from mlflow.entities import Param
        tags = {"run": self.arguments.name}
        self.run = self.client.create_run(self.experiment, run_name=name, tags=tags).info.run_id
        params = [Param(key, str(value)) for key, value in config.items()]
        for at in range(0, len(params), self.most_params):
            self.client.log_batch(self.run, params=params[at:at + self.most_params])

    def log(self, records):
        from mlflow.entities import Metric
        now = int(1000 * time.time())
        metrics = [Metric(key, value, now, record["step"]) for record in records
                   for key, value in values_of(record).items()]
        for at in range(0, len(metrics), self.most_metrics):
            self.client.log_batch(self.run, metrics=metrics[at:at + self.most_metrics])
            self.requests += 1
            if self.requests % self.requests_per_collection == 0:
                gc.collect()

    def end(self, completed, superseded=False):
        if superseded:
            self.client.set_tag(self.run, "superseded", "true")
        self.client.set_terminated(self.run, "FINISHED" if completed else "KILLED")


class Bridge:
    """Keeps the newest tracked run equal to metrics.jsonl."""

    def __init__(self, tracker, arguments):
        self.tracker, self.arguments = tracker, arguments
        self.folder = arguments.run
        self.metrics = Metrics(os.path.join(self.folder, "metrics.jsonl"))
        self.sent = {}  # step: what tells whether the same step was made again with the same data
        self.last, self.begun = 0, 0

    def config(self):
        with open(os.path.join(self.folder, "config.json"), encoding="utf-8") as file:
            return json.load(file)

    def begin(self):
        self.begun += 1
        name = self.arguments.name + (f" ({self.begun})" if self.begun > 1 else "")
        self.tracker.begin(name, {key: value for key, value in self.config().items() if not key.startswith("//")})
        self.sent, self.last = {}, 0
        print(f"tracking {name}", flush=True)

    @staticmethod
    def identity(record):
        return record.get("tokens"), record.get("lr")

    def send(self, records, from_beginning):
        """`from_beginning`: the records are those of a new file."""
        made_again = [r for r in records if r["step"] in self.sent]
        if any(self.sent[r["step"]] != self.identity(r) for r in made_again):
            self.tracker.end(completed=False, superseded=True)
            self.begin()
            if not from_beginning:  # the new file was read in two parts: take it from its beginning
                self.metrics.file.seek(0)
                self.metrics.part = b""
                records = []
        new = [r for r in records if r["step"] not in self.sent]
        if new:
            self.tracker.log(new)
        self.sent.update((r["step"], self.identity(r)) for r in new)
        self.last = max([self.last] + [r["step"] for r in records])

    def follow(self):
        """Returns whether the run has made its last step."""
        quiet_since = None
        while True:
            writing = is_writing(self.folder)  # before reading: what was written until then is read below
            records, from_beginning = self.metrics.read()
            if self.begun == 0 and (records or os.path.exists(os.path.join(self.folder, "config.json"))):
                self.begin()
            if records:
                self.send(records, from_beginning)
                quiet_since = None
                continue
            gc.collect()
            completed = self.begun > 0 and self.last >= self.config()["steps"]
            quiet_since = None if writing else quiet_since or time.monotonic()
            if not writing and (completed or time.monotonic() - quiet_since >= self.arguments.patience):
                return completed
            time.sleep(self.arguments.interval)


def parse(arguments):
    parser = argparse.ArgumentParser(description="Sends a run of train_gpt to Weights & Biases or MLflow.")
    parser.add_argument("to", choices=["wandb", "mlflow"], help="the package, which must be installed")
    parser.add_argument("run", metavar="RUN", help="the run's folder: the --out of train_gpt")
    parser.add_argument("--project", default="trireme", help="the project (W&B) or experiment (MLflow) [trireme]")
    parser.add_argument("--name", help="the tracked run's name [that of the folder]")
    parser.add_argument("--patience", type=float, default=120, metavar="SECONDS",
                        help="how long nobody may write to the folder before the run counts as ended [120]")
    parser.add_argument("--interval", type=float, default=1, metavar="SECONDS", help="between two looks [1]")
    parsed = parser.parse_args(arguments)
    parsed.name = parsed.name or os.path.basename(os.path.abspath(parsed.run))
    return parsed


def main(arguments):
    parsed = parse(arguments)
    try:
        if os.path.exists(parsed.run) and not os.path.isdir(parsed.run):
            raise Refused(f"{parsed.run} is a file; expected the --out folder of a run")
        try:
            tracker = (Wandb if parsed.to == "wandb" else Mlflow)(parsed)
        except ImportError as error:
            raise Refused(f"the package {parsed.to} is not installed for {sys.executable} ({error}); expected it; run "
                          f"this script with the Python of an environment that has it") from error
        collect_garbage_seldom()
        bridge = Bridge(tracker, parsed)
        completed = bridge.follow()
    except Refused as error:
        print(f"track.py: {error}", file=sys.stderr)
        return 64
    if bridge.begun == 0:
        print(f"track.py: {parsed.run} holds no run: there is no config.json after {parsed.patience:g} seconds",
              file=sys.stderr)
        return 64
    tracker.end(completed)
    print(f"sent {bridge.last} of {bridge.config()['steps']} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

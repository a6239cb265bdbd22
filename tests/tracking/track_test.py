#!/usr/bin/env python3
"""scripts/track.py with the packages themselves, offline: W&B in its mode offline, MLflow with a file of SQLite. Takes
the packages that are installed for this Python. Usage: track_test.py [wandb|mlflow]...

    track_test.py --rate 12000 mlflow    no test: how many lines of a run that has ended are sent in a second

metrics.jsonl is written here as train_gpt writes it: whole lines appended, the file replaced at a rewind."""

import fcntl
import glob
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import support

SCRIPT = os.path.join(support.ROOT, "scripts", "track.py")
RATE = int(sys.argv[2]) if sys.argv[1:2] == ["--rate"] else None  # lines
NAMED = sys.argv[3 if RATE else 1:]
PACKAGES = [p for p in (NAMED or ["wandb", "mlflow"]) if importlib.util.find_spec(p) is not None]
if not PACKAGES:
    support.skip("neither of the Python packages wandb and mlflow is installed")


class Run:
    """The folder of a run, written step by step."""

    def __init__(self, folder, steps):
        self.folder, self.lines = folder, []
        os.makedirs(folder)
        self.replace("config.json", json.dumps({"steps": steps, "lr": 0.001, "model": None, "//note": "left out"}))
        self.file = open(self.path("metrics.jsonl"), "ab", buffering=0)
        self.lock = open(self.path(".lock"), "ab")
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def path(self, name):
        return os.path.join(self.folder, name)

    def replace(self, name, text):
        with open(self.path(name + ".tmp.1"), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.path(name + ".tmp.1"), self.path(name))

    @staticmethod
    def record(step, data=0, **more):
        return {"step": step, "loss": 4 / step + data, "lr": 0.001, "tokens": 128 * step + data, **more}

    def log(self, *records, halves=False):
        for record in records:
            line = (json.dumps(record) + "\n").encode()
            self.lines.append(record)
            if halves:
                self.file.write(line[:7])
                time.sleep(0.3)
                line = line[7:]
            self.file.write(line)

    def rewind(self, steps):
        self.lines = [record for record in self.lines if record["step"] <= steps]
        self.replace("metrics.jsonl", "".join(json.dumps(record) + "\n" for record in self.lines))
        self.file = open(self.path("metrics.jsonl"), "ab", buffering=0)

    def end(self):
        self.lock.close()


def start(package, run, place, **more):
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": place, "WANDB_SILENT": "true",
                   "MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db", **more}
    return subprocess.Popen([sys.executable, SCRIPT, package, run.folder, "--project", "p", "--interval", "0.1",
                             "--patience", "3"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, cwd=place)


def begun(bridge):
    """Waits until the package has started, which may take long."""
    said = []
    for line in bridge.stdout:
        said.append(line)
        if line.startswith("tracking "):
            return
    raise AssertionError("".join(said))


def finish(bridge, seconds=180):
    output, _ = bridge.communicate(timeout=seconds)
    assert bridge.returncode == 0, output
    return output


def wandb_messages(path):
    """The messages of a file of W&B: after 7 bytes, blocks of 32 KiB with pieces, each after its checksum, length and
    kind (1: a whole message; 2, 3, 4: its first, a middle, its last piece), as in LevelDB's logs."""
    with open(path, "rb") as file:
        data = file.read()
    assert data.startswith(b":W&B"), path
    at, message = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no room for a piece
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        message += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield message
            message = b""


def tracked_by_wandb(place):
    """Of each tracked run, the oldest first: name, whether it completed, whether it is superseded, {step: values}."""
    from wandb.proto import wandb_internal_pb2
    runs = []
    for file in sorted(glob.glob(os.path.join(place, "wandb", "offline-run-*", "*.wandb")), key=os.path.getmtime):
        rows, name, tags, code = {}, "", (), None
        for data in wandb_messages(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name, tags = record.run.display_name, tuple(record.run.tags)
            elif kind == "exit":
                code = record.exit.exit_code
            elif kind == "history":
                row = {(item.key or ".".join(item.nested_key)): json.loads(item.value_json)
                       for item in record.history.item}
                rows[row["_step"]] = {key: value for key, value in row.items() if not key.startswith("_")}
        runs.append((name, code == 0, "superseded" in tags, rows))
    return runs


def tracked_by_mlflow(place):
    import mlflow
    client = mlflow.MlflowClient(f"sqlite:///{place}/mlflow.db")
    experiment = client.get_experiment_by_name("p").experiment_id
    runs = []
    for run in sorted(client.search_runs([experiment]), key=lambda r: r.info.start_time):
        rows = {}
        for key in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, key):
                assert key not in rows.get(metric.step, {}), f"{key} of step {metric.step} twice"
                rows.setdefault(metric.step, {})[key] = metric.value
        assert run.data.params["lr"] == "0.001" and "//note" not in run.data.params
        runs.append((run.info.run_name, run.info.status == "FINISHED", "superseded" in run.data.tags, rows))
    return runs


TRACKED = {"wandb": tracked_by_wandb, "mlflow": tracked_by_mlflow}


def rows_of(records):
    return {record["step"]: {key: value for key, value in record.items() if key != "step"} for record in records}


def check(got, want, what):
    assert got == want, f"{what}:\n{got}\nexpected\n{want}"


def test_follows(package):
    """Lines in two halves, a resume (the same steps again), a rollback (the same steps with other data)."""
    with tempfile.TemporaryDirectory() as place:
        run = Run(os.path.join(place, "run-a"), 9)
        bridge = start(package, run, place)
        begun(bridge)
        run.log(*[Run.record(step) for step in range(1, 6)], halves=True)
        time.sleep(5)
        run.rewind(3)
        run.log(*[Run.record(step) for step in range(4, 8)])
        time.sleep(5)
        first = rows_of(run.lines)
        run.rewind(4)
        run.log(*[Run.record(step, data=1000, val_loss=2.5) for step in range(5, 10)])
        run.end()
        output = finish(bridge)
        assert "sent 9 of 9 steps" in output, output
        check(TRACKED[package](place), [("run-a", False, True, first), ("run-a (2)", True, False, rows_of(run.lines))],
              package)


def test_ends(package):
    """A run that was stopped; a folder without a run."""
    with tempfile.TemporaryDirectory() as place:
        run = Run(os.path.join(place, "run-b"), 100)
        run.log(Run.record(1))
        run.end()
        assert "sent 1 of 100 steps" in finish(start(package, run, place))
        check(TRACKED[package](place), [("run-b", False, False, rows_of(run.lines))], package)
        run.folder = os.path.join(place, "absent")
        bridge = start(package, run, place)
        output, _ = bridge.communicate(timeout=60)
        assert bridge.returncode == 64 and "holds no run" in output, output


def record_of_a_run(step):
    """A line with the 13 values of a real run."""
    return Run.record(step, **{key: 0.125 * step for key in (
        "grad_norm", "tokens_per_s", "step_ms", "forward_ms", "backward_ms", "optimizer_ms", "data_ms", "comm_ms",
        "comm_exposed_ms", "peak_bytes")})


def test_keeps_up(package, seconds=20):
    """A thousand lines a second, each like that of a real run."""
    with tempfile.TemporaryDirectory() as place:
        run = Run(os.path.join(place, "run-c"), 1000 * seconds)
        bridge = start(package, run, place)
        begun(bridge)
        begin = time.monotonic()
        for part in range(10 * seconds):
            run.log(*[record_of_a_run(step) for step in range(100 * part + 1, 100 * part + 101)])
            time.sleep(max(0, begin + 0.1 * (part + 1) - time.monotonic()))
        run.end()
        written = time.monotonic()
        output = finish(bridge, 600)
        assert f"sent {1000 * seconds} of" in output, output
        print(f"{package}: {1000 * seconds} lines in {written - begin:.1f} s; the bridge ended "
              f"{time.monotonic() - written:.1f} s later")


def seconds_to_send(package, lines):
    with tempfile.TemporaryDirectory() as place:
        run = Run(os.path.join(place, "run-d"), lines)
        run.log(*[record_of_a_run(step) for step in range(1, lines + 1)])
        run.end()
        begin = time.monotonic()
        output = finish(start(package, run, place), 600)
        assert f"sent {lines} of" in output, output
        return time.monotonic() - begin


def print_rate(package):
    """The start and the end of the package take seconds: those of a run of 1000 lines are left out."""
    least = 1000
    few, many = seconds_to_send(package, least), seconds_to_send(package, RATE + least)
    print(f"{package}: {RATE / (many - few):.0f} lines/s ({RATE} lines in {many - few:.1f} s, besides {few:.1f} s)",
          flush=True)


def main():
    for package in PACKAGES if RATE else []:
        print_rate(package)
    for package in PACKAGES if not RATE else []:
        for test in (test_follows, test_ends, test_keeps_up):
            test(package)
            print(f"{package}: {test.__name__} passed", flush=True)


if __name__ == "__main__":
    main()

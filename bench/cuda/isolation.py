"""Keeps a failure of one kernel from hiding the figures of the others.

A worker measures one case after the other, and writes a journal: which side of which case begins, and each result. An
illegal address spoils a process for all kernels after it, and a hang ends nothing by itself. So the driver ends a
worker that is silent for too long, notes the side that was running as failed, and starts another worker, which leaves
out that side and all cases that are done. A process for every case would cost seconds each, to start PyTorch.
Read next: bench/cuda/on_gpu.py, the worker's side.
"""
import json
import os
import signal
import subprocess
import sys
import time

AGAIN = 75  # exit status of a worker whose process can no longer be trusted


class Journal:
    """In the worker. path: lines of JSON, of which earlier workers wrote the first."""

    def __init__(self, path, healthy=lambda: True):
        entries = read(path)
        self.healthy = healthy  # whether later calls in this process can still work
        self.done = {e["row"]["case"] for e in entries if "row" in e} | {e["given_up"] for e in entries if "given_up" in e}
        self.bad = {(e["failed"]["case"], e["failed"]["side"]) for e in entries if "failed" in e}
        self.file = open(path, "a", encoding="utf-8")

    def note(self, entry):
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()

    def wanted(self, case):
        if case in self.done:
            return False
        self.note({"begin": case, "side": None})
        return True

    def failed(self, case, side, error):
        self.bad.add((case, side))
        self.note({"failed": {"case": case, "side": side, "error": str(error)}})

    def attempt(self, case, side, call):
        """The result of the call; None if it failed, now or in an earlier worker."""
        if (case, side) in self.bad:
            return None
        self.note({"begin": case, "side": side})
        try:
            return call()
        except Exception as error:
            self.failed(case, side, f"{type(error).__name__}: {error}")
        if not self.healthy():
            raise SystemExit(AGAIN)
        return None

    def row(self, row):
        self.done.add(row["case"])
        self.note({"row": row})


def read(path):
    entries = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as saved:
            for line in saved:
                try:
                    entries.append(json.loads(line))
                except ValueError:
                    continue  # the last line of a worker that was ended
    return entries


def results_of(entries):
    rows = [e["row"] for e in entries if "row" in e]
    failures = [{"case": f"{e['failed']['case']}, {e['failed']['side'] or 'set-up'}", "error": e["failed"]["error"]}
                for e in entries if "failed" in e]
    return {"rows": rows, "failures": failures, "skipped": sorted({e["skipped"] for e in entries if "skipped" in e})}


class Driver:
    """command: the worker's, which gets the journal's path as its last argument."""

    def __init__(self, command, journal, out, case_limit, start_limit, within):
        self.command, self.journal, self.out = command, journal, out
        self.case_limit, self.start_limit = case_limit, start_limit
        self.deadline = time.monotonic() + within

    def append(self, entry):
        with open(self.journal, "a", encoding="utf-8") as out:
            out.write("\n" + json.dumps(entry) + "\n")  # a line may have been cut off

    def save(self):
        results = results_of(read(self.journal))
        with open(self.out + ".part", "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)
        os.replace(self.out + ".part", self.out)
        return results

    def watch(self, worker):
        """Waits until the worker ends, or ends it: after a limit without a new entry, or at the deadline. Returns why."""
        size, since, limit = -1, time.monotonic(), self.start_limit
        while worker.poll() is None:
            now, latest = time.monotonic(), os.path.getsize(self.journal) if os.path.exists(self.journal) else 0
            if latest != size:
                limit = self.case_limit if size >= 0 else self.start_limit
                size, since = latest, now
                self.save()
            if now - since > limit or now > self.deadline:
                worker.kill()
                worker.wait()
                return "the time was over" if now > self.deadline else f"no end after {limit:.0f} s"
            time.sleep(0.05)
        if worker.returncode < 0:
            return f"killed by {signal.Signals(-worker.returncode).name}"
        return f"exit status {worker.returncode}"

    def blame(self, why):
        """Notes what ran when the worker ended. False if no case had begun: another worker would end as well."""
        begun = None
        for entry in read(self.journal)[self.seen:]:
            if "begin" in entry:
                begun = entry
            elif "row" in entry:
                begun = None
        if begun is None:
            return False
        self.append({"failed": {"case": begun["begin"], "side": begun["side"], "error": why}})
        if begun["side"] in (None, "timing"):  # no side to leave out
            self.append({"given_up": begun["begin"]})
        return True

    def run(self):
        """Starts workers until one ends by itself. Returns what was found."""
        while time.monotonic() < self.deadline:
            self.seen = len(read(self.journal))
            worker = subprocess.Popen([*self.command, self.journal])  # of this process group: it ends with it
            try:
                why = self.watch(worker)
            finally:
                worker.kill()
            if worker.returncode == 0:
                break
            if worker.returncode != AGAIN and not self.blame(why):
                self.append({"failed": {"case": "the worker", "side": None, "error": f"{why}, before any case"}})
                break
            print(f"a worker ended: {why}; another one goes on", file=sys.stderr, flush=True)
        results = self.save()
        if time.monotonic() >= self.deadline:
            results["failures"].append({"case": "the remaining cases", "error": "not run: the time was over"})
            self.append({"failed": {"case": "the remaining cases", "side": None, "error": "not run: the time was over"}})
            self.save()
        return results

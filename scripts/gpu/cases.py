"""Runs the cases of a doctest program, each in a process of its own: an illegal address or a hang costs one case.

Each case is written to cases.jsonl when it ends. Several run at a time, because most of a case's time is spent on the
CPU: for its reference in f64, and to start the GPU.
"""
import concurrent.futures
import json
import os
import re
import threading
import time

from . import process
from .place import ROOT, Failed

# What only Hopper has, by the names of cases; and what a kernel says that met another GPU.
HOPPER_CASE = re.compile(r"^hopper:|sm_?90|mbarrier|227 KiB")
HOPPER_MESSAGE = re.compile(r"compute capability (\S+); expected 9\.0 \(Hopper\)")
NOT_COMPILED = re.compile(r"gpu_check: (\S+) was not compiled")
WORST = ("hung", "crashed", "failed", "not started", "skipped", "passed")  # the first is the worst


def listed(binary, names, log):
    """The names of the cases that one of the patterns matches."""
    ended = process.run([binary, "-ltc", "-tc=" + ",".join(names)], 30, log, ROOT)
    if not ended.passed():
        raise Failed(f"{os.path.basename(binary)} does not list its cases: {ended.how()}: {ended.text.strip()[-800:]}")
    with open(log, encoding="utf-8", errors="replace") as saved:
        lines = saved.read().splitlines()
    return [line for line in lines if line and not line.startswith(("[doctest]", "====="))]


def exactly(name):
    """A filter of doctest that matches one name: a comma would begin another filter, so any character may be there."""
    return "-tc=" + re.sub(r"[,\\\"*]", "?", name)


class Cases:
    """gpu: nvidia-smi's data, or None when kernels are emulated. record: the file to which results are added."""

    def __init__(self, place, gpu=None, case_limit=20.0, jobs=None):
        self.place, self.gpu, self.case_limit = place, gpu, case_limit
        self.jobs = jobs or max(1, min(8, (os.cpu_count() or 2) // 2))
        self.record, self.lock = place.path("cases.jsonl"), threading.Lock()

    def hopper(self):
        return self.gpu is None or self.gpu["compute_cap"] == "9.0"

    def reason_to_skip(self, name):
        if self.hopper() or not HOPPER_CASE.search(name):
            return None
        return f"needs compute capability 9.0 (Hopper); this GPU has {self.gpu['compute_cap']}"

    def run(self, binary, name, stage, deadline, case_limit, partial=False):
        result = {"stage": stage, "program": os.path.basename(binary), "case": name, "seconds": 0.0}
        left = deadline - time.monotonic()
        if reason := self.reason_to_skip(name):
            result |= {"status": "skipped", "reason": reason}
        elif left < 1:
            result |= {"status": "not started", "reason": "the stage's time was over"}
        else:
            log = self.place.log("case_" + re.sub(r"[^A-Za-z0-9]+", "_", name)[:80])
            ended = process.run([binary, exactly(name)], min(case_limit, left), log, ROOT)
            result |= verdict(ended, self.hopper(), partial) | {"seconds": round(ended.seconds, 2)}
        with self.lock, open(self.record, "a", encoding="utf-8") as out:
            out.write(json.dumps(result) + "\n")
        return result

    def forget(self, stage):
        """Removes what an earlier run of the stage wrote."""
        if os.path.exists(self.record):
            with open(self.record, encoding="utf-8", errors="replace") as saved:
                kept = [line for line in saved if line.endswith("\n") and f'"stage": "{stage}"' not in line]
            with open(self.record, "w", encoding="utf-8") as out:
                out.writelines(kept)

    def run_all(self, binary, names, stage, limit, case_limit=None, partial=False):
        """partial: the program was linked without some kernels on purpose; cases that call them are skipped."""
        deadline, case_limit = time.monotonic() + limit, case_limit or self.case_limit
        found = listed(binary, names, self.place.log(f"list_{stage}_{os.path.basename(binary)}"))
        with concurrent.futures.ThreadPoolExecutor(max_workers=self.jobs) as pool:
            return list(pool.map(lambda name: self.run(binary, name, stage, deadline, case_limit, partial), found))


def verdict(ended, hopper=True, partial=False):
    """The status of a case, and the reason if it did not pass. hopper: the GPU can run all that the kernels can."""
    if ended.status is None:
        return {"status": "hung", "reason": f"{ended.how()}: {tail(ended.text)}"}
    if re.search(r"test cases:\s*0\s*\|", ended.text):
        return {"status": "failed", "reason": "no case has this name"}
    if ended.passed():
        return {"status": "passed"}
    if found := NOT_COMPILED.search(ended.text):
        if partial:
            return {"status": "skipped", "reason": f"this program is made without {found[1]}; another has this case, too"}
        return {"status": "failed", "reason": f"{found[1]} was not compiled"}
    if (found := HOPPER_MESSAGE.search(ended.text)) and not hopper:
        return {"status": "skipped", "reason": f"needs compute capability 9.0 (Hopper); this GPU has {found[1]}"}
    status = "failed" if ended.status == 1 else "crashed"
    return {"status": status, "reason": f"{ended.how()}: {tail(ended.text)}"}


def tail(text):
    """The part of doctest's output that says what is wrong."""
    at = text.find("ERROR")
    return text[at:at + 1200].strip() if at >= 0 else text.strip()[-600:]


def summary(results):
    """A line, and whether all that could run passed."""
    counts = {status: sum(r["status"] == status for r in results) for status in WORST}
    line = ", ".join(f"{count} {status}" for status, count in reversed(counts.items()) if count) or "no case"
    wrong = [r for r in results if r["status"] not in ("passed", "skipped")]
    for r in sorted(wrong, key=lambda r: WORST.index(r["status"]))[:12]:
        line += f"\n    {r['status']}: {r['case']}: {' '.join(r['reason'].split())[:300]}"
    return line, not wrong and counts["passed"] > 0

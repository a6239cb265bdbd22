"""compute-sanitizer on the cases of a doctest program, each in a process of its own: after an error that it reports, the
driver refuses everything, and all later cases would fail, too.

racecheck of CUDA 13.0 reports races that are none: false_race.cu beside this file is a program without one. In some
kernels teams of warps meet as its threads do. Reports about these kernels, NAMED below, are counted and left out; the
emulator's race checker follows their barriers (docs/cuda.md).
"""
import concurrent.futures
import os
import re
import shutil
import time

from . import cases, process
from .place import ROOT

TOOLS = ("memcheck", "racecheck")
NAMED = re.compile(r"narrow::\S*backward_kernel")
RACE = re.compile(r"Race reported between .*")
UNSUPPORTED = "Device not supported"
LEFT_OUT = "only reports of races that are none"


def run_all(tool, place, binary, patterns, limit, case_limit, jobs):
    """Returns a line, and {"tool: case": what is wrong}."""
    deadline = time.monotonic() + limit
    found = cases.listed(binary, patterns, place.log("list_sanitizer"))
    pairs = [(what, name) for name in found for what in TOOLS]

    def one(pair):
        left = deadline - time.monotonic()
        if left < 1:
            return "not started: the stage's time was over"
        log = place.log(f"{pair[0]}_" + re.sub(r"[^A-Za-z0-9]+", "_", pair[1])[:80])
        ended = process.run([tool, "--tool", pair[0], "--error-exitcode", "3", binary, cases.exactly(pair[1])],
                            min(case_limit, left), log, ROOT)
        with open(log, encoding="utf-8", errors="replace") as saved:
            return verdict(ended, saved.read())

    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        results = list(pool.map(one, pairs))
    left_out = results.count(LEFT_OUT)
    line = f"{len(pairs)} runs of memcheck and racecheck found nothing"
    if left_out:
        line += f", but for {left_out} with reports of races that are none (scripts/gpu/sanitizing.py)"
    return line, {f"{what}: {name}": wrong for (what, name), wrong in zip(pairs, results)
                  if wrong not in (None, LEFT_OUT)}


def verdict(ended, text):
    """What is wrong; None if nothing is; or LEFT_OUT. The first report says most: later ones may follow from it."""
    if ended.passed():
        return None
    races = RACE.findall(text)
    if ended.status == 3 and races and all(NAMED.search(race) for race in races) and "Status: SUCCESS!" in text:
        return LEFT_OUT
    at = text.find("=========")
    return f"{ended.how()}: {text[max(at, 0):][:1500]}"


def where():
    """The path of the tool, or None."""
    path = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return path if os.path.exists(path) else None

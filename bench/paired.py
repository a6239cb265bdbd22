"""Compares two commands by runs that alternate, on a machine whose speed changes. Used by trackers.py and builds.py.

The runs of a pair follow one another, and which is first alternates, so that a machine that becomes slower or faster
favours neither. The result is the median of the pairs' ratios.

The two cores of a virtual machine may share a level-3 cache for some seconds and then not, because the host moves them.
A step of two threads then takes up to 1.3 times as long (bench/core_distance.cpp). So the distance of the cores is
measured before and after each run, and a run during which they were apart is made again. A run can still hide a time
apart that begins and ends within it: keep runs shorter than ten seconds.
"""

import json
import os
import statistics
import subprocess
import sys
import time

APART = 150  # nanoseconds of a round trip: about 100 with a shared cache, more than 300 without


def apart(bin_folder):
    """Whether the cores share no cache now. False on a machine with one core."""
    program = os.path.join(bin_folder, "core_distance")
    if not os.path.exists(program):
        sys.exit(f"{program} does not exist; expected a build of it: ./trireme build core_distance")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    return done.returncode == 0 and json.loads(done.stdout)["round_trip_ns"] > APART


def undisturbed(run, bin_folder, patience=600):
    """The result of `run()` when the cores were together before and after it. Waits for that for `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if apart(bin_folder):
            time.sleep(1)
            continue
        result = run()
        if not apart(bin_folder):
            return result
    sys.exit(f"the cores of this machine were apart for {patience} seconds (build/bin/core_distance); measure later")


def compare(names, runs, pairs, bin_folder):
    """Prints each pair and the summary. runs: two functions that return (milliseconds, a note). Returns the ratios."""
    ratios = []
    print("{:>4} {:>6} {:>12} {:>12} {:>8}  {}".format("pair", "first", names[0] + ", ms", names[1] + ", ms", "ratio",
                                                     "notes"))
    for pair in range(pairs):
        result = {}
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            result[side] = undisturbed(runs[side], bin_folder)
        ratios.append(result[1][0] / result[0][0])
        notes = "; ".join(note for _, note in (result[0], result[1]) if note)
        print(f"{pair + 1:>4} {names[pair % 2]:>6} {result[0][0]:>12.3f} {result[1][0]:>12.3f} {ratios[-1]:>8.4f}  "
              f"{notes}", flush=True)
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    print(f"median of the ratios {middle:.4f}; the middle half {low:.4f} to {high:.4f}; all {min(ratios):.4f} to "
          f"{max(ratios):.4f}")
    return ratios


def step_times(out):
    """The step_ms of a run's metrics.jsonl, without those of its first tenth."""
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        times = [json.loads(line)["step_ms"] for line in file]
    return times[len(times) // 10:]

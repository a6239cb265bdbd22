"""How long nvcc takes for each source, and what that means for a build on a machine with other cores.

seconds.txt has the CPU time of nvcc 13.0 for sm_90a on one machine (`/usr/bin/time -f '%U %S' nvcc ...`, user and
system together), so only their order and their ratios are exact. The order matters most: a source that takes a minute
and starts last makes the build a minute longer.
"""
import heapq
import os

from .place import ROOT

def load_seconds():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "seconds.txt"), encoding="utf-8") as saved:
        lines = [line.split() for line in saved if not line.startswith("#")]
    return {source: float(seconds) for seconds, source in lines}


SECONDS = load_seconds()
# A source that was never measured: a base for the headers, and a part by its size. Kernels instantiate templates, so
# their bytes are dearer. Rather too long than too short: then it starts early.
BASE_SECONDS = {".cu": 5.0, ".cpp": 9.0}
SECONDS_PER_KB = {".cu": 1.0, ".cpp": 0.1}
# Two hyper-threads of a core do about 1.25 times the work of one.
HYPER_THREADS = 1.25


def seconds_of(source, root=ROOT):
    if source in SECONDS:
        return SECONDS[source]
    kind = os.path.splitext(source)[1]
    path = os.path.join(root, source)
    size = os.path.getsize(path) / 1000 if os.path.exists(path) else 0
    return BASE_SECONDS.get(kind, 5.0) + SECONDS_PER_KB.get(kind, 0.1) * size


def longest_first(sources):
    return sorted(sources, key=lambda source: (-seconds_of(source), source))


def rate(jobs, cpus, hyper_threads):
    """The speed of each of `jobs` processes, 1 being that of a process alone."""
    if not hyper_threads:
        return min(1.0, cpus / jobs)
    cores, busy = cpus / 2, min(jobs, cpus)
    work = busy if busy <= cores else cores + (busy - cores) * (HYPER_THREADS - 1)
    return work / jobs


def simulate(seconds, cpus, hyper_threads=True):
    """Seconds until all are done, `cpus` at a time in the given order, and the indices in the order of their ends."""
    waiting, active, now, done, ends = list(enumerate(seconds))[::-1], [], 0.0, 0.0, []
    # Each active source ends when `done`, the work that every active one has got so far, reaches its own mark.
    while waiting or active:
        while waiting and len(active) < cpus:
            index, cost = waiting.pop()
            heapq.heappush(active, (done + cost, index))
        mark, index = heapq.heappop(active)
        now += (mark - done) / rate(len(active) + 1, cpus, hyper_threads)
        done = mark
        ends.append(index)
    return now, ends


def simulated_build(sources, cpus, extra=0.0):
    """The report of --simulate-build: a line for the whole, and the sources that end last."""
    ordered = longest_first(sources)
    costs = [seconds_of(source) for source in ordered]
    lines = [f"{len(ordered)} sources, {sum(costs):.0f} CPU seconds; {sum(s not in SECONDS for s in ordered)} of them "
             "estimated from their size"]
    for threads, words in ((True, "hyper-threads"), (False, "cores")):
        total, _ = simulate(costs, cpus, threads)
        lines.append(f"{total + extra:.0f} s on {cpus} {words}, the longest source first")
    by_name, _ = simulate([seconds_of(source) for source in sorted(ordered)], cpus)
    lines.append(f"{by_name + extra:.0f} s on {cpus} hyper-threads, by name")
    _, ends = simulate(costs, cpus)
    lines.append("the last to end: " + ", ".join(f"{ordered[i]} ({costs[i]:.0f} s)" for i in ends[-4:]))
    return lines

#!/usr/bin/env python3
"""Operations and layers: Trireme's time over PyTorch's. Below 1, Trireme is faster.

    bench/op_compare.py --python VENV/bin/python                    all, 1 and 2 threads, f32 and bf16: six minutes
    bench/op_compare.py --python VENV/bin/python --only gather,topk --threads 1 --size large
    bench/op_compare.py --python VENV/bin/python --markdown bench/results/ops.md

The two programs take turns: for each case both prepare the same shapes, and then are timed alternately, a few
milliseconds each. A ratio is that of two turns that follow one another; the table has the median over the rounds, and
the median times. A round during which the cores of the machine moved apart (bench/core_distance.cpp) is made again. The
cases are in bench/op_cases.cpp: "_backward" means forward and backward, "_step" forward, backward and update. PyTorch
runs eager, with tcmalloc, as in bench/compare.py, and each of its threads is bound to a core, as Trireme's are.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "peers")]
import compare  # noqa: E402
import paired  # noqa: E402
import turns  # noqa: E402

PAUSE = 0.01  # seconds: the peer's threads still spin on our cores after its turn


def cases(binary, options):
    """(name, size, dtype) of all that is to be timed."""
    found = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    listed = {line.split()[0]: line.endswith("*") for line in found.splitlines()}
    wanted = options.only.split(",") if options.only else list(listed)
    for name in wanted:
        if name not in listed:
            sys.exit(f"{name} is not a case; expected one of {', '.join(listed)}; change --only")
    return [(name, size, dtype) for name in wanted for size in options.size for dtype in options.dtype
            if dtype == "f32" or not listed[name]]


def measure(ours, theirs, case, rounds, bin_folder, threads):
    """The rounds of a case: pairs of seconds."""
    line = " ".join(case)
    for side in (ours, theirs):
        side.ask(line, "prepared")
    pairs, spare = [], 2 * rounds
    while len(pairs) < rounds:
        result = {}
        for side in (ours, theirs) if len(pairs) % 2 == 0 else (theirs, ours):
            time.sleep(PAUSE)
            result[side] = side.ask("go", "seconds")
        if threads > 1 and spare > 0 and paired.apart(bin_folder):
            spare -= 1
            continue
        pairs.append((result[ours], result[theirs]))
    return pairs


def compare_threads(options, threads, results):
    binary, bin_folder = ROOT / "build/bin/op_bench", str(ROOT / "build/bin")
    environment = compare.BOUND | {"OMP_NUM_THREADS": str(threads)}
    if options.preload:
        environment["LD_PRELOAD"] = options.preload
    peer = [options.python, ROOT / "bench/peers/pytorch_ops.py", "--turns", "--threads", threads]
    with turns.Runner([binary, "--turns", "--threads", threads]) as ours, turns.Runner(peer, environment) as theirs:
        for case in cases(binary, options):
            pairs = measure(ours, theirs, case, options.rounds, bin_folder, threads)
            ratio = statistics.median(a / b for a, b in pairs)
            mine, other = (1e6 * statistics.median(side) for side in zip(*pairs))
            results[(*case, threads)] = (mine, other, ratio)
            print(f"{case[0]:24} {case[1]:>5} {case[2]:>4} {threads} {mine:12.1f} {other:12.1f} {ratio:6.2f}", flush=True)
        ours.finish()
        theirs.finish()
        return theirs.ready["torch"]


def table(results, options, torch):
    """The markdown: a row for each case and size, a column for each dtype and number of threads."""
    ratios = [ratio for _, _, ratio in results.values()]
    columns = [(dtype, threads) for dtype in options.dtype for threads in options.threads]
    lines = ["# Operations and layers: Trireme's time over PyTorch's", "",
             f"{time.strftime('%Y-%m-%d')}, {options.machine}, commit {options.commit}, PyTorch {torch}: microseconds",
             f"of Trireme, and in brackets its time over PyTorch's. Medians of {options.rounds} rounds. "
             "[bench/op_compare.py](../op_compare.py)",
             "explains how it is measured, and [bench/op_cases.cpp](../op_cases.cpp) has the shapes.", "",
             f"{len(ratios)} ratios: the median is {statistics.median(ratios):.2f}, "
             f"{sum(r > 1.1 for r in ratios)} are above 1.1, the largest is {max(ratios):.2f}.", "",
             "| operation | size | " + " | ".join(f"{dtype}, {threads} thread{'s' * (threads > 1)}"
                                                  for dtype, threads in columns) + " |",
             "|---|---|" + "---|" * len(columns)]
    for name, size in dict.fromkeys((name, size) for name, size, _, _ in results):
        cells = []
        for dtype, threads in columns:
            if (name, size, dtype, threads) in results:
                mine, _, ratio = results[(name, size, dtype, threads)]
                number = f"{mine:,.0f}" if mine >= 100 else f"{mine:.1f}"
                cells.append(f"{number} (**{ratio:.2f}**)" if ratio > 1.1 else f"{number} ({ratio:.2f})")
            else:
                cells.append("")
        lines.append(f"| {name} | {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Operations and layers beside PyTorch.")
    parser.add_argument("--python", required=True, help="a Python that has PyTorch")
    parser.add_argument("--only", help="cases, with commas between them (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtype", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--size", nargs="+", default=["small", "large"], choices=["small", "large"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", help="write the table into this file, too")
    parser.add_argument("--preload", help="allocator for PyTorch (default: tcmalloc where it is installed; '': none)",
                        default=next((path for path in compare.PRELOADS if os.path.exists(path)), ""))
    options = parser.parse_args()
    processor = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    maker = "AMD EPYC" if "AuthenticAMD" in processor else "Intel Xeon" if "GenuineIntel" in processor else "this machine"
    options.machine = f"{maker}{' with AMX' if 'amx_bf16' in processor else ''}, {os.cpu_count()} cores"
    options.commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True,
                                    text=True, check=False).stdout.strip()
    results = {}
    for threads in options.threads:
        torch = compare_threads(options, threads, results)
    text = table(results, options, torch)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text, encoding="utf-8")
    print("\n" + text)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The convolutions of ResNet-18: Trireme beside PyTorch, which take turns.

    bench/conv_compare.py --python VENV/bin/python                      batch 4, f32, 1 and 2 threads
    bench/conv_compare.py --python VENV/bin/python --batch 8 --threads 2 --rounds 9
    bench/conv_compare.py --python VENV/bin/python --dtype bf16

Both programs are started once, pass over all shapes once per turn, and alternate. A row has the median time of each,
and the median over the rounds of PyTorch's time over Trireme's: above 1, Trireme is faster. PyTorch runs with dense
NCHW tensors, as Trireme does, or with --channels-last in NHWC. "all" is the sum over the network's convolutions, each
as often as it occurs, without the gradient of the network's input.
"""

import argparse
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import turns  # noqa: E402

COUNTS = {"64": 4, "128": 3, "256": 3, "512": 3}  # of the others there is one


def total(parts):
    return sum(s * COUNTS.get(key.rsplit(" ", 1)[0], 1) for key, s in parts.items() if key != "first input")


def compare(options, threads):
    flags = ["--batch", options.batch, "--threads", threads, "--dtype", options.dtype, "--turns"]
    peer = [options.python, ROOT / "bench/peers/pytorch_conv.py", *flags]
    if options.channels_last:
        peer.append("--channels-last")
    binding = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
    with turns.Runner([ROOT / "build/bin/conv_bench", *flags]) as ours, turns.Runner(peer, binding) as theirs:
        rounds = []
        for _ in range(options.rounds):
            rounds.append((ours.turn(1)[0]["parts"], theirs.turn(1)[0]["parts"]))
        print(f"# {threads} threads, {options.dtype}, batch {options.batch}, PyTorch {theirs.ready['torch']}"
              f"{', channels last' if options.channels_last else ''}: ms, medians of {options.rounds} rounds")
        for own, peers in rounds:
            own["all"], peers["all"] = total(own), total(peers)
        for key in rounds[0][1]:
            mine, other = [r[0][key] for r in rounds], [r[1][key] for r in rounds]
            ratio = statistics.median(b / a for a, b in zip(mine, other))
            print(f"{key:24} {1e3 * statistics.median(mine):9.3f} {1e3 * statistics.median(other):9.3f}   {ratio:5.2f}")
        ours.finish()
        theirs.finish()


def main():
    parser = argparse.ArgumentParser(description="Convolutions beside PyTorch.")
    parser.add_argument("--python", required=True, help="a Python that has PyTorch")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--channels-last", action="store_true")
    options = parser.parse_args()
    for threads in options.threads:
        compare(options, threads)


if __name__ == "__main__":
    main()

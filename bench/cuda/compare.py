#!/usr/bin/env python3
"""Times Trireme's CUDA kernels against PyTorch's (cuBLASLt, cuDNN, FlashAttention, fused AdamW), on one GPU.

  bench/cuda/compare.py --library build-gpu/bin/libtrireme_shim.so --out results.json [--only gemm]
  bench/cuda/compare.py --rehearse --library build/lib/libtrireme_shim_emulated.so --out results.json

Every side of a case first compares its result with f64, and is timed only if it is right. Then the sides run in turns,
on uniform inputs in [-1, 1) that rotate over more than three times the size of L2; the results are medians of CUDA
events. A side that is wrong, crashes or hangs costs only itself (bench/cuda/isolation.py). Results are written after
each case. --rehearse calls the same interface built for the emulator, at tiny sizes in host memory: it checks this
program and the C interface, not speed. --plant adds a side that crashes and one that hangs.
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True
from on_gpu import Gpu  # noqa: E402
from interface import Library  # noqa: E402
from isolation import Driver, Journal  # noqa: E402
from rehearsal import Emulated  # noqa: E402


def healthy_gpu():
    """Whether the process can still use the GPU: an illegal address ends that."""
    import torch
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def work(options):
    library = Library(options.library)
    if options.rehearse:
        side = Emulated(library, Journal(options.worker))
    else:
        side = Gpu(library, Journal(options.worker, healthy_gpu))
    for name in [*side.CASES, *(["planted"] if options.plant else [])]:
        if not name.startswith(options.only) or not side.journal.wanted(name):
            continue
        try:
            getattr(side, name)()
        except Exception as error:  # set-up of a case; its sides have failed by themselves
            side.journal.failed(name, None, f"{type(error).__name__}: {error}")
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            if not side.journal.healthy():
                side.journal.note({"given_up": name})
                return 75
        side.journal.note({"given_up": name})  # the group: its cases have rows of their own
    return 0


def drive(options):
    journal = options.out + ".journal"
    for path in (journal, options.out):
        if os.path.exists(path):
            os.remove(path)
    flags = [flag for flag in ("--rehearse", "--plant") if getattr(options, flag[2:])]
    command = [sys.executable, os.path.abspath(__file__), "--library", options.library, "--out", options.out, "--only",
               options.only, *flags, "--worker"]
    results = Driver(command, journal, options.out, options.case_limit, 90, options.within).run()
    for failure in results["failures"]:
        print(f"FAILED {failure['case']}: {failure['error']}", file=sys.stderr)
    return 1 if results["failures"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="the shared library of bench/cuda/shim.cu")
    parser.add_argument("--out", required=True, help="where to write the results, as JSON")
    parser.add_argument("--only", default="", help="cases whose name starts with this: copy, gemm, attention, norm, ...")
    parser.add_argument("--within", type=float, default=3600, metavar="SECONDS", help="for all cases")
    parser.add_argument("--case-limit", type=float, default=30, metavar="SECONDS", help="without a result [30]")
    parser.add_argument("--rehearse", action="store_true", help="the emulated library, tiny sizes, no GPU")
    parser.add_argument("--plant", action="store_true", help="also a side that crashes, and one that hangs")
    parser.add_argument("--worker", metavar="JOURNAL", help=argparse.SUPPRESS)  # started by this program itself
    options = parser.parse_args()
    if not os.path.exists(options.library):
        parser.error(f"--library {options.library} does not exist; expected what `./trireme build trireme_shim_emulated` "
                     "makes, or on a GPU `scripts/gpu_check build_bench`")
    return work(options) if options.worker else drive(options)


if __name__ == "__main__":
    sys.exit(main())

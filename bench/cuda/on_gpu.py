"""One case of bench/cuda/compare.py on a GPU: compare each side with f64, then time all that are right, in turns.

A side that is wrong, or whose call fails, is left out of the timing; the others are still timed. Before each call the
journal is told which side runs, so that the driver knows which one ended the process (bench/cuda/isolation.py).
Read next: bench/cuda/cases/products.py.
"""
import math
import os
import statistics
import sys

from cases.attention import Attention
from cases.ladders import Ladders
from cases.memory import Memory
from cases.products import Products
from interface import Pointer, line_of

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "scripts"))
from gpu import limits, machine  # noqa: E402

REPEATS = 20


def distance(torch, got, expected):
    """Norm of the difference over the norm of the expected values; infinite if any value is not finite."""
    got, expected = got.double(), expected.double()
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got - expected).norm() / expected.norm())


class Gpu(Products, Attention, Memory, Ladders):
    CASES = ["copy", "gemm", "grouped", "attention", "backward", "norm", "cross_entropy", "adamw", "ladder"]

    def __init__(self, library, journal):
        import torch
        self.torch, self.call, self.journal = torch, library, journal
        self.stream = Pointer(torch.cuda.current_stream().cuda_stream)
        name = torch.cuda.get_device_name()
        self.limits = limits.of(name)
        print(limits.statement(name, limits.megahertz(machine.find_gpu() or {})), flush=True)
        hopper = torch.cuda.get_device_capability() == (9, 0)
        self.kernels = [("trireme sm_80", 0)] + ([("trireme sm_90a", 1)] if hopper else [])
        if not hopper:
            journal.note({"skipped": "trireme sm_90a: needs compute capability 9.0 (Hopper)"})

    def pointer(self, tensor):
        return Pointer(0 if tensor is None else tensor.data_ptr())

    def pointers(self, *tensors):
        return [self.pointer(t) for t in tensors]

    def uniform(self, *shape, dtype=None):
        torch = self.torch
        return (torch.rand(shape, device="cuda") * 2 - 1).to(dtype or torch.bfloat16)

    def empty(self, *shape):
        """Filled with NaN, so that an element that a kernel does not write is noticed."""
        return self.torch.full(shape, math.nan, device="cuda", dtype=self.torch.bfloat16)

    def wanted(self, case):
        return self.journal.wanted(case)

    def error_of(self, run, outputs, compared):
        """The largest distance of the pairs (got, expected), after one call."""
        for tensor in outputs:
            tensor.fill_(math.nan)
        run(0)
        return max(distance(self.torch, got, expected) for got, expected in compared())

    def case(self, name, accepted, ours, others, sets, flops=0.0, moved=0.0, limit_tflops=0.0):
        """ours: [(who, callable of the number of the input set, callable that returns its distance to f64)]; others:
        [(who, callable)]."""
        if not self.wanted(name):
            return
        errors, right = {}, []
        for who, run, error in ours:
            found = self.journal.attempt(name, who, lambda: self.checked(error))
            if found is not None:
                errors[who] = found
                if found < accepted:
                    right.append((who, run))
                else:
                    self.journal.failed(name, who, f"distance to f64 {found:.1e}; accepted {accepted:.0e}")
        right += [(who, run) for who, run in others
                  if self.journal.attempt(name, who, lambda: self.checked(lambda: (run(0), True)[1]))]
        times = self.journal.attempt(name, "timing", lambda: self.time([run for _, run in right], sets)) if right else []
        row = {"case": name, "error": max(errors.values(), default=None), "errors": errors, "accepted": accepted,
               "ms": {who: t for (who, _), t in zip(right, times or [])}}
        self.add_rates(row, flops, moved, limit_tflops)
        part = limits.share(self.limits, row)
        if part is not None:
            row["of_limit"] = part
        self.journal.row(row)
        print(line_of(row), flush=True)

    def checked(self, call):
        result = call()
        self.torch.cuda.synchronize()  # errors of kernels belong to this side
        return result

    @staticmethod
    def add_rates(row, flops, moved, limit_tflops):
        # Sides such as "trireme sm_90a, 128 queries" force a choice, so they do not count in the ratio.
        ours = [t for who, t in row["ms"].items() if who.startswith("trireme") and "," not in who]
        others = [t for who, t in row["ms"].items() if not who.startswith("trireme")]
        best = min(ours or others, default=None)
        if ours and others:
            row["ratio"] = min(others) / min(ours)  # above 1: the best of ours is faster than the best of the others
        if flops and best:
            row["tflops"] = flops / best / 1e9
        if moved and best:
            row["gbytes_per_s"] = moved / best / 1e6
        if limit_tflops:
            row["limit_tflops"] = limit_tflops

    def time(self, sides, sets):
        """Median milliseconds of each side: one call of each in turn, `sets` input sets in rotation."""
        torch = self.torch
        for i in range(3):
            for side in sides:
                side(i % sets)
        spans = [[] for _ in sides]
        for i in range(REPEATS):
            for j, side in enumerate(sides):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                side(i % sets)
                end.record()
                spans[j].append((begin, end))
        torch.cuda.synchronize()
        return [statistics.median(b.elapsed_time(e) for b, e in s) for s in spans]

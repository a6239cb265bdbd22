"""bench/cuda/compare.py without a GPU: tiny cases through the same C interface, built for the emulator."""
import ctypes
import math
import os
import random
import statistics
import struct
import time

from interface import Pointer, line_of


class Emulated:
    """Tiny cases in host memory, against plain Python: the interface, the comparison and the table."""

    CASES = ["gemm", "grouped", "attention", "cross_entropy", "ladder", "refusal"]

    def __init__(self, library, journal):
        self.call, self.journal, self.random = library, journal, random.Random(7)

    def bf16(self, count):
        """Values that bf16 holds exactly, and their bits."""
        values = [self.random.randrange(-128, 129) / 128 for _ in range(count)]
        bits = (ctypes.c_uint16 * count)(*(struct.unpack("<I", struct.pack("<f", x))[0] >> 16 for x in values))
        return values, bits

    @staticmethod
    def floats(bits):
        return [struct.unpack("<f", struct.pack("<I", x << 16))[0] for x in bits]

    def case(self, name, got, expected, run):
        self.finish(name, math.dist(got, expected) / math.hypot(*expected), 8e-3, run)

    def finish(self, name, error, accepted, run):
        if not self.journal.wanted(name):
            return
        ms = {}
        if error < accepted:
            for who in ("trireme, emulated", "again"):
                ms[who] = self.journal.attempt(name, who, lambda: self.time(run))
        else:
            self.journal.failed(name, "trireme, emulated", f"distance to f64 {error:.1e}; accepted {accepted:.0e}")
        row = {"case": name, "error": error, "accepted": accepted, "ms": {k: v for k, v in ms.items() if v is not None}}
        self.journal.row(row)
        print(line_of(row), flush=True)

    @staticmethod
    def time(run):
        spans = []
        for _ in range(3):
            begin = time.perf_counter()
            run()
            spans.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(spans)

    def planted(self):
        """Three sides, of which one ends the process and one never returns: the third must still be timed."""
        sides = {"planted crash": os.abort, "planted hang": lambda: time.sleep(3600), "whole": lambda: None}
        if self.journal.wanted("planted faults"):
            ms = {who: self.journal.attempt("planted faults", who, lambda: self.time(run)) for who, run in sides.items()}
            self.journal.row({"case": "planted faults", "ms": {k: v for k, v in ms.items() if v is not None}})

    def gemm(self):
        m, n, k = 24, 16, 40
        (a, a_bits), (b, b_bits), (bias, bias_bits) = self.bf16(m * k), self.bf16(n * k), self.bf16(n)
        c = (ctypes.c_uint16 * (m * n))()
        where = [Pointer(ctypes.addressof(t)) for t in (a_bits, b_bits, c, bias_bits)]

        def run():
            self.call("gemm", hopper, 1, m, n, k, *where, 0, Pointer(0), Pointer(0))

        hopper = 1
        run()
        from_hopper = self.floats(c)
        hopper = 0
        run()
        assert math.dist(from_hopper, self.floats(c)) < 1e-2, "the two products differ"
        expected = [sum(a[i * k + l] * b[j * k + l] for l in range(k)) + bias[j] for i in range(m) for j in range(n)]
        self.case(f"gemm {m}x{n}x{k} + bias", self.floats(c), expected, run)

    def grouped(self):
        starts, n, k = [0, 7, 7, 24], 16, 40
        (a, a_bits), (b, b_bits) = self.bf16(starts[-1] * k), self.bf16(3 * n * k)
        c, offsets = (ctypes.c_uint16 * (starts[-1] * n))(), (ctypes.c_int32 * 4)(*starts)
        where = [Pointer(ctypes.addressof(t)) for t in (offsets, a_bits, b_bits, c)]

        def run():
            self.call("grouped_gemm", hopper, 1, 3, starts[-1], n, k, *where, Pointer(0))

        hopper = 1
        run()
        from_hopper = self.floats(c)
        hopper = 0
        run()
        assert math.dist(from_hopper, self.floats(c)) < 1e-2, "the two products differ"
        expected = [sum(a[i * k + l] * b[(g * n + j) * k + l] for l in range(k))
                    for g in range(3) for i in range(starts[g], starts[g + 1]) for j in range(n)]
        self.case(f"grouped 3 of {starts[-1]}x{n}x{k}", self.floats(c), expected, run)

    def attention(self):
        tokens, dim = 20, 16
        (q, q_bits), (k, k_bits), (v, v_bits) = (self.bf16(tokens * dim) for _ in range(3))
        out, lse = (ctypes.c_uint16 * (tokens * dim))(), (ctypes.c_float * tokens)()
        where = [Pointer(ctypes.addressof(t)) for t in (q_bits, k_bits, v_bits, out, lse)]

        def run():
            self.call("attention_forward", hopper, 1, 1, dim, tokens, 1, 0.25, *where, Pointer(0))

        hopper = 1
        run()
        from_hopper = self.floats(out)
        hopper = 0
        run()
        assert math.dist(from_hopper, self.floats(out)) < 1e-2, "the two attentions differ"
        expected = []
        for i in range(tokens):
            weights = [math.exp(0.25 * sum(q[i * dim + d] * k[j * dim + d] for d in range(dim))) for j in range(i + 1)]
            expected += [sum(w * v[j * dim + d] for j, w in enumerate(weights)) / sum(weights) for d in range(dim)]
        self.case(f"attention d{dim} causal {tokens}", self.floats(out), expected, run)

    def cross_entropy(self):
        rows, columns, valid = 3, 24, 21
        x, x_bits = self.bf16(rows * columns)
        targets, work = (ctypes.c_int32 * rows)(4, -1, valid - 1), (ctypes.c_float * (4 * rows))()
        losses, logits = (ctypes.c_double * rows)(), (ctypes.c_uint16 * (rows * columns))()
        where = [Pointer(ctypes.addressof(t)) for t in (logits, targets, work, losses)]

        def run():
            logits[:] = x_bits[:]
            self.call("cross_entropy", rows, columns, valid, *where, Pointer(0))

        run()
        gradients, expected_losses = [], []
        for r, target in enumerate(targets):
            row = x[r * columns:r * columns + valid]
            total = sum(map(math.exp, row))
            gradients += [0.0 if target < 0 or j >= valid else (math.exp(row[j]) / total - (j == target)) / rows
                          for j in range(columns)]
            expected_losses.append(0.0 if target < 0 else math.log(total) - row[target])
        assert math.dist(losses, expected_losses) < 1e-5, "the losses differ"
        self.case(f"cross-entropy {rows}x{columns}", self.floats(logits), gradients, run)

    def ladder(self):
        for ladder, name, levels, needed in self.call.ladders():
            assert max(needed.values()) > 0
            self.call("ladder_open", ladder, 0)
            for number, level in enumerate(levels):
                self.finish(f"ladder, {name}: {level}", self.call.ladder_error(number), 1.0,
                            lambda number=number: self.call("ladder_run", number, Pointer(0)))
            self.call("ladder_open", -1, 0)

    def refusal(self):
        try:
            self.call("layer_norm", 1, 30000, *(Pointer(0) for _ in range(9)))
        except RuntimeError as error:
            assert "29040" in str(error), error
            print("a refusal arrives in the kernel's words:", error)
            return
        raise AssertionError("a row that does not fit was not refused")

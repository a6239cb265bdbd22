#!/usr/bin/env python3
"""Times Trireme's CUDA kernels against PyTorch's (cuBLASLt, cuDNN, FlashAttention, fused AdamW), on one GPU.

  bench/cuda/compare.py --library build-gpu/libtrireme_shim.so --out results.json [--only gemm]
  bench/cuda/compare.py --rehearse --library build/lib/libtrireme_shim_emulated.so --out results.json

Every case first compares its result with f64, and is timed only if that passes. Then the two sides run in turns, on
uniform inputs in [-1, 1) that rotate over more than three times the size of L2; the results are medians of CUDA events.
--rehearse calls the same interface built for the emulator, at tiny sizes in host memory: it checks this program and the
C interface, not speed.
"""
import argparse
import json
import math
import os
import random
import statistics
import sys

from interface import Library, Pointer, line_of
from rehearsal import Emulated

L2_BYTES = 60e6
REPEATS = 20


def distance(torch, got, expected):
    """Norm of the difference over the norm of the expected values; infinite if any value is not finite."""
    got, expected = got.double(), expected.double()
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got - expected).norm() / expected.norm())


class Gpu:
    def __init__(self, library):
        import torch
        self.torch, self.call = torch, library
        self.stream = Pointer(torch.cuda.current_stream().cuda_stream)
        hopper = torch.cuda.get_device_capability() == (9, 0)
        self.kernels = [("trireme sm_80", 0)] + ([("trireme sm_90a", 1)] if hopper else [])
        self.results = []

    def pointer(self, tensor):
        return Pointer(0 if tensor is None else tensor.data_ptr())

    def uniform(self, *shape, dtype=None):
        torch = self.torch
        return (torch.rand(shape, device="cuda") * 2 - 1).to(dtype or torch.bfloat16)

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

    def case(self, name, error, accepted, sides, sets, flops=0.0, moved=0.0):
        """sides: [(who, callable of the number of the input set)]; ours are those whose name begins with trireme."""
        row = {"case": name, "error": error, "accepted": accepted, "passed": error < accepted}
        if row["passed"]:
            times = self.time([side for _, side in sides], sets)
            row["ms"] = {who: t for (who, _), t in zip(sides, times)}
            ours = min((t for who, t in row["ms"].items() if who.startswith("trireme")), default=times[0])
            others = [t for who, t in row["ms"].items() if not who.startswith("trireme")]
            if others and len(others) < len(times):
                row["ratio"] = min(others) / ours  # above 1: the best of ours is faster than the best of the others
            if flops:
                row["tflops"] = flops / ours / 1e9
            if moved:
                row["gbytes_per_s"] = moved / ours / 1e6
        self.results.append(row)
        print(line_of(row), flush=True)

    # A device-to-device copy: the reference for memory-bound kernels.
    def copy(self):
        a = self.uniform(1 << 29)
        b = self.torch.empty_like(a)
        self.case("copy 1 GiB", 0.0, 1e-9, [("torch", lambda i: b.copy_(a))], 1, moved=2.0 * a.nbytes)

    def gemm(self):
        torch = self.torch
        shapes = [("square 4096", 1, 4096, 4096, 4096), ("square 8192", 1, 8192, 8192, 8192),
                  ("GPT-2 qkv", 1, 8192, 2304, 768), ("GPT-2 fc", 1, 8192, 3072, 768),
                  ("GPT-2 proj", 1, 8192, 768, 3072), ("GPT-2 logits", 1, 8192, 50304, 768),
                  ("GPT-2 fc, gradient of weights", 2, 3072, 768, 8192),
                  ("GPT-2 fc, gradient of inputs", 0, 8192, 768, 3072)]
        for name, form, m, n, k in shapes:
            sets = max(2, math.ceil(3 * L2_BYTES / (2.0 * (m * k + k * n + m * n))))
            a = [self.uniform(*((k, m) if form == 2 else (m, k))) for _ in range(sets)]
            b = [self.uniform(*((n, k) if form == 1 else (k, n))) for _ in range(sets)]
            c = [torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
            bias, rows = self.uniform(n), min(m, 512)

            def ours(hopper, gelu=0, added=None):
                def run(i):
                    self.call("gemm", hopper, form, m, n, k, self.pointer(a[i]), self.pointer(b[i]), self.pointer(c[i]),
                              self.pointer(added), gelu, self.pointer(None), self.stream)
                return run

            def error_of(run, expected):
                c[0].fill_(math.nan)
                run(0)
                return distance(torch, c[0][:rows], expected)

            def operands(i):
                return (a[i].t() if form == 2 else a[i]), (b[i].t() if form == 1 else b[i])

            def torch_product(i):
                x, y = operands(i)
                torch.matmul(x, y, out=c[i])

            x, y = operands(0)
            product = x[:rows].double() @ y.double()
            kernels = self.kernels
            error = max(error_of(ours(hopper), product) for _, hopper in kernels)
            self.case(f"gemm {name} {m}x{n}x{k}", error, 4e-3,
                      [(who, ours(hopper)) for who, hopper in kernels] + [("cuBLASLt", torch_product)], sets,
                      flops=2.0 * m * n * k)
            if name == "GPT-2 fc":
                def torch_gelu(i):
                    torch.nn.functional.gelu(torch.nn.functional.linear(a[i], b[i], bias), approximate="tanh")

                expected = torch.nn.functional.gelu(product + bias.double(), approximate="tanh")
                error = max(error_of(ours(hopper, 1, bias), expected) for _, hopper in kernels)
                self.case(f"gemm {name} + bias + GELU", error, 4e-3,
                          [(who, ours(hopper, 1, bias)) for who, hopper in kernels] + [("PyTorch", torch_gelu)], sets,
                          flops=2.0 * m * n * k)

    # Eight experts: rows in groups of random size, each with its own matrix; compared with one cuBLASLt call per group.
    def grouped(self):
        torch, groups, rows, width, hidden = self.torch, 8, 16384, 1024, 4096
        starts = [0, *sorted(random.Random(7).sample(range(1, rows), groups - 1)), rows]
        offsets = torch.tensor(starts, device="cuda", dtype=torch.int32)
        for name, form, m, n, k in [("forward", 1, rows, hidden, width), ("gradient of inputs", 0, rows, width, hidden),
                                    ("gradient of weights", 2, hidden, width, rows)]:
            sets = 2  # each is larger than three times the L2
            a = [self.uniform(*((k, m) if form == 2 else (m, k))) for _ in range(sets)]
            b = [self.uniform(*((groups, k, n), (groups, n, k), (k, n))[form]) for _ in range(sets)]
            c = [torch.full((groups, m, n) if form == 2 else (m, n), math.nan, device="cuda", dtype=torch.bfloat16)
                 for _ in range(sets)]

            def ours(hopper):
                return lambda i: self.call("grouped_gemm", hopper, form, groups, m, n, k, self.pointer(offsets),
                                           self.pointer(a[i]), self.pointer(b[i]), self.pointer(c[i]), self.stream)

            def parts(i, g):
                """The operands of group g, and the destination of their product."""
                run = slice(starts[g], starts[g + 1])
                if form == 2:
                    return a[i][run].t(), b[i][run], c[i][g]
                return a[i][run], b[i][g].t() if form == 1 else b[i][g], c[i][run]

            def one_by_one(i):
                for g in range(groups):
                    x, y, to = parts(i, g)
                    torch.matmul(x, y, out=to)

            def error_of(run):
                c[0].fill_(math.nan)
                run(0)
                return max(distance(torch, to, x.double() @ y.double()) for x, y, to in
                           (parts(0, g) for g in range(groups)))

            kernels = self.kernels
            error = max(error_of(ours(hopper)) for _, hopper in kernels)
            self.case(f"grouped {name} {groups} of {m}x{n}x{k}", error, 4e-3,
                      [(who, ours(hopper)) for who, hopper in kernels] + [("cuBLASLt, a call each", one_by_one)], sets,
                      flops=2.0 * m * n * k)

    def attention(self):
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        backends = [("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)]
        for dim in (64, 128):
            for tokens in (1024, 4096, 16384):
                for causal in (True, False):
                    heads, batch = 2048 // dim, max(1, 16384 // tokens)
                    shape = (batch, tokens, heads, dim)
                    q, k, v = (self.uniform(*shape) for _ in range(3))
                    out = torch.full(shape, math.nan, device="cuda", dtype=torch.bfloat16)
                    lse = torch.empty(batch, heads, tokens, device="cuda")
                    scale = 1 / math.sqrt(dim)

                    def ours(hopper):
                        return lambda _: self.call("attention_forward", hopper, batch, heads, dim, tokens, int(causal),
                                                   scale, *(self.pointer(t) for t in (q, k, v, out, lse)), self.stream)

                    def library(backend):
                        def run(_):
                            with sdpa_kernel(backend):
                                torch.nn.functional.scaled_dot_product_attention(
                                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal)
                        return run

                    last = slice(tokens - 256, tokens)  # of the last head: those queries see the most keys
                    scores = q[-1, last, -1].double() @ k[-1, :, -1].double().t() * scale
                    if causal:
                        ahead = torch.arange(tokens, device="cuda") > torch.arange(tokens, device="cuda")[last, None]
                        scores = scores.masked_fill(ahead, -math.inf)
                    expected = torch.softmax(scores, -1) @ v[-1, :, -1].double()

                    def error_of(run):
                        out.fill_(math.nan)
                        run(0)
                        return distance(torch, out[-1, last, -1], expected)

                    error = max(error_of(ours(hopper)) for _, hopper in self.kernels)
                    self.case(f"attention d{dim} {'causal' if causal else 'full'} {tokens}", error, 8e-3,
                              [(who, ours(hopper)) for who, hopper in self.kernels] +
                              [(who, library(b)) for who, b in backends], 1,
                              flops=4.0 * batch * heads * tokens * tokens * dim / (2 if causal else 1))

    def backward(self):
        """Of attention. The libraries' times are those of autograd, which allocates its results."""
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        backends = [("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)]
        for dim in (64, 128):
            for tokens in (1024, 4096):
                heads, batch, scale = 2048 // dim, 16384 // tokens, 1 / math.sqrt(dim)
                shape = (batch, tokens, heads, dim)
                q, k, v, dout = (self.uniform(*shape) for _ in range(4))
                out, dq, dk, dv = (torch.full(shape, math.nan, device="cuda", dtype=torch.bfloat16) for _ in range(4))
                lse, delta = (torch.empty(batch, heads, tokens, device="cuda") for _ in range(2))
                about = (batch, heads, dim, tokens, 1, scale)
                self.call("attention_forward", 0, *about, *(self.pointer(t) for t in (q, k, v, out, lse)), self.stream)

                def ours(hopper):
                    tensors = (q, k, v, out, lse, dout, dq, dk, dv, delta)
                    return lambda _: self.call("attention_backward", hopper, *about,
                                               *(self.pointer(t) for t in tensors), self.stream)

                def library(backend):
                    inputs = [t.transpose(1, 2).detach().requires_grad_() for t in (q, k, v)]
                    with sdpa_kernel(backend):
                        result = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
                    return lambda _: torch.autograd.grad(result, inputs, dout.transpose(1, 2), retain_graph=True)

                last = [t[-1, :, -1].double().requires_grad_() for t in (q, k, v)]  # the last head
                scores = (last[0] @ last[1].t() * scale).masked_fill(
                    torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).triu(1), -math.inf)
                expected = torch.autograd.grad(torch.softmax(scores, -1) @ last[2], last, dout[-1, :, -1].double())

                def error_of(run):
                    for gradient in (dq, dk, dv):
                        gradient.fill_(math.nan)
                    run(0)
                    return max(distance(torch, got[-1, :, -1], e) for got, e in zip((dq, dk, dv), expected))

                error = max(error_of(ours(hopper)) for _, hopper in self.kernels)
                self.case(f"attention backward d{dim} causal {tokens}", error, 1.5e-2,
                          [(who, ours(hopper)) for who, hopper in self.kernels] +
                          [(who, library(b)) for who, b in backends], 1,
                          flops=5.0 * batch * heads * tokens * tokens * dim)

    def norm(self):
        torch = self.torch
        rows, width, sets = 32768, 768, 3
        x, r = ([self.uniform(rows, width) for _ in range(sets)] for _ in range(2))
        total, y = (torch.full((rows, width), math.nan, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        gamma, beta = self.uniform(width), self.uniform(width)
        mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))

        def ours(i):
            self.call("layer_norm", rows, width, *(self.pointer(t) for t in
                                                   (x[i], r[i], total, gamma, beta, y, mean, rstd)), self.stream)

        def theirs(i):
            torch.nn.functional.layer_norm(x[i] + r[i], (width,), gamma, beta, 1e-5)

        ours(0)
        error = distance(torch, y, torch.nn.functional.layer_norm((x[0] + r[0]).double(), (width,), gamma.double(),
                                                                  beta.double(), 1e-5))
        self.case(f"residual + LayerNorm {rows}x{width}", error, 8e-3, [("trireme", ours), ("PyTorch", theirs)], sets,
                  moved=4.0 * rows * width * 2)

    def cross_entropy(self):
        torch = self.torch
        rows, columns, valid = 8192, 50304, 50257
        logits = self.uniform(rows, columns) * 4
        targets = torch.randint(0, valid, (rows,), device="cuda")
        narrow = targets.int()
        work, losses = torch.empty(4 * rows, device="cuda"), torch.empty(rows, device="cuda", dtype=torch.float64)
        buffer = logits.clone()

        def ours(_):
            self.call("cross_entropy", rows, columns, valid, *(self.pointer(t) for t in
                                                               (buffer, narrow, work, losses)), self.stream)

        ours(0)
        some = slice(0, 512)
        x = logits[some, :valid].double()
        expected = torch.softmax(x, -1)
        expected[torch.arange(512, device="cuda"), targets[some]] -= 1
        error = distance(torch, buffer[some, :valid], expected / rows)

        def theirs(_):
            x = logits.detach().requires_grad_()
            torch.nn.functional.cross_entropy(x, targets).backward()

        # Reads twice, writes once. Timed runs take gradients as input, which cost the same as logits.
        self.case(f"cross-entropy {rows}x{columns}", error, 8e-3, [("trireme", ours), ("PyTorch", theirs)], 1,
                  moved=3.0 * rows * columns * 2)

    def adamw(self):
        torch = self.torch
        count = 124_439_808
        weight, m, v = (self.uniform(count, dtype=torch.float32) for _ in range(3))
        v.abs_()
        gradient, low = self.uniform(count), torch.empty(count, device="cuda", dtype=torch.bfloat16)
        before = [t[:100000].double() for t in (weight, m, v, gradient)]

        def ours(_):
            self.call("adamw", *(self.pointer(t) for t in (weight, m, v, gradient, low)), count, 0.1, 1e-3, 0.9, 0.95,
                      1e-8, 10, self.stream)

        ours(0)
        w, m1, v1, g = before
        m1, v1 = 0.9 * m1 + 0.1 * g, 0.95 * v1 + 0.05 * g * g
        step = m1 / (1 - 0.9 ** 10) / ((v1 / (1 - 0.95 ** 10)).sqrt() + 1e-8) + 0.1 * w
        error = distance(torch, weight[:100000] - w.float(), -1e-3 * step)
        parameter = torch.nn.Parameter(weight.clone())
        parameter.grad = gradient.float()
        optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.case("AdamW 124M, bf16 gradients and copy", error, 1e-3,
                  [("trireme", ours), ("PyTorch fused, f32", lambda i: optimizer.step())], 1, moved=28.0 * count)

    def has(self, level):
        """True if this GPU can run a level of a ladder."""
        return not level.endswith("sm90") or len(self.kernels) > 1

    def ladder(self):
        """The gain of each level of the ladders of examples/cuda_lab: a table for docs/ladder.md."""
        torch, n = self.torch, 4096
        a, b = self.uniform(n, n), self.uniform(n, n)
        c = torch.empty(n, n, device="cuda")
        rows = slice(0, 256)
        expected = a[rows].double() @ b.double()
        for level, name in enumerate(self.call.ladder(0)):
            if not self.has(name):
                continue

            def product(_, level=level):
                self.call("ladder_gemm", level, n, *(self.pointer(t) for t in (a, b, c)), self.stream)

            c.fill_(math.nan)
            product(0)
            self.case(f"ladder, product {n}: {name} (limit {self.call.ladder_limit(level):.0f} TFLOP/s)",
                      distance(torch, c[rows], expected), 1e-3, [("trireme", product)], 1, flops=2.0 * n ** 3)
        heads, tokens, dim = 16, 4096, 64
        q, k, v = (self.uniform(heads, tokens, dim) for _ in range(3))
        out = torch.empty_like(q)
        scores = torch.empty(heads, tokens, tokens, device="cuda")
        expected = torch.softmax(q[0, rows].double() @ k[0].double().t() / 8, -1) @ v[0].double()
        for level, name in enumerate(self.call.ladder(1)):
            if not self.has(name):
                continue

            def attention(_, level=level):
                self.call("ladder_attention", level, heads, tokens, 0, 0.125,
                          *(self.pointer(t) for t in (q, k, v, out, scores)), self.stream)

            out.fill_(math.nan)
            attention(0)
            self.case(f"ladder, attention {tokens}: {name}", distance(torch, out[0, rows], expected), 8e-3,
                      [("trireme", attention)], 1, flops=4.0 * heads * tokens * tokens * dim)

    def ladder_memory(self):
        """The gain of each level of the other ladders, at the sizes of GPT-2 124M. Each ladder fills its own
        arrays: first small ones, which it compares with f64, then large ones."""
        for ladder, name, flops, levels in self.call.memory_ladders():
            self.call("memory_open", ladder, 0)
            numbers = [number for number, level in enumerate(levels) if self.has(level[0])]
            errors = {number: self.call.memory_error(number) for number in numbers}
            self.call("memory_open", ladder, 1)
            needed = {"flops": flops} if flops else {"moved": min(megabytes for _, megabytes, _, _ in levels) * 1e6}
            for number in numbers:
                level, _, bound, forecast = levels[number]

                def run(_, number=number):
                    self.call("memory_run", number, self.stream)

                self.case(f"ladder, {name}: {level} (bound {bound:.0f}, forecast {forecast:.0f} us)", errors[number],
                          1.0, [("trireme", run)], 1, **needed)
            self.call("memory_open", -1, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="the shared library of bench/cuda/shim.cu")
    parser.add_argument("--out", required=True, help="where to write the results, as JSON")
    parser.add_argument("--only", default="", help="cases whose name starts with this: copy, gemm, attention, norm, ...")
    parser.add_argument("--rehearse", action="store_true", help="the emulated library, tiny sizes, no GPU")
    options = parser.parse_args()
    if not os.path.exists(options.library):
        parser.error(f"--library {options.library} does not exist; expected what `./trireme build trireme_shim_emulated` "
                     "makes, or on a GPU `scripts/gpu_check build`")
    side = Emulated(Library(options.library)) if options.rehearse else Gpu(Library(options.library))
    ladders = ["ladder", "ladder_memory"]
    cases = ["gemm", "grouped", "attention", "cross_entropy", *ladders, "refusal"] if options.rehearse else \
        ["copy", "gemm", "grouped", "attention", "backward", "norm", "cross_entropy", "adamw", *ladders]
    failures, wrong = [], []
    for name in cases:
        if not name.startswith(options.only):
            continue
        try:
            getattr(side, name)()
        except Exception as error:  # a failed case must not stop the others
            failures.append({"case": name, "error": str(error)})
            print(f"{name}: {error}", file=sys.stderr, flush=True)
        wrong = save(options.out, side.results, failures)  # after each case: a time limit may end this program
    return 1 if wrong else 0


def save(path, rows, failures):
    """Writes all results so far; returns the failures."""
    far = [row for row in rows if not row["passed"]]
    wrong = failures + [{"case": row["case"], "error": f"distance to f64 {row['error']:.1e}"} for row in far]
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"rows": rows, "failures": wrong}, out, indent=1)
    return wrong


if __name__ == "__main__":
    sys.exit(main())

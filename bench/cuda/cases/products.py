"""Matrix products against cuBLASLt. Read next: bench/cuda/cases/attention.py."""
import math
import random

L2_BYTES = 60e6


class Products:
    def gemm(self):
        shapes = [("square 4096", 1, 4096, 4096, 4096), ("square 8192", 1, 8192, 8192, 8192),
                  ("GPT-2 qkv", 1, 8192, 2304, 768), ("GPT-2 fc", 1, 8192, 3072, 768),
                  ("GPT-2 proj", 1, 8192, 768, 3072), ("GPT-2 logits", 1, 8192, 50304, 768),
                  ("GPT-2 fc, gradient of weights", 2, 3072, 768, 8192),
                  ("GPT-2 fc, gradient of inputs", 0, 8192, 768, 3072)]
        for shape in shapes:
            self.product(*shape)

    def product(self, name, form, m, n, k):
        plain, activated = f"gemm {name} {m}x{n}x{k}", f"gemm {name} + bias + GELU"
        fused = name == "GPT-2 fc"
        if not self.wanted(plain) and not (fused and self.wanted(activated)):
            return
        torch = self.torch
        sets = max(2, math.ceil(3 * L2_BYTES / (2.0 * (m * k + k * n + m * n))))
        a = [self.uniform(*((k, m) if form == 2 else (m, k))) for _ in range(sets)]
        b = [self.uniform(*((n, k) if form == 1 else (k, n))) for _ in range(sets)]
        c = [self.empty(m, n) for _ in range(sets)]
        bias, rows = self.uniform(n), min(m, 512)

        def ours(hopper, gelu=0, added=None):
            return lambda i: self.call("gemm", hopper, form, m, n, k, *self.pointers(a[i], b[i], c[i], added), gelu,
                                       self.pointer(None), self.stream)

        def operands(i):
            return (a[i].t() if form == 2 else a[i]), (b[i].t() if form == 1 else b[i])

        def theirs(i):
            torch.matmul(*operands(i), out=c[i])

        def theirs_activated(i):
            torch.nn.functional.gelu(torch.nn.functional.linear(a[i], b[i], bias), approximate="tanh")

        x, y = operands(0)
        product = x[:rows].double() @ y.double()

        def sides(expected, *settings):
            def side(who, hopper):
                run = ours(hopper, *settings)
                return who, run, lambda: self.error_of(run, [c[0]], lambda: [(c[0][:rows], expected)])
            return [side(who, hopper) for who, hopper in self.kernels]

        self.case(plain, 4e-3, sides(product), [("cuBLASLt", theirs)], sets, flops=2.0 * m * n * k)
        if fused:
            expected = torch.nn.functional.gelu(product + bias.double(), approximate="tanh")
            self.case(activated, 4e-3, sides(expected, 1, bias), [("PyTorch", theirs_activated)], sets,
                      flops=2.0 * m * n * k)

    # Eight experts: rows in groups of random size, each with its own matrix; compared with one cuBLASLt call per group.
    def grouped(self):
        groups, rows, width, hidden = 8, 16384, 1024, 4096
        starts = [0, *sorted(random.Random(7).sample(range(1, rows), groups - 1)), rows]
        for name, form, m, n, k in [("forward", 1, rows, hidden, width), ("gradient of inputs", 0, rows, width, hidden),
                                    ("gradient of weights", 2, hidden, width, rows)]:
            case = f"grouped {name} {groups} of {m}x{n}x{k}"
            if self.wanted(case):
                self.grouped_product(case, form, starts, m, n, k)

    def grouped_product(self, case, form, starts, m, n, k):
        torch, groups, sets = self.torch, len(starts) - 1, 2  # each set is larger than three times the L2
        offsets = torch.tensor(starts, device="cuda", dtype=torch.int32)
        a = [self.uniform(*((k, m) if form == 2 else (m, k))) for _ in range(sets)]
        b = [self.uniform(*((groups, k, n), (groups, n, k), (k, n))[form]) for _ in range(sets)]
        c = [self.empty(*((groups, m, n) if form == 2 else (m, n))) for _ in range(sets)]

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

        def compared():
            for x, y, to in (parts(0, g) for g in range(groups)):
                yield to, x.double() @ y.double()

        def side(who, hopper):
            def run(i):
                self.call("grouped_gemm", hopper, form, groups, m, n, k, *self.pointers(offsets, a[i], b[i], c[i]),
                          self.stream)
            return who, run, lambda: self.error_of(run, [c[0]], compared)

        self.case(case, 4e-3, [side(who, hopper) for who, hopper in self.kernels],
                  [("cuBLASLt, a call each", one_by_one)], sets, flops=2.0 * m * n * k)

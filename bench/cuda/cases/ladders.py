"""The gain of each level of the ladders of examples/cuda_lab: tables for docs/ladder.md."""


class Ladders:
    def has(self, level):
        """True if this GPU can run a level of a ladder."""
        return not level.endswith("sm90") or len(self.kernels) > 1

    def levels(self, attention, prefix):
        """(number, case) of the levels that are still to be measured."""
        names = enumerate(self.call.ladder(attention))
        found = [(level, f"{prefix}: {name}") for level, name in names if self.has(name)]
        return [(level, case) for level, case in found if case not in self.journal.done]

    def ladder(self):
        self.ladder_of_products()
        self.ladder_of_attention()

    def ladder_of_products(self):
        torch, n, rows = self.torch, 4096, slice(0, 256)
        levels = self.levels(0, f"ladder, product {n}")
        if not levels:
            return
        a, b = self.uniform(n, n), self.uniform(n, n)
        c = torch.empty(n, n, device="cuda")
        expected = a[rows].double() @ b.double()
        for level, case in levels:
            def run(_, level=level):
                self.call("ladder_gemm", level, n, *self.pointers(a, b, c), self.stream)

            self.case(case, 1e-3, [("trireme", run, lambda: self.error_of(run, [c], lambda: [(c[rows], expected)]))], [],
                      1, flops=2.0 * n ** 3, limit_tflops=self.call.ladder_limit(level))

    def ladder_of_attention(self):
        torch, heads, tokens, dim, rows = self.torch, 16, 4096, 64, slice(0, 256)
        levels = self.levels(1, f"ladder, attention {tokens}")
        if not levels:
            return
        q, k, v = (self.uniform(heads, tokens, dim) for _ in range(3))
        out, scores = torch.empty_like(q), torch.empty(heads, tokens, tokens, device="cuda")
        expected = torch.softmax(q[0, rows].double() @ k[0].double().t() / 8, -1) @ v[0].double()
        for level, case in levels:
            def run(_, level=level):
                self.call("ladder_attention", level, heads, tokens, 0, 0.125, *self.pointers(q, k, v, out, scores),
                          self.stream)

            self.case(case, 8e-3, [("trireme", run,
                                    lambda: self.error_of(run, [out], lambda: [(out[0, rows], expected)]))], [], 1,
                      flops=4.0 * heads * tokens * tokens * dim)

    def ladder_memory(self):
        """The other ladders, at the sizes of GPT-2 124M. Each fills its own arrays: small ones to compare a level with
        f64, then large ones to time it."""
        for ladder, name, flops, levels in self.call.memory_ladders():
            needed = {"flops": flops} if flops else {"moved": min(megabytes for _, megabytes, _, _ in levels) * 1e6}
            for number, (level, _, bound, forecast) in enumerate(levels):
                case = f"ladder, {name}: {level} (on an H200: bound {bound:.0f}, forecast {forecast:.0f} us)"
                if self.has(level) and self.wanted(case):
                    self.level(case, ladder, number, needed)

    def level(self, case, ladder, number, needed):
        def run(_):
            self.call("memory_run", number, self.stream)

        def error():
            self.call("memory_open", ladder, 0)
            found = self.call.memory_error(number)
            self.call("memory_open", ladder, 1)
            return found

        self.case(case, 1.0, [("trireme", run, error)], [], 1, **needed)
        self.call("memory_open", -1, 0)

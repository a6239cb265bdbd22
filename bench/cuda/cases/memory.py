"""Kernels that memory bounds, against PyTorch's. Read next: bench/cuda/cases/ladders.py."""


class Memory:
    # A device-to-device copy: the reference for memory-bound kernels.
    def copy(self):
        if not self.wanted("copy 1 GiB"):
            return
        a = self.uniform(1 << 29)
        b = self.torch.empty_like(a)
        self.case("copy 1 GiB", 0, [], [("torch", lambda i: b.copy_(a))], 1, moved=2.0 * a.nbytes)

    def norm(self):
        torch, rows, width, sets = self.torch, 32768, 768, 3
        case = f"residual + LayerNorm {rows}x{width}"
        if not self.wanted(case):
            return
        x, r = ([self.uniform(rows, width) for _ in range(sets)] for _ in range(2))
        total, y = self.empty(rows, width), self.empty(rows, width)
        gamma, beta = self.uniform(width), self.uniform(width)
        mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))

        def ours(i):
            self.call("layer_norm", rows, width, *self.pointers(x[i], r[i], total, gamma, beta, y, mean, rstd),
                      self.stream)

        def theirs(i):
            torch.nn.functional.layer_norm(x[i] + r[i], (width,), gamma, beta, 1e-5)

        expected = torch.nn.functional.layer_norm((x[0] + r[0]).double(), (width,), gamma.double(), beta.double(), 1e-5)
        self.case(case, 8e-3, [("trireme", ours, lambda: self.error_of(ours, [y], lambda: [(y, expected)]))],
                  [("PyTorch", theirs)], sets, moved=4.0 * rows * width * 2)

    def cross_entropy(self):
        torch, rows, columns, valid = self.torch, 8192, 50304, 50257
        case = f"cross-entropy {rows}x{columns}"
        if not self.wanted(case):
            return
        logits = self.uniform(rows, columns) * 4
        targets = torch.randint(0, valid, (rows,), device="cuda")
        narrow = targets.int()
        work, losses = torch.empty(4 * rows, device="cuda"), torch.empty(rows, device="cuda", dtype=torch.float64)
        buffer, some = logits.clone(), slice(0, 512)
        expected = torch.softmax(logits[some, :valid].double(), -1)
        expected[torch.arange(512, device="cuda"), targets[some]] -= 1

        def ours(_):
            self.call("cross_entropy", rows, columns, valid, *self.pointers(buffer, narrow, work, losses), self.stream)

        def theirs(_):
            x = logits.detach().requires_grad_()
            torch.nn.functional.cross_entropy(x, targets).backward()

        # Reads once, writes once. Timed runs take gradients as input, which cost the same as logits.
        self.case(case, 8e-3,
                  [("trireme", ours, lambda: self.error_of(ours, [], lambda: [(buffer[some, :valid], expected / rows)]))],
                  [("PyTorch", theirs)], 1, moved=2.0 * rows * columns * 2)

    def adamw(self):
        case = "AdamW 124M, bf16 gradients and copy"
        if not self.wanted(case):
            return
        torch, count = self.torch, 124_439_808
        weight, m, v = (self.uniform(count, dtype=torch.float32) for _ in range(3))
        v.abs_()
        gradient, low = self.uniform(count), torch.empty(count, device="cuda", dtype=torch.bfloat16)
        w, m1, v1, g = (t[:100000].double() for t in (weight, m, v, gradient))
        m1, v1 = 0.9 * m1 + 0.1 * g, 0.95 * v1 + 0.05 * g * g
        step = m1 / (1 - 0.9 ** 10) / ((v1 / (1 - 0.95 ** 10)).sqrt() + 1e-8) + 0.1 * w
        parameter = torch.nn.Parameter(weight.clone())
        parameter.grad = gradient.float()
        optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

        def ours(_):
            self.call("adamw", *self.pointers(weight, m, v, gradient, low), count, 0.1, 1e-3, 0.9, 0.95, 1e-8, 10,
                      self.stream)

        def moved_by():
            yield weight[:100000] - w.float(), -1e-3 * step

        self.case(case, 1e-3, [("trireme", ours, lambda: self.error_of(ours, [], moved_by))],
                  [("PyTorch fused, f32", lambda i: optimizer.step())], 1, moved=28.0 * count)

"""Attention against cuDNN and FlashAttention. Read next: bench/cuda/cases/memory.py."""
import math


class Attention:
    def attention(self):
        for dim in (64, 128):
            for tokens in (1024, 4096, 16384):
                for causal in (True, False):
                    case = f"attention d{dim} {'causal' if causal else 'full'} {tokens}"
                    if self.wanted(case):
                        self.attention_forward(case, dim, tokens, causal)

    def backends(self):
        from torch.nn.attention import SDPBackend
        return [("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)]

    def attention_forward(self, case, dim, tokens, causal):
        torch = self.torch
        from torch.nn.attention import sdpa_kernel
        heads, batch, scale = 2048 // dim, max(1, 16384 // tokens), 1 / math.sqrt(dim)
        shape = (batch, tokens, heads, dim)
        q, k, v = (self.uniform(*shape) for _ in range(3))
        out, lse = self.empty(*shape), torch.empty(batch, heads, tokens, device="cuda")

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

        def side(who, hopper):
            def run(_):
                self.call("attention_forward", hopper, batch, heads, dim, tokens, int(causal), scale,
                          *self.pointers(q, k, v, out, lse), self.stream)
            return who, run, lambda: self.error_of(run, [out], lambda: [(out[-1, last, -1], expected)])

        tiles = [(f"trireme sm_90a, {n} queries", n) for n in (128, 192) if dim == 64 and len(self.kernels) == 2]
        self.case(case, 8e-3, [side(who, hopper) for who, hopper in self.kernels + tiles],
                  [(who, library(b)) for who, b in self.backends()], 1,
                  flops=4.0 * batch * heads * tokens * tokens * dim / (2 if causal else 1))

    def backward(self):
        """Of attention. The libraries' times are those of autograd, which allocates its results."""
        for dim in (64, 128):
            for tokens in (1024, 4096):
                case = f"attention backward d{dim} causal {tokens}"
                if self.wanted(case):
                    self.attention_backward(case, dim, tokens)

    def forward_by_torch(self, q, k, v, scale):
        """out and lse of causal attention, a sequence at a time: a wrong kernel of ours cannot spoil the backward."""
        torch, tokens = self.torch, q.shape[1]
        ahead = torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).triu(1)
        outs, sums = [], []
        for x, y, z in zip(q.transpose(1, 2).float(), k.transpose(1, 2).float(), v.transpose(1, 2).float()):
            scores = (x @ y.transpose(1, 2) * scale).masked_fill(ahead, -math.inf)  # [heads, tokens, tokens]
            sums.append(torch.logsumexp(scores, -1))
            outs.append((torch.softmax(scores, -1) @ z).transpose(0, 1))
        return torch.stack(outs).to(q.dtype).contiguous(), torch.stack(sums).contiguous()

    def attention_backward(self, case, dim, tokens):
        torch = self.torch
        from torch.nn.attention import sdpa_kernel
        heads, batch, scale = 2048 // dim, 16384 // tokens, 1 / math.sqrt(dim)
        shape = (batch, tokens, heads, dim)
        q, k, v, dout = (self.uniform(*shape) for _ in range(4))
        gradients = [self.empty(*shape) for _ in range(3)]
        out, lse = self.forward_by_torch(q, k, v, scale)
        delta = torch.empty(batch, heads, tokens, device="cuda")

        def library(backend):
            made = []  # the forward pass runs at the first call, so that a backend's refusal is its own

            def run(_):
                if not made:
                    inputs = [t.transpose(1, 2).detach().requires_grad_() for t in (q, k, v)]
                    with sdpa_kernel(backend):
                        made.extend([inputs, torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)])
                torch.autograd.grad(made[1], made[0], dout.transpose(1, 2), retain_graph=True)
            return run

        last = [t[-1, :, -1].double().requires_grad_() for t in (q, k, v)]  # the last head
        scores = (last[0] @ last[1].t() * scale).masked_fill(
            torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).triu(1), -math.inf)
        expected = torch.autograd.grad(torch.softmax(scores, -1) @ last[2], last, dout[-1, :, -1].double())

        def side(who, hopper):
            def run(_):
                self.call("attention_backward", hopper, batch, heads, dim, tokens, 1, scale,
                          *self.pointers(q, k, v, out, lse, dout, *gradients, delta), self.stream)
            return who, run, lambda: self.error_of(run, gradients, lambda: zip((g[-1, :, -1] for g in gradients),
                                                                               expected))

        self.case(case, 1.5e-2, [side(who, hopper) for who, hopper in self.kernels],
                  [(who, library(b)) for who, b in self.backends()], 1,
                  flops=5.0 * batch * heads * tokens * tokens * dim)

#!/usr/bin/env python3
"""Make masked_attention.safetensors: attention with masks, windows and capped scores by PyTorch in float64.

    python3 tests/golden/make_masked_attention.py

Each case has q [B, Tq, H, Dh], k and v [B, Tk, Hkv, Dh], out and dout [B, Tq, H, Dh], dq, dk and dv; some have a mask
(U8, or F64 with dmask). tests/autograd/masked_attention_test.cpp says which options a case has.
"""

import math

import numpy as np
import torch

import make_goldens

make_goldens.DTYPES["U8"] = np.dtype("u1")
BATCH, QUERIES, KEYS, HEADS, KV_HEADS, WIDTH = 2, 5, 7, 4, 2, 3
CAP, WINDOW = 1.5, 3
GENERATOR = torch.Generator().manual_seed(11)


def normal(*shape):
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def attention(q, k, v, mask, causal, window, cap):
    """By plain operations; k and v are repeated for the heads that share them."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B, H, T, Dh]
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if mask is not None and mask.dtype != torch.uint8:
        scores = scores + mask
    seen = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    if causal:
        seen = seen.tril(KEYS - QUERIES)
    if window:
        seen = seen.triu(KEYS - QUERIES - window + 1)
    if mask is not None and mask.dtype == torch.uint8:
        seen = seen & mask.bool()
    probabilities = torch.softmax(scores.masked_fill(~seen, -math.inf), -1)
    return (probabilities.nan_to_num(0.0) @ v).transpose(1, 2)


def make(name, tensors, mask=None, causal=False, window=0, cap=0.0):
    q = normal(BATCH, QUERIES, HEADS, WIDTH)
    k, v = normal(BATCH, KEYS, KV_HEADS, WIDTH), normal(BATCH, KEYS, KV_HEADS, WIDTH)
    learned = mask is not None and mask.dtype != torch.uint8
    inputs = [x.requires_grad_() for x in ([q, k, v, mask] if learned else [q, k, v])]
    out = attention(q, k, v, mask, causal, window, cap)
    dout = normal(*out.shape)
    gradients = torch.autograd.grad(out, inputs, dout)
    found = {"q": q, "k": k, "v": v, "out": out, "dout": dout}
    found |= dict(zip(("dq", "dk", "dv", "dmask"), gradients))
    if mask is not None:
        found["mask"] = mask
    tensors |= {f"{name}.{key}": value.detach().contiguous().numpy() for key, value in found.items()}


def main():
    torch.set_num_threads(1)
    tensors = {}
    padding = torch.tensor([[1] * KEYS, [1, 1, 1, 0, 0, 1, 0]], dtype=torch.uint8).view(BATCH, 1, 1, KEYS)
    some = (torch.rand(BATCH, HEADS, QUERIES, KEYS, generator=GENERATOR) < 0.6).to(torch.uint8)
    make("plain", tensors)
    make("window", tensors, causal=True, window=WINDOW)
    make("padding", tensors, mask=padding)
    make("boolean", tensors, mask=some, causal=True)
    make("bias", tensors, mask=normal(1, HEADS, QUERIES, KEYS), causal=True)
    make("capped", tensors, cap=CAP)
    make("all", tensors, mask=normal(BATCH, 1, QUERIES, KEYS), causal=True, window=WINDOW, cap=CAP)
    make_goldens.save("masked_attention", tensors)


if __name__ == "__main__":
    main()

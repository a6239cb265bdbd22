#!/usr/bin/env python3
"""Make autocast.safetensors: a block and a convolution with f32 parameters under torch.autocast, in bfloat16.

    python3 tests/golden/make_autocast.py

NAME is an input or a parameter, "bf16.NAME" its gradient under autocast, "f64.NAME" that in float64; "bf16.loss" and
"f64.loss" are the losses. tests/autograd/autocast_test.cpp has the same functions. Needs PyTorch and numpy.
"""

import contextlib

import torch
import torch.nn.functional as F

from make_goldens import save

B, T, H, D, FFN, V = 3, 7, 2, 8, 20, 11
SHAPES = {
    "x": (B, T, D), "gain": (D,), "shift": (D,), "q": (D, D), "k": (D, D), "v": (D, D), "o": (D, D), "o_bias": (D,),
    "up": (FFN, D), "up_bias": (FFN,), "down": (D, FFN), "head": (V, D),
    "image": (2, 3, 6, 5), "kernel": (4, 3, 3, 3), "kernel_bias": (4,),
}  # fmt: skip


def loss_of(p, targets):
    heads = lambda t: t.view(B, T, H, D // H).transpose(1, 2)
    n = F.layer_norm(p["x"], (D,), p["gain"], p["shift"])
    q, k, v = (heads(F.linear(n, p[name])) for name in "qkv")
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
    y = p["x"] + F.linear(mixed, p["o"], p["o_bias"])
    z = y + F.linear(F.gelu(F.linear(y, p["up"], p["up_bias"])), p["down"])
    logits = F.linear(z, p["head"])
    image = F.conv2d(p["image"], p["kernel"], p["kernel_bias"], padding=1)
    return F.cross_entropy(logits.view(-1, V), targets.view(-1)) + image.square().sum() / 100


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    start = {name: 0.7 * torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    targets = torch.randint(V, (B, T), generator=generator)
    tensors = start | {"targets": targets.int()}
    for name, dtype in (("bf16", torch.float32), ("f64", torch.float64)):
        leaves = {key: t.clone().to(dtype).requires_grad_() for key, t in start.items()}
        autocast = torch.autocast("cpu", torch.bfloat16) if name == "bf16" else contextlib.nullcontext()
        with autocast:
            loss = loss_of(leaves, targets)
        loss.backward()
        tensors[f"{name}.loss"] = loss.detach().float().view(1)
        tensors |= {f"{name}.{key}": leaf.grad.float() for key, leaf in leaves.items()}
    save("autocast", tensors)


if __name__ == "__main__":
    main()

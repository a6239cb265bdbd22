#!/usr/bin/env python3
"""The peer of generate_bench: generates with GPT-2 124M, random weights, one token at a time, in PyTorch on the CPU.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 python3 bench/peers/pytorch_generate.py \\
        --dtype bf16 --compile

Keys and values of earlier tokens are kept in fixed buffers. In eager mode attention reads only the filled part. When
compiled it reads the whole buffer with a mask, because shapes must not change (Inductor with frozen, packed weights).
Weights have --dtype; sampling is greedy. The protocol is that of turns.py; a step is one token.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

import pytorch_gpt
import turns

PROMPT, LENGTH = 64, 192  # tokens before the first step, and of the buffers


class Decoder(nn.Module):
    """One token through the weights of a Gpt."""

    def __init__(self, gpt, masked):
        super().__init__()
        self.gpt, self.masked = gpt, masked
        like = gpt.wte.weight
        heads, width = gpt.blocks[0].heads, like.shape[1]
        self.keys = [like.new_zeros(1, heads, LENGTH, width // heads) for _ in gpt.blocks]
        self.values = [torch.zeros_like(k) for k in self.keys]

    def attention(self, block, x, position, keys, values):  # [1, 1, D]
        heads = block.heads
        q, k, v = block.qkv(block.norm1(x)).view(3, 1, heads, 1, -1)  # [1, H, 1, Dh] each
        if self.masked:
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            mask = torch.arange(LENGTH) <= position
            out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask.view(1, 1, 1, -1))
        else:
            at = int(position)
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
            out = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
        return block.proj(out.reshape(1, 1, -1))

    def forward(self, token, position):  # [1, 1], [1] -> [1, 1]
        gpt = self.gpt
        x = gpt.wte(token) + gpt.wpe(position)
        for block, keys, values in zip(gpt.blocks, self.keys, self.values):
            x = x + self.attention(block, x, position, keys, values)
            x = x + block.down(F.gelu(block.up(block.norm2(x)), approximate=block.gelu))
        return F.linear(gpt.norm(x), gpt.wte.weight).argmax(-1)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304, "seed": 1337,
                          "threads": 2}.items():
        p.add_argument("--" + flag, type=int, default=default, help=f"default {default}")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--compile", nargs="?", const="default", help="torch.compile, and its mode")
    turns.add_flags(p)
    return p.parse_args()


@torch.no_grad()
def main():
    o = parse()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    gpt = pytorch_gpt.Gpt(o.vocab, argparse.Namespace(**vars(o), bias="on", gelu="tanh")).eval()
    if o.dtype == "bf16":
        gpt = gpt.bfloat16()
    decoder = Decoder(gpt, masked=bool(o.compile))
    if o.compile:
        import torch._inductor.config as inductor
        inductor.freezing = True
        decoder = torch.compile(decoder, mode=o.compile)
    state = {"token": torch.zeros(1, 1, dtype=torch.long), "at": PROMPT}

    def step(_):
        state["token"] = decoder(state["token"], torch.tensor([state["at"]]))
        state["at"] = state["at"] + 1 if state["at"] + 1 < LENGTH else PROMPT

    turns.serve(o, step, lambda: None, {"version": torch.__version__, "threads": o.threads, "prompt": PROMPT,
                                        "parameters": sum(p.numel() for p in gpt.parameters())})


if __name__ == "__main__":
    main()

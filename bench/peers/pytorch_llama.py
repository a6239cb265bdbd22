"""A decoder like Llama's (Touvron et al. 2023) in PyTorch: the peer of train_gpt with RMS norms, rotary positions, SwiGLU
and shared heads of keys and values. bench/cuda/step.py times its training steps.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotation(length, features, base=10000.0):
    """Cosines and sines of the angles, [T, features / 2] each."""
    frequencies = base ** (-torch.arange(0, features, 2) / features)
    angles = torch.outer(torch.arange(length), frequencies)
    return angles.cos(), angles.sin()


def rotated(x, cos, sin):  # [B, H, T, Dh]; pairs are the halves of a head
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        width, self.heads, self.kv_heads = s["width"], s["heads"], s["kv_heads"]
        self.features = width // self.heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.features, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * s["ffn_width"], bias=False)
        self.down = nn.Linear(s["ffn_width"], width, bias=False)

    def forward(self, x, cos, sin):  # [B, T, D]
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, -1, self.features).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)  # [B, H, T, Dh]
        out = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True,
                                             enable_gqa=True)
        x = x + self.proj(out.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """s: layers, heads, kv_heads, width, ffn_width, context, vocab."""

    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s["vocab"], s["width"])
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.norm = nn.RMSNorm(s["width"], eps=1e-5)
        self.head = nn.Linear(s["width"], s["vocab"], bias=False)
        cos, sin = rotation(s["context"], s["width"] // s["heads"])
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):  # [B, T] each
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

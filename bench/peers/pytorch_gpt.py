#!/usr/bin/env python3
"""The peer of train_gpt: the same character-level GPT, data split and recipe in PyTorch on CPU.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 python3 bench/peers/pytorch_gpt.py --data book.txt

These are the best settings found: tcmalloc preloaded (Debian: libtcmalloc-minimal4; a small gain), one thread per core,
the fused AdamW, and the attention kernel that scaled_dot_product_attention chooses (all except the preload are the
defaults here). --compile gave no measurable gain in CPU time on one thread; measure it again on two. jemalloc needs
MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 to be as fast as the C library. Do not preload another OpenMP runtime:
PyTorch brings its own. Time it on an idle machine: threads that meet at every product suffer from any other load.
"""

import argparse
import contextlib
import math
import platform
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


# --- the model: GPT-2 ------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):  # [B, T, D]
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, T, Dh]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(out.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    def __init__(self, vocab, args):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, args.width), nn.Embedding(args.context, args.width)
        bias, gelu = args.bias == "on", getattr(args, "gelu", "none")
        self.blocks = nn.ModuleList(Block(args.width, args.heads, bias, gelu) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.width, bias=bias)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # GPT-2: 0.02, and less where blocks add to the residual stream; norms stay 1, biases 0
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * args.layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets, reduction="mean"):  # [B, T] each
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]  # [B, T, D]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)  # [B, T, V], the head is tied to the embedding
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction=reduction)


# --- data ------------------------------------------------------------------------------------------------------------


def load(path, val_fraction):
    """Token ids of the training and the validation part, and the vocabulary's size: code points in sorted order."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    vocab = sorted(set(text))
    index = {c: i for i, c in enumerate(vocab)}
    ids = torch.tensor([index[c] for c in text])
    cut = int(len(ids) * (1 - val_fraction))
    return ids[:cut], ids[cut:], len(vocab)


class Windows:
    """Uniformly random windows of the training part."""

    def __init__(self, ids, args):
        self.ids, self.count, self.length = ids, args.micro_batch, args.context
        self.generator = torch.Generator().manual_seed(args.seed)
        self.offsets = torch.arange(args.context + 1)

    def next(self):
        start = torch.randint(len(self.ids) - self.length, (self.count, 1), generator=self.generator)
        window = self.ids[start + self.offsets]  # [B, T + 1]
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()


@torch.no_grad()
def validation_loss(model, ids, context):
    """Mean over every token of the part after its first: windows that do not overlap, the last one padded."""
    count = len(ids) - 1
    inputs, targets = F.pad(ids[:-1], (0, -count % context)), F.pad(ids[1:], (0, -count % context), value=-1)
    total = 0.0
    for x, y in zip(inputs.view(-1, context).split(64), targets.view(-1, context).split(64)):
        total += model(x, y, reduction="sum").item()
    return total / count


# --- training --------------------------------------------------------------------------------------------------------


def learning_rate(step, args):
    if step < args.warmup_steps:
        return args.lr * (step + 1) / (args.warmup_steps + 1)
    done = min(1.0, (step - args.warmup_steps) / (args.decay_steps - args.warmup_steps))
    return args.min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (args.lr - args.min_lr)


def make_optimizer(model, args):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": args.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    kind = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[args.adamw]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(args.beta1, args.beta2), **kind)


def train(model, step_model, windows, validation, args):
    """Returns the seconds of each step without and with fetching its batch."""
    optimizer = make_optimizer(model, args)
    params = list(model.parameters())
    step_seconds, full_seconds, seen = [], [], 0
    print(f"step 0 | val_loss {validation_loss(model, validation, args.context):.4f}", flush=True)
    for step in range(args.steps):
        start = time.perf_counter()
        ids, targets = windows.next()
        fetched = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        loss = step_model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(params, args.clip, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        end = time.perf_counter()
        step_seconds.append(end - fetched)
        full_seconds.append(end - start)
        if (step + 1) % args.eval_every == 0 or step + 1 == args.steps:
            val = validation_loss(model, validation, args.context)
            ms = 1e3 * statistics.median(step_seconds[seen:])
            seen = len(step_seconds)
            print(f"step {step + 1} | loss {value:.4f} | val_loss {val:.4f} | {ms:.2f} ms", flush=True)
    return step_seconds, full_seconds


def parse():
    p = argparse.ArgumentParser(description="Train a character-level GPT with PyTorch on CPU and time it.")
    p.add_argument("--data", required=True, help="a text file")
    p.add_argument("--val-fraction", type=float, default=0.1, help="the last part of the text")
    defaults = {"layers": 4, "heads": 4, "width": 128, "context": 64, "micro-batch": 12, "seed": 1337}
    defaults |= {"steps": 2000, "warmup-steps": 100, "decay-steps": 2000, "eval-every": 500}
    defaults |= {"lr": 1e-3, "min-lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight-decay": 0.1, "clip": 1.0}
    for flag, default in defaults.items():
        p.add_argument("--" + flag, type=type(default), default=default, help=f"default {default}")
    p.add_argument("--bias", choices=["on", "off"], default="on")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--adamw", choices=["fused", "foreach", "loop"], default="fused")
    p.add_argument("--attention", choices=["auto", "flash", "math"], default="auto", help="the kernel behind SDPA")
    p.add_argument("--compile", action="store_true", help="torch.compile forward and backward (needs a C++ compiler)")
    return p.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    train_ids, val_ids, vocab = load(args.data, args.val_fraction)
    model = Gpt(vocab, args)
    count = sum(p.numel() for p in model.parameters())
    mode = "compiled" if args.compile else "eager"
    print(f"PyTorch {torch.__version__}, {platform.machine()}, {args.threads} threads, {mode}, seed {args.seed}")
    print(f"{len(train_ids)} training and {len(val_ids)} validation tokens, vocabulary {vocab}, {count} parameters")
    backends = torch.nn.attention.SDPBackend
    backend = {"flash": backends.FLASH_ATTENTION, "math": backends.MATH}.get(args.attention)
    with torch.nn.attention.sdpa_kernel(backend) if backend else contextlib.nullcontext():
        step_model = torch.compile(model) if args.compile else model
        step, full = train(model, step_model, Windows(train_ids, args), val_ids, args)
    for name, seconds in [("without data", step), ("with data", full)]:
        ms = sorted(1e3 * s for s in seconds)
        print(f"ms per step {name}: median {statistics.median(ms):.2f}, min {ms[0]:.2f}, 10% {ms[len(ms) // 10]:.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The peer of step_bench: whole training steps of the same GPT on random tokens, in PyTorch on the CPU.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 python3 bench/peers/pytorch_step.py \\
        --layers 12 --heads 12 --width 768 --context 256 --micro-batch 4 --vocab 50304 --gelu tanh --compile

Model and optimizer are those of pytorch_gpt.py, with the settings found best there; a step is forward, backward,
clipping by the norm, fused AdamW, and the loss as a number. bf16: weights in f32, forward and loss under autocast.
--compile: torch.compile of the model, forward and backward. The protocol is that of turns.py.
"""

import argparse
import contextlib

import torch
import torch.nn as nn

import pytorch_gpt
import turns


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in {"layers": 4, "heads": 4, "width": 128, "context": 64, "micro-batch": 12, "vocab": 65,
                          "seed": 1337, "threads": 2}.items():
        p.add_argument("--" + flag, type=int, default=default, help=f"default {default}")
    p.add_argument("--gelu", choices=["none", "tanh"], default="none", help="approximation of GELU; GPT-2 has tanh")
    p.add_argument("--bias", choices=["on", "off"], default="on")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--compile", nargs="?", const="default", help="torch.compile, and its mode")
    turns.add_flags(p)
    return p.parse_args()


def main():
    o = parse()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    model = pytorch_gpt.Gpt(o.vocab, o)
    params = list(model.parameters())
    recipe = argparse.Namespace(lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, adamw="fused")
    optimizer = pytorch_gpt.make_optimizer(model, recipe)
    run = torch.compile(model, mode=o.compile) if o.compile else model

    def prepare():
        return torch.randint(o.vocab, (2, o.micro_batch, o.context))

    def step(batch):
        with torch.autocast("cpu", torch.bfloat16) if o.dtype == "bf16" else contextlib.nullcontext():
            loss = run(batch[0], batch[1])
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    turns.serve(o, step, prepare, {"version": torch.__version__, "threads": o.threads,
                                   "tokens": o.micro_batch * o.context,
                                   "parameters": sum(p.numel() for p in params)})


if __name__ == "__main__":
    main()

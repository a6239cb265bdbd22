#!/usr/bin/env python3
"""Make the reference file that tests/optim/pytorch_test.cpp compares optimizers with: optimizers.safetensors.

    python3 tests/golden/make_optimizers.py            write it beside this script
    python3 tests/golden/make_optimizers.py --check    recompute, and compare with the file that is there

A matrix, which decays, and a vector, which does not, take ten steps of each of PyTorch's optimizers in float64.
Weights and gradients at the start are f32 numbers, so both sides start from the same ones. Needs PyTorch and numpy;
the tests need neither. README.md in this folder lists the tensors.
"""

import json
import sys

import torch
from make_goldens import save_or_check

STEPS, SHAPES = 10, {"matrix": (7, 5), "vector": (13,)}

# name, class, arguments; weight_decay is that of the matrix
VARIANTS = [
    ("sgd", torch.optim.SGD, {"weight_decay": 0.3}),
    ("sgd_momentum", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.3}),
    ("sgd_nesterov", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.3, "nesterov": True}),
    ("adamw", torch.optim.AdamW, {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}),
    ("adamw_slow", torch.optim.AdamW, {"betas": (0.8, 0.999), "eps": 1e-3, "weight_decay": 2.0}),
    ("adafactor", torch.optim.Adafactor, {"eps": (1e-30, 1e-3), "weight_decay": 0.1}),
    (
        "adafactor_small",
        torch.optim.Adafactor,
        {"beta2_decay": -0.5, "eps": (1e-30, 3.0), "d": 0.3, "weight_decay": 2.0},
    ),
]


def lr_of(step):
    """As in the test: a rate that changes, so that one that enters the momentum would show."""
    return 0.01 / (step + 1)


def train(make, arguments, start, gradients):
    """The weights after each step: NAME -> [STEPS, ...]."""
    weights = {name: w.double().clone().requires_grad_() for name, w in start.items()}
    without = dict(arguments, weight_decay=0.0)
    optimizer = make(
        [{"params": [weights["matrix"]], **arguments}, {"params": [weights["vector"]], **without}], lr=lr_of(0)
    )
    after = {name: [] for name in weights}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = lr_of(step)
        for name, w in weights.items():
            w.grad = gradients[name][step].double()
        optimizer.step()
        for name, w in weights.items():
            after[name].append(w.detach().clone())
    return {name: torch.stack(steps) for name, steps in after.items()}


def make_all():
    generator = torch.Generator().manual_seed(11)
    start = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    gradients = {name: torch.randn((STEPS, *shape), generator=generator) for name, shape in SHAPES.items()}
    tensors = {f"start.{name}": t for name, t in start.items()}
    tensors |= {f"gradients.{name}": t for name, t in gradients.items()}
    for variant, make, arguments in VARIANTS:
        after = train(make, arguments, start, gradients)
        tensors |= {f"{variant}.{name}": t for name, t in after.items()}
    return {name: t.numpy() for name, t in tensors.items()}


if __name__ == "__main__":
    settings = {variant: json.dumps(arguments) for variant, _, arguments in VARIANTS}
    sys.exit(save_or_check("optimizers", make_all, 1e-12, {**settings, "torch": torch.__version__}))

#!/usr/bin/env python3
"""Make losses.safetensors: the losses of nn/losses.h and nn/cross_entropy.h, computed by PyTorch in float64.

    python3 tests/golden/make_losses.py

Each case has the tensors CASE.x (prediction, logits), CASE.target, CASE.loss [1] and CASE.dx; some have CASE.dtarget,
CASE.weight, CASE.pos_weight. tests/nn/losses_test.cpp says which options a case has. Needs PyTorch and numpy.
"""

import math

import torch
import torch.nn.functional as F

from make_goldens import save

GENERATOR = torch.Generator().manual_seed(7)


def normal(*shape, spread=1.0):
    return spread * torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def uniform(*shape):
    return torch.rand(shape, generator=GENERATOR, dtype=torch.float64)


def case(tensors, name, loss, x, target, **others):
    """Adds the loss of a case, and the gradients of its floating tensors."""
    x = x.clone().requires_grad_()
    with_gradient = others.pop("target_gradient", False)
    given = target.clone().requires_grad_() if with_gradient else target
    value = loss(x, given, **others)
    value.backward()
    tensors |= {f"{name}.x": x.detach(), f"{name}.target": target, f"{name}.loss": value.detach().view(1)}
    tensors |= {f"{name}.dx": x.grad}
    if with_gradient:
        tensors[f"{name}.dtarget"] = given.grad
    tensors |= {f"{name}.{key}": v for key, v in others.items() if isinstance(v, torch.Tensor)}


def pairs(tensors):
    """Losses of two tensors; in the first row both are equal, and a difference of the last is the bound of Huber."""
    x, target = normal(5, 3, spread=2.0), normal(5, 3, spread=2.0)
    target[0] = x[0]
    target[4, 0] = 0.0
    x[4, 0] = 0.75
    case(tensors, "mse", F.mse_loss, x, target, target_gradient=True)
    case(tensors, "l1", F.l1_loss, x, target, target_gradient=True)
    case(tensors, "huber", lambda a, b: F.huber_loss(a, b, delta=0.75), x, target, target_gradient=True)
    case(tensors, "smooth_l1", lambda a, b: F.smooth_l1_loss(a, b, beta=0.75), x, target, target_gradient=True)
    case(tensors, "smooth_l1_0", lambda a, b: F.smooth_l1_loss(a, b, beta=0.0), x, target, target_gradient=True)


def binary(tensors):
    x, target = normal(4, 5, spread=3.0), uniform(4, 5)
    x[0] = torch.tensor([0.0, 40.0, -40.0, 800.0, -800.0])
    target[0] = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0])
    loss = F.binary_cross_entropy_with_logits
    case(tensors, "binary", loss, x, target)
    case(tensors, "binary_weighted", loss, x, target, weight=uniform(4, 1), pos_weight=2 * uniform(5))


def divergences(tensors):
    x = torch.log_softmax(normal(4, 5), -1)
    target = torch.softmax(normal(4, 5), -1)
    zeros = target.clone()
    zeros[1] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    case(tensors, "kl", lambda a, b: F.kl_div(a, b, reduction="batchmean"), x, zeros)
    log_loss = lambda a, b: F.kl_div(a, b, reduction="batchmean", log_target=True)
    case(tensors, "kl_log", log_loss, x, target.log(), target_gradient=True)


def classes(tensors):
    x, target = normal(3, 6, 2, 4), torch.randint(6, (3, 2, 4), generator=GENERATOR)
    target[0, 1, 2] = target[2, 0, 0] = -100
    weight = 0.2 + uniform(6)

    def loss(a, b, **options):
        return F.cross_entropy(a, b.long(), **options)

    case(tensors, "classes", loss, x, target.int())
    case(tensors, "classes_smooth", lambda a, b: loss(a, b, label_smoothing=0.1), x, target.int())
    case(tensors, "classes_weighted", loss, x, target.int(), weight=weight)
    smooth = lambda a, b, weight: loss(a, b, weight=weight, label_smoothing=0.1)
    case(tensors, "classes_weighted_smooth", smooth, x, target.int(), weight=weight)


def main():
    torch.set_num_threads(1)
    tensors = {}
    for part in (pairs, binary, divergences, classes):
        part(tensors)
    assert all(math.isfinite(t.double().sum()) for t in tensors.values())
    save("losses", tensors)


if __name__ == "__main__":
    main()

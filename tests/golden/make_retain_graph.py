#!/usr/bin/env python3
"""Make retain_graph.safetensors: several backwards over one graph, computed by PyTorch in float64.

    python3 tests/golden/make_retain_graph.py

A network with two losses that share its first layer: h = gelu(x up^T), loss_a = sum of the cross-entropies of h head^T,
loss_b = sum (h down^T - aim)^2. "first.NAME" is the gradient of NAME after loss_a.backward(retain_graph=True), "second"
after another loss_a.backward(retain_graph=True), "third" after loss_b.backward(). Needs PyTorch and numpy.
"""


import torch
import torch.nn.functional as F

from make_goldens import save


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(11)
    normal = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
    leaves = {"x": normal(5, 3), "up": normal(7, 3), "head": normal(4, 7), "down": normal(2, 7)}
    aim, targets = normal(5, 2), torch.tensor([1, 3, 0, 0, 2])
    tensors = {name: leaf.clone() for name, leaf in leaves.items()} | {"aim": aim, "targets": targets.int()}
    for leaf in leaves.values():
        leaf.requires_grad_()

    hidden = F.gelu(F.linear(leaves["x"], leaves["up"]))
    loss_a = F.cross_entropy(F.linear(hidden, leaves["head"]), targets, reduction="sum")
    loss_b = (F.linear(hidden, leaves["down"]) - aim).square().sum()
    losses = {"first": loss_a, "second": loss_a, "third": loss_b}
    for name, loss in losses.items():
        loss.backward(retain_graph=name != "third")
        tensors |= {f"{name}.{k}": leaf.grad.clone() for k, leaf in leaves.items() if leaf.grad is not None}
    try:
        loss_a.backward()
    except RuntimeError as error:
        assert "second time" in str(error)
    else:
        raise AssertionError("a backward over a freed graph was not refused")

    save("retain_graph", tensors)


if __name__ == "__main__":
    main()

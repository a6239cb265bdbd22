#!/usr/bin/env python3
"""Make the reference file that the C++ tests compare the operations of autograd/ops.h with.

    python3 tests/golden/make_operation_goldens.py            write operations.safetensors beside this script
    python3 tests/golden/make_operation_goldens.py --check    recompute, and compare with the file that is there

Every case is a function of some inputs, computed by PyTorch in float64: its value, and the gradient of each input of
the sum of value * weights. Inputs are rounded to f32 first, so that a test can start from the same numbers in f32.
The same functions in C++ are in tests/autograd/operation_goldens_test.cpp. Tensors of the file: README.md.
"""

import sys

import numpy as np
import torch
from make_goldens import save_or_check


def make_inputs():
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).float()

    def whole(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    inputs = {"x": normal(3, 4, 5), "y": normal(3, 4, 5), "row": normal(5), "column": normal(4, 1)}
    inputs |= {"p": normal(3, 4, 5).abs() + 0.5, "one": normal(3, 1, 5), "number": normal()}
    inputs |= {"t": whole(-2, 3, 3, 4, 5).float(), "u": whole(-2, 3, 3, 4, 5).float()}  # with many equal elements
    inputs |= {"m": normal(4, 6), "n": normal(6, 3), "o": normal(3, 5)}
    inputs |= {"q": normal(2, 3, 2, 5), "k": normal(2, 4, 2, 5)}
    inputs |= {"index": whole(0, 4, 3, 2, 5).int(), "index0": whole(0, 4, 3, 4).int(), "values": normal(3, 2, 5)}
    inputs |= {"weights": normal(300)}
    return inputs


def unbound(x, dim):
    return sum((i + 1) * part**2 for i, part in enumerate(torch.unbind(x, dim)) if i != 1)


def powers(parts):
    return torch.cat([part ** (i + 2) for i, part in enumerate(parts)], -1)


# name: (inputs, function)
CASES = {
    "number - x": (["x"], lambda x: 1.25 - x),
    "x - number": (["x"], lambda x: x - 1.25),
    "number * x": (["x"], lambda x: 2.5 * x),
    "number + x": (["x"], lambda x: 2.5 + x),
    "x / number": (["x"], lambda x: x / 3.0),
    "number / x": (["p"], lambda p: 2.0 / p),
    "permute": (["x"], lambda x: x.permute(2, 0, 1) ** 2),
    "stack 1": (["x", "y"], lambda x, y: torch.stack([x, y, x], 1)),
    "stack -1": (["x", "y"], lambda x, y: torch.stack([x, y], -1) ** 2),
    "concat 0": (["x", "y", "p"], lambda x, y, p: torch.cat([x, y, x, p], 0) ** 2),
    "concat 1": (["x", "one", "y"], lambda x, one, y: torch.cat([x, one, y], 1) ** 2),
    "unbind 0": (["x"], lambda x: unbound(x, 0)),
    "unbind 1": (["x"], lambda x: unbound(x, 1)),
    "unbind 2": (["x"], lambda x: unbound(x, 2)),
    "split": (["x"], lambda x: powers(torch.split(x, 2, -1))),
    "split by lengths": (["x"], lambda x: powers(torch.split(x, [1, 3, 1], 2))),
    "chunk": (["x"], lambda x: torch.prod(torch.stack(torch.chunk(x, 2, 1)), 0)),
    "unsqueeze and squeeze": (["x", "one"], lambda x, one: x.unsqueeze(1) * one.squeeze(1).unsqueeze(-2)),
    "flatten": (["x"], lambda x: x.flatten(1, 2) ** 2),
    "pad": (["x"], lambda x: torch.nn.functional.pad(x, (0, 0, 2, 1), value=1.5) ** 2),
    "flip": (["x", "y"], lambda x, y: x.flip(1) * y),
    "where": (["x", "y"], lambda x, y: torch.where(x > y, x * x, y)),
    "where, broadcast": (["x", "row", "column"], lambda x, row, column: torch.where(x < 0.25, row, column)),
    "where, numbers": (["x", "y"], lambda x, y: torch.where(x >= y, x, 3.0) + torch.where(x <= 0.5, -1.0, y)),
    "masked_fill": (["x", "y"], lambda x, y: x.masked_fill(y > 0, -2.0)),
    "maximum": (["x", "y"], lambda x, y: torch.maximum(x, y)),
    "maximum, equal": (["t", "u"], lambda t, u: torch.maximum(t, u)),
    "maximum, broadcast": (["x", "row"], lambda x, row: torch.maximum(x, row)),
    "minimum": (["x", "column"], lambda x, column: torch.minimum(x, column)),
    "minimum, equal": (["t", "u"], lambda t, u: torch.minimum(t, u)),
    "clamp": (["x"], lambda x: x.clamp(-0.5, 0.75)),
    "clamp, at the bounds": (["t"], lambda t: t.clamp(-1, 1)),
    "abs": (["x"], lambda x: x.abs()),
    "abs, with zeros": (["t"], lambda t: t.abs()),
    "pow 3": (["x"], lambda x: x**3),
    "pow 2": (["x"], lambda x: x**2),
    "pow 0.5": (["p"], lambda p: p**0.5),
    "pow 2.5": (["p"], lambda p: p**2.5),
    "pow -1": (["p"], lambda p: p**-1),
    "pow -1.5": (["p"], lambda p: p**-1.5),
    "sum 0, 2": (["x"], lambda x: x.sum((0, 2))),
    "sum -1, 0, kept": (["x"], lambda x: x.sum((-1, 0), keepdim=True)),
    "mean 0, 1": (["x"], lambda x: x.mean((0, 1))),
    "var": (["x"], lambda x: x.var()),
    "var 1": (["x"], lambda x: x.var(1)),
    "var 0, 2, correction 0": (["x"], lambda x: x.var((0, 2), correction=0, keepdim=True)),
    "norm": (["x"], lambda x: torch.linalg.vector_norm(x)),
    "norm 1": (["x"], lambda x: torch.linalg.vector_norm(x, dim=1)),
    "norm 0, 2": (["x"], lambda x: torch.linalg.vector_norm(x, dim=(0, 2), keepdim=True)),
    "norm of zeros": (["x"], lambda x: torch.linalg.vector_norm(x * 0.0, dim=1)),
    "max": (["t"], lambda t: t.amax()),
    "max 0, 2": (["t"], lambda t: t.amax((0, 2))),
    "max 1": (["x"], lambda x: x.amax(1, keepdim=True)),
    "min": (["t"], lambda t: t.amin()),
    "min 0, 2": (["t"], lambda t: t.amin((0, 2), keepdim=True)),
    "min 1": (["x"], lambda x: x.amin(1)),
    "softmax 0": (["x"], lambda x: x.softmax(0)),
    "softmax 1": (["x"], lambda x: x.softmax(1)),
    "softmax -1": (["x"], lambda x: x.softmax(-1)),
    "log_softmax": (["x"], lambda x: x.log_softmax(-1)),
    "log_softmax 1": (["x"], lambda x: x.log_softmax(1)),
    "logsumexp": (["x"], lambda x: x.logsumexp(-1)),
    "logsumexp 0, kept": (["x"], lambda x: x.logsumexp(0, keepdim=True)),
    "cumsum 0": (["x"], lambda x: x.cumsum(0)),
    "cumsum 1": (["x"], lambda x: x.cumsum(1)),
    "cumsum -1": (["x"], lambda x: x.cumsum(-1)),
    "topk": (["x"], lambda x: x.topk(3).values),
    "topk 1": (["x"], lambda x: x.topk(2, 1).values),
    "gather 1": (["x", "index"], lambda x, index: x.gather(1, index.long())),
    "gather 0": (["m", "index0"], lambda m, index: m.gather(0, index.long())),
    "scatter_add 1": (["x", "index", "values"], lambda x, index, v: x.scatter_add(1, index.long(), v)),
    "einsum bij,bkj->bik": (["x", "y"], lambda x, y: torch.einsum("bij,bkj->bik", x, y)),
    "einsum bqhd,bkhd->bhqk": (["q", "k"], lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k)),
    "einsum ij,jk,kl": (["m", "n", "o"], lambda m, n, o: torch.einsum("ij,jk,kl", m, n, o)),
    "einsum ij->ji": (["m"], lambda m: torch.einsum("ij->ji", m)),
    "einsum abc->b": (["x"], lambda x: torch.einsum("abc->b", x)),
    "einsum ij->": (["m"], lambda m: torch.einsum("ij->", m)),
    "einsum abc,d->dabc": (["x", "row"], lambda x, row: torch.einsum("abc,d->dabc", x, row)),
    "einsum abc,abc->ca": (["x", "y"], lambda x, y: torch.einsum("abc,abc->ca", x, y)),
    "einsum abc,ac->ab": (["x", "o"], lambda x, o: torch.einsum("abc,ac->ab", x, o)),
    "einsum abc,abd->cd": (["x", "y"], lambda x, y: torch.einsum("abc,abd->cd", x, y)),
    "einsum abc,c,da->db": (["x", "row", "n"], lambda x, row, n: torch.einsum("abc,c,da->db", x, row, n)),
}
INDICES = {  # i32, without gradients
    "argmax 1": lambda i: i["x"].argmax(1),
    "argmax -1, kept": lambda i: i["x"].argmax(-1, keepdim=True),
    "argmin 0": lambda i: i["x"].argmin(0),
    "topk 1": lambda i: i["x"].topk(2, 1).indices,
    "one_hot": lambda i: torch.nn.functional.one_hot(i["index"].long(), 6),
}


def make():
    inputs = make_inputs()
    tensors = {"in." + name: value for name, value in inputs.items()}
    for name, (names, function) in CASES.items():
        values = [inputs[n].clone() for n in names]
        values = [v.double().requires_grad_() if v.is_floating_point() else v for v in values]
        y = function(*values)
        (y * inputs["weights"][: y.numel()].double().view(y.shape)).sum().backward()
        tensors[name + ".y"] = y.detach()
        for i, value in enumerate(values):
            if value.is_floating_point() and value.grad is not None:
                tensors[f"{name}.gradient {i}"] = value.grad
    for name, function in INDICES.items():
        tensors[name + ".indices"] = function(inputs).int()
    return {name: np.asarray(t.contiguous().numpy()) for name, t in tensors.items()}


if __name__ == "__main__":
    sys.exit(save_or_check("operations", make, 1e-12))

#!/usr/bin/env python3
"""Make multihead_attention.safetensors: torch.nn.MultiheadAttention in float64.

    python3 tests/golden/make_multihead_attention.py

Each case has the parameters CASE.weights.NAME with their gradients CASE.grads.NAME, under Trireme's names; the inputs
q [B, Tq, D], k and v [B, Tk, ..]; the mask, 1 for a key that counts, or floating and added; the result y; the gradients
dq, dk, dv (and dmask) of the sum of y times its weights wy. tests/nn/multihead_attention_test.cpp uses them.
"""


import numpy
import torch

from make_goldens import save

BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 5, 7, 12, 4
LENGTHS = [7, 4, 1]


def make(name, tensors, widths=(WIDTH, WIDTH), bias=True, mask=None):
    generator = torch.Generator().manual_seed(len(tensors))

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, bias=bias, kdim=widths[0], vdim=widths[1], batch_first=True,
                                        dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.data = 0.5 * normal(*parameter.shape)
    q, k, v = normal(BATCH, QUERIES, WIDTH), normal(BATCH, KEYS, widths[0]), normal(BATCH, KEYS, widths[1])
    inputs = {"q": q.requires_grad_(), "k": k.requires_grad_(), "v": v.requires_grad_()}
    found, options = dict(inputs), {}
    if mask == "lengths":
        options["key_padding_mask"] = torch.arange(KEYS)[None, :] >= torch.tensor(LENGTHS)[:, None]
    elif mask == "boolean":
        seen = normal(BATCH * HEADS, QUERIES, KEYS) > 0
        seen[..., 2] = True
        options["attn_mask"] = ~seen
        found["mask"] = seen.reshape(BATCH, HEADS, QUERIES, KEYS).to(torch.int32)
    elif mask == "added":
        added = normal(BATCH, HEADS, QUERIES, KEYS).requires_grad_()
        options["attn_mask"] = added.reshape(BATCH * HEADS, QUERIES, KEYS)
        inputs["mask"] = found["mask"] = added
    y, _ = layer(q, k, v, need_weights=False, **options)
    weights = normal(*y.shape)
    (y * weights).sum().backward()
    found |= {"y": y, "wy": weights} | {"d" + key: value.grad for key, value in inputs.items()}

    def split(kind, part):
        if widths == (WIDTH, WIDTH):
            parts = dict(zip("qkv", part(layer.in_proj_weight).chunk(3)))
        else:
            parts = {key: part(getattr(layer, key + "_proj_weight")) for key in "qkv"}
        named = {f"{key}.weight": value for key, value in parts.items()} | {"out.weight": part(layer.out_proj.weight)}
        if bias:
            named |= {f"{key}.bias": value for key, value in zip("qkv", part(layer.in_proj_bias).chunk(3))}
            named["out.bias"] = part(layer.out_proj.bias)
        return {f"{kind}.{key}": value for key, value in named.items()}

    found |= split("weights", lambda parameter: parameter) | split("grads", lambda parameter: parameter.grad)
    tensors |= {f"{name}.{key}": numpy.ascontiguousarray(value.detach().numpy()) for key, value in found.items()}


def main():
    torch.set_num_threads(1)
    tensors = {}
    make("plain", tensors)
    make("other_widths", tensors, widths=(8, 6))
    make("without_bias", tensors, bias=False)
    make("lengths", tensors, mask="lengths")
    make("boolean", tensors, mask="boolean")
    make("added", tensors, mask="added")
    save("multihead_attention", tensors)


if __name__ == "__main__":
    main()

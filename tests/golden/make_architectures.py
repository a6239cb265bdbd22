#!/usr/bin/env python3
"""Make architectures.safetensors and mixtures.safetensors: small decoders of published architectures, by PyTorch in
float64.

    python3 tests/golden/make_architectures.py

Each case is one decoder of two blocks in the manner of one published architecture, of plain operations that follow its
paper and its implementation in the library transformers. Tensors of a case: NAME.ids and NAME.targets [B, T],
NAME.weights.* in float32, and in float64 NAME.logits [B, T, V], NAME.loss and NAME.grads.*. The options of each case
are in CASES here, and in tests/golden/architectures_test.cpp.
"""

import math

import torch
import torch.nn.functional as F

import make_goldens

LAYERS, HEADS, WIDTH, HIDDEN, TOKENS, VOCAB, BATCH = 2, 2, 12, 6, 12, 11, 2

# What a case does not name has these values; `head` is the number of features of a head.
DEFAULTS = {"kv_heads": 1, "head": WIDTH // HEADS, "eps": 1e-2, "qkv_bias": False, "base": 1e4,
            "activation": "swiglu", "learned": False, "qk_norm": False, "zero_centred": False, "post_norms": False,
            "scaled": False, "scalar": None, "score_cap": None, "cap": None, "window": (None, None),
            "window_base": None, "linear": 1.0, "experts": 0, "renormalised": False}
CASES = {
    "qwen2": {"qkv_bias": True, "base": 1e6},
    "qwen3": {"head": 8, "qk_norm": True},
    "gemma": {"head": 8, "zero_centred": True, "scaled": True, "activation": "geglu"},
    "gemma2": {"head": 4, "kv_heads": 2, "zero_centred": True, "scaled": True, "activation": "geglu", "scalar": 9,
               "post_norms": True, "score_cap": 1.5, "cap": 2.0, "window": (4, None)},
    "gemma3": {"head": 8, "zero_centred": True, "scaled": True, "activation": "geglu", "scalar": 20,
               "post_norms": True, "qk_norm": True, "window": (4, None), "base": 1e6, "window_base": 1e2,
               "linear": 8.0},
    "narrow": {"head": 4, "kv_heads": 2, "learned": True},
}
MIXTURES = {
    "mixtral": {"experts": 4, "renormalised": True},
    "qwen3_moe": {"experts": 4, "head": 8, "qk_norm": True, "kv_heads": 2},
}


def parameter_shapes(o):
    d, features, kv = WIDTH, HEADS * o["head"], o["kv_heads"] * o["head"]
    shapes = {"wte.weight": (VOCAB, d)}
    if o["learned"]:
        shapes["wpe.weight"] = (TOKENS, d)
    norms = ["norm1", "norm2"] + (["post_norm1", "post_norm2"] if o["post_norms"] else [])
    for i in range(LAYERS):
        block = f"blocks.{i}."
        shapes |= {f"{block}{norm}.weight": (d,) for norm in norms}
        parts = {"q": features, "k": kv, "v": kv}
        if o["learned"] and not o["qk_norm"] and o["kv_heads"] == HEADS:
            parts = {"qkv": (3, features)}
        for part, out in parts.items():
            out = out if isinstance(out, tuple) else (out,)
            shapes[f"{block}attn.{part}.weight"] = (*out, d)
            if o["qkv_bias"]:
                shapes[f"{block}attn.{part}.bias"] = out
        if o["qk_norm"]:
            shapes |= {f"{block}attn.{part}_norm.weight": (o["head"],) for part in "qk"}
        shapes[block + "attn.proj.weight"] = (d, features)
        experts = (o["experts"],) if o["experts"] else ()
        if experts:
            shapes[block + "mlp.router.weight"] = (*experts, d)
        shapes[block + "mlp.gate_up.weight"] = (*experts, 2, HIDDEN, d)
        shapes[block + "mlp.down.weight"] = (*experts, d, HIDDEN)
    return shapes | {"norm.weight": (d,)}


def norm(x, p, name, o):
    gain = p[name + ".weight"] + 1 if o["zero_centred"] else p[name + ".weight"]
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + o["eps"]) * gain


def rotate(x, base, linear):
    """x [B, T, H, Dh]: the pairs (i, i + Dh/2), as rotate_half of transformers."""
    head = x.shape[-1]
    frequencies = 1.0 / base ** (torch.arange(0, head, 2, dtype=torch.float64) / head) / linear
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies
    cos, sin = (f(torch.cat([angles, angles], -1))[:, None].to(x.dtype) for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def linear(x, p, name):
    weight, bias = p[name + ".weight"], p.get(name + ".bias")
    return F.linear(x, weight.flatten(0, -2), None if bias is None else bias.flatten())


def attention(x, p, name, o, window):
    batch, time, _ = x.shape
    if name + ".qkv.weight" in p:
        q, k, v = linear(x, p, name + ".qkv").view(batch, time, 3, HEADS, o["head"]).unbind(2)
    else:
        q, k, v = (linear(x, p, f"{name}.{part}").view(batch, time, -1, o["head"]) for part in "qkv")
    if o["qk_norm"]:
        q, k = norm(q, p, name + ".q_norm", o), norm(k, p, name + ".k_norm", o)
    if not o["learned"]:
        local = window is not None and o["window_base"] is not None
        base, factor = (o["window_base"], 1.0) if local else (o["base"], o["linear"])
        q, k = rotate(q, base, factor), rotate(k, base, factor)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(HEADS // o["kv_heads"], 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) * (o["scalar"] or o["head"]) ** -0.5
    if o["score_cap"]:
        scores = o["score_cap"] * torch.tanh(scores / o["score_cap"])
    i, j = torch.arange(time)[:, None], torch.arange(time)[None, :]
    seen = (j <= i) & (j > i - window) if window else j <= i
    out = torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ v
    return linear(out.transpose(1, 2).reshape(batch, time, -1), p, name + ".proj")


def gated(x, gate_up, down, activation):
    """gate_up [2, F, D], down [D, F]."""
    gate = F.linear(x, gate_up[0])
    gate = F.silu(gate) if activation == "swiglu" else F.gelu(gate, approximate="tanh")
    return F.linear(gate * F.linear(x, gate_up[1]), down)


def mixture(x, p, name, o):
    """As MixtralSparseMoeBlock and Qwen3MoeSparseMoeBlock: a softmax over all experts, then the two largest, which
    Mixtral, and Qwen3 with norm_topk_prob, divide by their sum."""
    tokens = x.reshape(-1, WIDTH)
    weights, chosen = torch.topk(torch.softmax(F.linear(tokens, p[name + ".router.weight"]), -1), 2, dim=-1)
    if o["renormalised"]:
        weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(tokens)
    for expert in range(o["experts"]):
        row, place = torch.where(chosen == expert)
        y = gated(tokens[row], p[name + ".gate_up.weight"][expert], p[name + ".down.weight"][expert], o["activation"])
        out = out.index_add(0, row, y * weights[row, place, None])
    return out.view_as(x)


def mlp(x, p, name, o):
    if o["experts"]:
        return mixture(x, p, name, o)
    return gated(x, p[name + ".gate_up.weight"], p[name + ".down.weight"], o["activation"])


def forward(p, o, ids):
    x = p["wte.weight"][ids]
    if o["scaled"]:
        x = x * math.sqrt(WIDTH)
    if o["learned"]:
        x = x + p["wpe.weight"]
    for i in range(LAYERS):
        block = f"blocks.{i}."
        y = attention(norm(x, p, block + "norm1", o), p, block + "attn", o, o["window"][i])
        x = x + (norm(y, p, block + "post_norm1", o) if o["post_norms"] else y)
        y = mlp(norm(x, p, block + "norm2", o), p, block + "mlp", o)
        x = x + (norm(y, p, block + "post_norm2", o) if o["post_norms"] else y)
    logits = norm(x, p, "norm", o) @ p["wte.weight"].T
    return o["cap"] * torch.tanh(logits / o["cap"]) if o["cap"] else logits


def compute(weights, o, ids, targets, dtype):
    p = {key: value.to(dtype, copy=True).requires_grad_() for key, value in weights.items()}
    logits = forward(p, o, ids)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    loss.backward()
    return logits.detach(), loss.detach().view(1), {key: value.grad for key, value in p.items()}


def draw(o, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for key, shape in parameter_shapes(o).items():
        one = 1.0 if "norm" in key and not o["zero_centred"] else 0.0
        weights[key] = (one + 0.35 * torch.randn(shape, generator=generator, dtype=torch.float64)).float()
    ids, targets = (torch.randint(VOCAB, (BATCH, TOKENS), generator=generator) for _ in range(2))
    return weights, ids, targets


def make(name, o):
    """With the first seed for which PyTorch's own float32 is near float64: no gradient is a sum that nearly cancels."""
    for seed in range(61, 100):
        weights, ids, targets = draw(o, seed)
        logits, loss, grads = compute(weights, o, ids, targets, torch.float64)
        rounded = compute(weights, o, ids, targets, torch.float32)[2]
        worst = max((rounded[key].double() - grad).norm() / grad.norm() for key, grad in grads.items())
        if worst < 1.5e-6:
            break
    print(f"{name}: seed {seed}; the gradients of PyTorch in float32 are within {worst:.1e}")
    found = {"ids": ids.int(), "targets": targets.int(), "logits": logits, "loss": loss}
    found |= {"weights." + key: value for key, value in weights.items()}
    found |= {"grads." + key: value for key, value in grads.items()}
    return {f"{name}.{key}": value.contiguous().numpy() for key, value in found.items()}


def main():
    torch.set_num_threads(1)
    for name, cases in {"architectures": CASES, "mixtures": MIXTURES}.items():
        tensors = {}
        for case, options in cases.items():
            tensors |= make(case, DEFAULTS | options)
        if not tensors:
            continue
        make_goldens.save(name, tensors)


if __name__ == "__main__":
    main()

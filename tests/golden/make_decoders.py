#!/usr/bin/env python3
"""Make decoders.safetensors: small decoders with the parts of later models, by PyTorch in float64.

    python3 tests/golden/make_decoders.py

Each case is one decoder of two blocks, of plain operations: rotary positions with scaled frequencies, norms of queries
and keys, windows, soft caps, gated units. Tensors of a case: NAME.ids and NAME.targets [B, T], NAME.positions [B, T] in
some, NAME.weights.* in float32, and in float64 NAME.logits [B, T, V], NAME.loss and NAME.grads.*. The options of each
case are in CASES here, and in tests/golden/decoders_test.cpp.
"""

import math

import torch
import torch.nn.functional as F

import make_goldens

LAYERS, HEADS, WIDTH, HIDDEN, TOKENS, VOCAB, BATCH = 2, 2, 12, 6, 12, 11, 2
HEAD = WIDTH // HEADS
SEPARATOR = 3

BASE = {"kv_heads": 1, "norm": "rms", "eps": 1e-5, "bias": False, "activation": "swiglu", "rope": True, "base": 1e4}
CASES = {
    "llama3": BASE | {"base": 5e5, "scaling": ("llama3", 4, 8, 1, 4), "qk_norm": True, "eps": 1e-2, "window": (3, 3)},
    "yarn": BASE | {"scaling": ("yarn", 4, 64, 0.1, 8), "interleaved": True, "activation": "relu2", "norm": "layer",
                    "bias": True, "eps": 1e-1, "cap": 1.5},
    "gemma": BASE | {"scaling": ("linear", 2.5), "activation": "geglu", "score_cap": 0.7, "cap": 2.0, "kv_heads": 2,
                     "window": (4, None)},
    "packed": BASE | {"kv_heads": 2, "rope": False, "norm": "layer", "bias": True, "activation": "relu2",
                      "score_cap": 1.1, "window": (2, 2), "eps": 1e-3},
    "restarted": BASE | {"documents": True, "bias": True, "qk_norm": True},
    "placed": BASE | {"rope": False, "placed": True, "qk_norm": True, "bias": True, "norm": "layer"},
}


def parameter_shapes(o):
    d, kv = WIDTH, o["kv_heads"] * HEAD
    norm_bias = o["norm"] == "layer" and o["bias"]
    shapes = {"wte.weight": (VOCAB, d)} | ({} if o["rope"] else {"wpe.weight": (TOKENS, d)})

    def norm(name):
        return {name + ".weight": (d,)} | ({name + ".bias": (d,)} if norm_bias else {})

    def linear(name, out, inner, bias=o["bias"]):
        return {name + ".weight": (*out, inner)} | ({name + ".bias": out} if bias else {})

    gated = o["activation"] != "relu2"
    for i in range(LAYERS):
        block = f"blocks.{i}."
        shapes |= norm(block + "norm1")
        if not o["rope"] and not o.get("qk_norm") and o["kv_heads"] == HEADS:
            shapes |= linear(block + "attn.qkv", (3, d), d)
        else:
            shapes |= linear(block + "attn.q", (d,), d) | linear(block + "attn.k", (kv,), d)
            shapes |= linear(block + "attn.v", (kv,), d)
        if o.get("qk_norm"):
            shapes |= {block + "attn.q_norm.weight": (HEAD,), block + "attn.k_norm.weight": (HEAD,)}
        shapes |= linear(block + "attn.proj", (d,), d) | norm(block + "norm2")
        shapes |= linear(block + "mlp.gate_up", (2, HIDDEN), d) if gated else linear(block + "mlp.up", (HIDDEN,), d)
        shapes |= linear(block + "mlp.down", (d,), HIDDEN)
    return shapes | norm("norm")


def frequencies(o):
    """Of the pairs of a head, and what cosines and sines are multiplied by."""
    plain = 1.0 / o["base"] ** (torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    kind, *numbers = o.get("scaling", ("none",))
    if kind == "none":
        return plain, 1.0
    factor = numbers[0]
    if kind == "linear":
        return plain / factor, 1.0
    original, low, high = numbers[1:]
    if kind == "llama3":
        result = []
        for f in plain.tolist():
            wave = 2 * math.pi / f
            if wave < original / high:
                result.append(f)
            elif wave > original / low:
                result.append(f / factor)
            else:
                smooth = (original / wave - low) / (high - low)
                result.append((1 - smooth) * f / factor + smooth * f)
        return torch.tensor(result, dtype=torch.float64), 1.0

    def dim(turns):
        return HEAD * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(o["base"]))

    first, last = max(math.floor(dim(high)), 0), min(math.ceil(dim(low)), HEAD - 1)
    ramp = ((torch.arange(HEAD // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1.0


def rotate(x, positions, o):
    """x [B, T, H, Dh], positions [B, T]."""
    f, scale = frequencies(o)
    angles = positions[:, :, None, None].double() * f
    cos, sin = angles.cos() * scale, angles.sin() * scale
    if o.get("interleaved"):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms(x, gain, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def norm(x, p, name, o):
    if o["norm"] == "rms":
        return rms(x, p[name + ".weight"], o["eps"])
    return F.layer_norm(x, (WIDTH,), p[name + ".weight"], p.get(name + ".bias"), o["eps"])


def linear(x, p, name):
    weight, bias = p[name + ".weight"], p.get(name + ".bias")
    return F.linear(x, weight.flatten(0, -2), None if bias is None else bias.flatten())


def attention(x, p, name, o, positions, starts, window):
    batch, time, _ = x.shape
    if name + ".qkv.weight" in p:
        q, k, v = linear(x, p, name + ".qkv").view(batch, time, 3, HEADS, HEAD).unbind(2)
    else:
        q, k, v = (linear(x, p, f"{name}.{part}").view(batch, time, -1, HEAD) for part in "qkv")
    if o.get("qk_norm"):
        q = rms(q, p[name + ".q_norm.weight"], o["eps"])
        k = rms(k, p[name + ".k_norm.weight"], o["eps"])
    if o["rope"]:
        q, k = rotate(q, positions, o), rotate(k, positions, o)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(HEADS // o["kv_heads"], 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(HEAD)
    if "score_cap" in o:
        scores = o["score_cap"] * torch.tanh(scores / o["score_cap"])
    i, j = torch.arange(time)[:, None], torch.arange(time)[None, :]
    seen = (j <= i) & (j >= starts[:, :, None])
    if window:
        seen = seen & (j > i - window)
    out = torch.softmax(scores.masked_fill(~seen[:, None], -math.inf), -1) @ v
    return linear(out.transpose(1, 2).reshape(batch, time, WIDTH), p, name + ".proj")


def mlp(x, p, name, activation):
    if activation == "relu2":
        return linear(F.relu(linear(x, p, name + ".up")) ** 2, p, name + ".down")
    gate, up = linear(x, p, name + ".gate_up").chunk(2, -1)
    gate = F.silu(gate) if activation == "swiglu" else F.gelu(gate, approximate="tanh")
    return linear(gate * up, p, name + ".down")


def forward(p, o, ids, positions, starts):
    x = p["wte.weight"][ids]
    if not o["rope"]:
        x = x + p["wpe.weight"][positions]
    for i in range(LAYERS):
        block, window = f"blocks.{i}.", o.get("window", (None, None))[i]
        x = x + attention(norm(x, p, block + "norm1", o), p, block + "attn", o, positions, starts, window)
        x = x + mlp(norm(x, p, block + "norm2", o), p, block + "mlp", o["activation"])
    logits = norm(x, p, "norm", o) @ p["wte.weight"].T
    return o["cap"] * torch.tanh(logits / o["cap"]) if "cap" in o else logits


def make(name, o, generator):
    p = {}
    for key, shape in parameter_shapes(o).items():
        value = 0.35 * torch.randn(shape, generator=generator, dtype=torch.float64)
        p[key] = ((1.0 if "norm" in key and key.endswith("weight") else 0.0) + value).float().double().requires_grad_()
    ids = torch.randint(VOCAB, (BATCH, TOKENS), generator=generator)
    targets = torch.randint(VOCAB, (BATCH, TOKENS), generator=generator)
    found, places = {}, torch.arange(TOKENS).expand(BATCH, TOKENS)
    starts, positions = torch.zeros_like(places), places
    if o.get("documents"):
        ids[:, 4] = ids[1, 7] = SEPARATOR
        for t in range(1, TOKENS):
            starts[:, t] = torch.where(ids[:, t - 1] == SEPARATOR, t, starts[:, t - 1])
        positions = places - starts
    if o.get("placed"):
        positions = torch.stack([(torch.arange(TOKENS) - 3).clamp(0), torch.arange(TOKENS).flip(0)])
        found["positions"] = positions.int()
    logits = forward(p, o, ids, positions, starts)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    loss.backward()
    found |= {"ids": ids.int(), "targets": targets.int(), "logits": logits.detach(), "loss": loss.detach().view(1)}
    found |= {"weights." + key: value.detach().float() for key, value in p.items()}
    found |= {"grads." + key: value.grad for key, value in p.items()}
    return {f"{name}.{key}": value.contiguous().numpy() for key, value in found.items()}


def main():
    torch.set_num_threads(1)
    tensors = {}
    # With these seeds no gradient is a sum that nearly cancels: PyTorch's own f32 is within 2e-6 of f64.
    for seed, (name, options) in enumerate(CASES.items(), start=41):
        tensors |= make(name, options, torch.Generator().manual_seed(seed))
    make_goldens.save("decoders", tensors)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Make the reference files the C++ tests compare a GPT with.

    python3 tests/golden/make_goldens.py            write gpt2_*.safetensors beside this script
    python3 tests/golden/make_goldens.py --check    recompute, and compare with the files that are there

A small random model of the GPT-2 architecture runs in PyTorch in float64. Both sides start from the same numbers:
weights are rounded to f32 before anything is computed. --check also prints how far PyTorch's own f32 is from the
references, which is what a test's tolerance can be held against. Needs PyTorch and numpy; the tests need neither.
What a file holds, tensor by tensor: README.md in this folder.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB, BATCH = 2, 2, 16, 12, 29, 3
STEPS, LR, BETAS, EPS, WEIGHT_DECAY = 10, 1e-3, (0.9, 0.95), 1e-8, 0.1
NORM_EPS = 1e-5
IGNORED = -1  # a target that adds nothing to the loss and is not counted

# file, activation, bias, seed, fraction of ignored targets, clip (here 1.0 clips on all steps, 2.5 on some)
VARIANTS = [
    ("gpt2_gelu", "gelu", True, 101, 0.0, 1.0),
    ("gpt2_gelu_tanh", "gelu-tanh", True, 102, 0.2, 2.5),
    ("gpt2_gelu_nobias", "gelu", False, 103, 0.0, 1.0),
]


# --- the model -------------------------------------------------------------------------------------------------------


def parameter_shapes(bias):
    """Names and shapes. qkv stacks query, key, value on dim 0; the rows of each are output features."""
    d = WIDTH
    shapes = {"wte.weight": (VOCAB, d), "wpe.weight": (CONTEXT, d)}
    for i in range(LAYERS):
        block = f"blocks.{i}."
        shapes |= {block + "norm1.weight": (d,), block + "norm1.bias": (d,)}
        shapes |= {block + "attn.qkv.weight": (3, d, d), block + "attn.qkv.bias": (3, d)}
        shapes |= {block + "attn.proj.weight": (d, d), block + "attn.proj.bias": (d,)}
        shapes |= {block + "norm2.weight": (d,), block + "norm2.bias": (d,)}
        shapes |= {block + "mlp.up.weight": (4 * d, d), block + "mlp.up.bias": (4 * d,)}
        shapes |= {block + "mlp.down.weight": (d, 4 * d), block + "mlp.down.bias": (d,)}
    shapes |= {"norm.weight": (d,), "norm.bias": (d,)}
    return {name: shape for name, shape in shapes.items() if bias or not name.endswith(".bias")}


def is_decayed(name):
    """Matrices and embeddings. By name, because qkv.bias [3, D] is a bias in spite of its two dims."""
    return name.endswith(".weight") and "norm" not in name


def random_parameters(bias, generator, dtype):
    """Far from the usual initialisation on purpose: a swapped, transposed or forgotten tensor must change the loss."""
    params = {}
    for name, shape in parameter_shapes(bias).items():
        value = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith(".bias"):
            value = 0.3 * value
        elif "norm" in name:
            value = 1.0 + 0.3 * value
        else:
            value = 0.3 * value
        params[name] = value.float().to(dtype).requires_grad_()
    return params


def layer_norm(x, params, name):
    return F.layer_norm(x, (WIDTH,), params[name + ".weight"], params.get(name + ".bias"), NORM_EPS)


def attention(x, params, name):
    batch, time, width = x.shape
    w, b = params[name + ".qkv.weight"], params.get(name + ".qkv.bias")
    q, k, v = (F.linear(x, w[i], None if b is None else b[i]) for i in range(3))  # [B, T, D]
    q, k, v = (t.view(batch, time, HEADS, width // HEADS).transpose(1, 2) for t in (q, k, v))  # [B, H, T, Dh]
    scores = q @ k.transpose(2, 3) / math.sqrt(width // HEADS)  # [B, H, T, T]
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)  # [B, H, T, T]
    out = (weights @ v).transpose(1, 2).reshape(batch, time, width)  # [B, T, D]
    return F.linear(out, params[name + ".proj.weight"], params.get(name + ".proj.bias"))


def mlp(x, params, name, activation):
    hidden = F.linear(x, params[name + ".up.weight"], params.get(name + ".up.bias"))  # [B, T, 4D]
    if activation == "gelu":  # x Phi(x)
        hidden = 0.5 * hidden * (1.0 + torch.erf(hidden / math.sqrt(2.0)))
    else:
        hidden = 0.5 * hidden * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (hidden + 0.044715 * hidden**3)))
    return F.linear(hidden, params[name + ".down.weight"], params.get(name + ".down.bias"))


def forward(params, ids, activation):
    x = params["wte.weight"][ids] + params["wpe.weight"][: ids.shape[1]]  # [B, T, D]
    for i in range(LAYERS):
        block = f"blocks.{i}."
        x = x + attention(layer_norm(x, params, block + "norm1"), params, block + "attn")
        x = x + mlp(layer_norm(x, params, block + "norm2"), params, block + "mlp", activation)
    return layer_norm(x, params, "norm") @ params["wte.weight"].T  # [B, T, V], the head is tied to the embedding


def mean_loss(logits, targets):
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1), ignore_index=IGNORED)


# --- the reference run -----------------------------------------------------------------------------------------------


def random_batches(count, ignored, generator):
    ids = torch.randint(VOCAB, (count, BATCH, CONTEXT), generator=generator)
    targets = torch.randint(VOCAB, (count, BATCH, CONTEXT), generator=generator)
    targets[torch.rand(targets.shape, generator=generator) < ignored] = IGNORED
    return ids, targets


def train(params, ids, targets, activation, clip):
    """AdamW in place, one batch a step; returns each step's loss and gradient norm before clipping."""
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for n, p in params.items() if is_decayed(n)], "weight_decay": WEIGHT_DECAY},
            {"params": [p for n, p in params.items() if not is_decayed(n)], "weight_decay": 0.0},
        ],
        lr=LR,
        betas=BETAS,
        eps=EPS,
    )
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(forward(params, ids[step], activation), targets[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(params.values(), clip).item())
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def make(activation, bias, seed, ignored, clip, dtype=torch.float64):
    """All tensors of one file, by name."""
    generator = torch.Generator().manual_seed(seed)
    params = random_parameters(bias, generator, dtype)
    ids, targets = random_batches(1 + STEPS, ignored, generator)

    tensors = {"ids": ids[0].int(), "targets": targets[0].int()}
    tensors |= {"steps.ids": ids[1:].int(), "steps.targets": targets[1:].int()}
    tensors |= {"weights." + name: p.detach().float().clone() for name, p in params.items()}

    logits = forward(params, ids[0], activation)
    loss = mean_loss(logits, targets[0])
    loss.backward()
    tensors |= {"logits": logits.detach(), "loss": loss.detach().view(1)}
    tensors |= {"grads." + name: p.grad.clone() for name, p in params.items()}

    losses, norms = train(params, ids[1:], targets[1:], activation, clip)
    tensors |= {"steps.loss": losses, "steps.grad_norm": norms}
    tensors |= {"final." + name: p.detach() for name, p in params.items()}
    return {name: t.numpy() for name, t in tensors.items()}


# --- safetensors: u64 header length, JSON header, data; all little-endian ---------------------------------------------

DTYPES = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "I32": np.dtype("<i4")}


def write_safetensors(path, tensors, metadata):
    codes = {dtype: code for code, dtype in DTYPES.items()}
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)  # widest first keeps all data aligned
    header, offset = {"__metadata__": metadata}, 0
    for name, array in ordered:
        span = [offset, offset + array.nbytes]
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape), "data_offsets": span}
        offset = span[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(array).tobytes() for _, array in ordered)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    data = 8 + struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:data])
    del header["__metadata__"]
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(raw[data + first : data + last], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def largest_difference(new, old):
    if new.keys() != old.keys():
        return math.inf
    return max(float(np.abs(new[n].astype("f8") - old[n].astype("f8")).max()) for n in new)


def save(name, tensors, metadata=None):
    """Writes NAME.safetensors beside this script, from arrays or from tensors of PyTorch."""
    path = pathlib.Path(__file__).with_name(name + ".safetensors")
    arrays = {key: t.contiguous().numpy() if isinstance(t, torch.Tensor) else t for key, t in tensors.items()}
    write_safetensors(path, arrays, metadata or {"torch": torch.__version__})
    print(f"{path.name}: {path.stat().st_size} bytes")


def save_or_check(name, make_all, tolerance, metadata=None):
    """Saves what make_all() returns; with --check, compares it with the file that is there. Returns the exit status."""
    parser = argparse.ArgumentParser(description=f"Make, or check, the PyTorch reference file {name}.safetensors.")
    parser.add_argument("--check", action="store_true", help="compare with the file that is there; write nothing")
    checking = parser.parse_args().check
    torch.set_num_threads(1)  # one summation order
    if not checking:
        save(name, make_all(), metadata)
        return 0
    worst = largest_difference(make_all(), read_safetensors(pathlib.Path(__file__).with_name(name + ".safetensors")))
    print(f"{name}.safetensors: largest difference {worst:.1e}")
    return 0 if worst < tolerance else 1


def relative_differences(new, old):
    """The worst tensor of each kind: norm of the difference over norm of the reference."""
    worst = {}
    for name in old:
        kind = name.split(".")[0]
        if kind in ("ids", "targets", "weights") or name in ("steps.ids", "steps.targets"):
            continue
        rows = [0, 2] if name.endswith("qkv.bias") else ...  # not the key bias: its gradient is rounding noise
        difference = np.linalg.norm(new[name][rows] - old[name][rows]) / np.linalg.norm(old[name][rows])
        worst[kind] = max(worst.get(kind, 0.0), float(difference))
    return ", ".join(f"{kind} {value:.0e}" for kind, value in worst.items())


def check(path, variant):
    """Whether a file holds what is computed now. Another PyTorch may round differently, by far less than 1e-9."""
    committed = read_safetensors(path)
    worst = largest_difference(make(*variant), committed)
    print(f"{path.name}: largest difference {worst:.1e}")
    print(f"    PyTorch in f32, relative: {relative_differences(make(*variant, dtype=torch.float32), committed)}")
    return worst < 1e-9


def write(path, variant):
    activation, bias, seed, _, clip = variant
    tensors = make(*variant)
    config = {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "context": CONTEXT, "vocab": VOCAB}
    config |= {"activation": activation, "bias": "on" if bias else "off", "norm_eps": NORM_EPS, "ignored": IGNORED}
    config |= {"lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS}
    config |= {"weight_decay": WEIGHT_DECAY, "clip": clip, "seed": seed, "torch": torch.__version__}
    write_safetensors(path, tensors, {key: str(value) for key, value in config.items()})
    norms = ", ".join(f"{n:.3f}" for n in tensors["steps.grad_norm"])
    print(f"{path.name}: {path.stat().st_size} bytes, loss {tensors['loss'][0]:.6f}, gradient norms {norms}")


def main():
    parser = argparse.ArgumentParser(description="Make, or check, the PyTorch reference files of the GPT tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files that are there; write nothing")
    checking = parser.parse_args().check
    torch.set_num_threads(1)  # one summation order
    good = True
    for file, *variant in VARIANTS:
        path = pathlib.Path(__file__).with_name(file + ".safetensors")
        if checking:
            good &= check(path, variant)
        else:
            write(path, variant)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

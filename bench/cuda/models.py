"""The models whose training steps are timed: their shapes, the flags of train_gpt, and the same models in PyTorch.
Read next: bench/cuda/step.py.
"""
import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

GPT2 = {"name": "GPT-2 124M", "layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304, "batch": 16}
# 246 million parameters, heads of 64 of which four share keys and values.
LLAMA = {"name": "Llama 246M", "layers": 16, "heads": 16, "kv_heads": 4, "width": 1024, "ffn_width": 2816,
         "context": 2048, "vocab": 32000, "batch": 8}
SMALL = {"layers": 1, "heads": 2, "width": 32, "context": 16, "vocab": 64, "batch": 2}  # under emulation
MODELS = {"gpt2": GPT2, "llama": LLAMA}


def small(shape):
    return {**shape, **SMALL, **({"kv_heads": 1, "ffn_width": 48} if is_llama(shape) else {})}


def is_llama(shape):
    return "kv_heads" in shape


def flags(shape):
    """Of train_gpt."""
    words = [f"--{name} {shape[name]}" for name in ("layers", "heads", "width", "context", "vocab")]
    words.append(f"--micro-batch {shape['batch']}")
    if is_llama(shape):
        words.append(f"--kv-heads {shape['kv_heads']} --ffn-width {shape['ffn_width']} --norm rms --positions rope "
                     "--activation swiglu --bias off --tied off")
    return " ".join(words).split()


def in_pytorch(shape):
    sys.path.insert(0, os.path.join(ROOT, "bench", "peers"))
    if is_llama(shape):
        import pytorch_llama
        return pytorch_llama.Llama(shape)
    import pytorch_gpt
    settings = argparse.Namespace(**{k: shape[k] for k in ("layers", "heads", "width", "context")}, bias="on")
    return pytorch_gpt.Gpt(shape["vocab"], settings)


def product_parameters(shape):
    """Those that a token is multiplied by: all matrices, and the head, but not the embedding."""
    width = shape["width"]
    if not is_llama(shape):
        return 12 * shape["layers"] * width**2 + shape["vocab"] * width
    shared = width * shape["kv_heads"] // shape["heads"]  # width of all keys
    block = 2 * width * width + 2 * width * shared + 3 * width * shape["ffn_width"]
    return shape["layers"] * block + shape["vocab"] * width


def flops_per_token(shape):
    """Forward and backward: 6 a parameter, and 12 L D T for attention."""
    return 6 * product_parameters(shape) + 12 * shape["layers"] * shape["width"] * shape["context"]

#!/usr/bin/env python3
"""Makes from_pytorch.safetensors: what the PyTorch lines of docs/from_pytorch.md compute, by line.

    python3 tests/golden/make_from_pytorch.py            write the file beside this script
    python3 tests/golden/make_from_pytorch.py --check    recompute, and compare with the file that is there

Needs PyTorch and safetensors' format only; the test, tests/reference/from_pytorch_test.cpp, needs neither.
"""

import json
import pathlib
import re
import struct
import sys

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "from_pytorch.md"


def inputs():
    """Small numbers that f32 holds exactly, the same as in the test."""
    def numbers(*shape):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) * 7 % 11 - 5) / 4 + 0.125).reshape(shape)
    return {"x": numbers(2, 3), "w": numbers(3, 4), "k": numbers(2, 3, 4), "images": numbers(2, 3, 6, 6),
            "kernel": numbers(4, 3, 3, 3), "ids": torch.tensor([2, 0])}


def lines():
    """The PyTorch cells of the tables whose values are compared."""
    on = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("<!--"):
            on = line.endswith(", values -->")
        elif on and (found := re.match(r"\| `(.*?)` \| `", line)):
            yield found[1]


def computed():
    names = {"torch": torch, "F": F, **inputs()}
    return {line: torch.as_tensor(eval(line, names)).to(torch.float32).contiguous() for line in lines()}


def encoded(tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main():
    path = HERE / "from_pytorch.safetensors"
    made = encoded(computed())
    if "--check" in sys.argv:
        old = path.read_bytes()
        begins = [8 + struct.unpack("<Q", blob[:8])[0] for blob in (old, made)]
        if old[:begins[0]] != made[:begins[1]]:
            sys.exit("other lines or shapes")
        values = [torch.frombuffer(bytearray(blob[at:]), dtype=torch.float32) for blob, at in zip((old, made), begins)]
        print(f"largest difference {(values[0] - values[1]).abs().max():.1e}")
        return
    path.write_bytes(made)
    print(f"{path}: {len(made)} bytes")


if __name__ == "__main__":
    main()

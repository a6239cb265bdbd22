#!/usr/bin/env python3
"""Writes small.gguf, which tests/data/gguf_test.cpp reads and writes again, with the package gguf of llama.cpp.

    python3 tests/golden/make_gguf.py

It has a value of each type, and a tensor in each storage that Trireme writes. Element i of a tensor of numbers x is
sin(i + 1) times a power of two that grows by row, so that both sides can make it.
"""

import pathlib

import gguf
import numpy as np


def numbers(shape):
    count = int(np.prod(shape))
    rows = np.arange(count) // shape[-1]
    return (np.sin(np.arange(1, count + 1, dtype=np.float64)) * 2.0 ** (rows % 9 - 4)).astype(np.float32).reshape(shape)


def to_bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def main():
    path = pathlib.Path(__file__).with_name("small.gguf")
    w = gguf.GGUFWriter(path, "llama")
    w.add_uint32("test.u32", 4000000000)
    w.add_int32("test.i32", -5)
    w.add_float32("test.f32", 0.1)
    w.add_bool("test.true", True)
    w.add_bool("test.false", False)
    w.add_string("test.text", "grüße \N{GRINNING FACE}")
    w.add_array("test.texts", ["a", "", "ccc"])
    w.add_array("test.numbers", [1, -2, 3])
    w.add_array("test.floats", [0.5, -1.25])
    w.add_uint8("test.u8", 200)
    w.add_int8("test.i8", -100)
    w.add_uint16("test.u16", 60000)
    w.add_int16("test.i16", -30000)
    w.add_uint64("test.u64", 2**63)
    w.add_int64("test.i64", -(2**62))
    w.add_float64("test.f64", 0.1)
    w.add_tensor("f32", numbers((3, 5)))
    w.add_tensor("f16", numbers((7,)).astype(np.float16))
    bf16 = to_bf16(numbers((2, 3, 4)))
    w.add_tensor("bf16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    q8_0 = gguf.quants.quantize(numbers((4, 96)), gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("q8_0", q8_0, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

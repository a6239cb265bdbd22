#!/usr/bin/env python3
"""Writes the arrays that tests/data/npy_test.cpp reads, with NumPy.

    python3 tests/golden/make_npy.py

Every array holds 0, 1, 2, .. in the order of its indices.
"""

import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def counting(shape, dtype):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def main():
    np.save(os.path.join(HERE, "fortran.npy"), np.asfortranarray(counting((2, 3, 4), "float64")))
    with open(os.path.join(HERE, "version2.npy"), "wb") as file:
        np.lib.format.write_array(file, counting((5,), "int32"), version=(2, 0))
    arrays = {name: counting((2, 3), name) for name in ("float64", "float32", "float16", "int64", "int32", "uint8")}
    arrays |= {"scalar": np.float32(7), "empty": np.zeros((0, 3), "float32")}
    arrays["strided"] = counting((4, 6), "float32")[:, ::2]
    np.savez(os.path.join(HERE, "arrays.npz"), **arrays)
    np.savez_compressed(os.path.join(HERE, "compressed.npz"), a=np.zeros(100, "float32"))
    np.save(os.path.join(HERE, "big_endian.npy"), counting((3,), ">f4"))
    np.save(os.path.join(HERE, "structured.npy"), np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")]))


if __name__ == "__main__":
    main()

"""Builds the peer llmc_step.c against a checkout of llm.c, and writes the model file that it reads.

llm.c is not part of this repository: `git clone https://github.com/karpathy/llm.c`, and pass the folder.
"""

import array
import math
import os
import random
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ["-O3", "-ffast-math", "-march=native", "-fopenmp"]  # -O3 -ffast-math is the -Ofast of its Makefile


def refusal(checkout):
    """Why it cannot be built; None if it can."""
    if not os.path.exists(os.path.join(checkout, "train_gpt2.c")):
        return f"[--llmc] '{checkout}' has no train_gpt2.c; expected a checkout of llm.c"
    return None if shutil.which("gcc") else "[--llmc] llm.c is built by gcc; expected one on PATH, found none"


def build(checkout, folder):
    program = os.path.join(folder, "llmc_step")
    subprocess.run(["gcc", *FLAGS, "-w", "-I", checkout, os.path.join(HERE, "llmc_step.c"), "-lm", "-o", program],
                   check=True)
    return program


def write_model(path, context, layers=12, heads=12, width=768, vocab=50257, padded=50304):
    """GPT-2 with random weights, as gpt2_build_from_checkpoint() reads it: 256 numbers, then its tensors."""
    header = array.array("i", [20240326, 3, context, vocab, layers, heads, width, padded] + [0] * 248)
    generator = random.Random(1)
    # Repeated. The number is a prime, so that no two rows are equal.
    noise = array.array("f", [generator.gauss(0, 0.02) for _ in range(65521)])

    def normal(count):
        return (noise * math.ceil(count / len(noise)))[:count]

    def constant(value, count):
        return array.array("f", [value]) * count

    block = [constant(1, layers * width), constant(0, layers * width),                          # norm before attention
             normal(layers * 3 * width * width), constant(0, layers * 3 * width),                # queries, keys, values
             normal(layers * width * width), constant(0, layers * width),                        # projection
             constant(1, layers * width), constant(0, layers * width),                           # norm before the MLP
             normal(layers * 4 * width * width), constant(0, layers * 4 * width),                # up
             normal(layers * 4 * width * width), constant(0, layers * width)]                    # down
    with open(path, "wb") as out:
        for tensor in [header, normal(padded * width), normal(context * width), *block, constant(1, width),
                       constant(0, width)]:
            tensor.tofile(out)

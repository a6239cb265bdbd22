#!/usr/bin/env python3
"""The convolutions of bench/conv_bench.cpp in PyTorch, whose CPU kernels are oneDNN's. Read bench/conv_compare.py.

    VENV/bin/python bench/peers/pytorch_conv.py --batch 4 --threads 2
"""

import argparse
import json
import sys
import time

import torch

# name, input and output channels, size of the input image, kernel, stride: as in conv_bench.cpp
LAYERS = [
    ("first", 3, 64, 224, 7, 2),
    ("64", 64, 64, 56, 3, 1),
    ("64-128/2", 64, 128, 56, 3, 2),
    ("64-128/2 1x1", 64, 128, 56, 1, 2),
    ("128", 128, 128, 28, 3, 1),
    ("128-256/2", 128, 256, 28, 3, 2),
    ("128-256/2 1x1", 128, 256, 28, 1, 2),
    ("256", 256, 256, 14, 3, 1),
    ("256-512/2", 256, 512, 14, 3, 2),
    ("256-512/2 1x1", 256, 512, 14, 1, 2),
    ("512", 512, 512, 7, 3, 1),
]


class Problem:
    def __init__(self, layer, options):
        self.name, self.inputs, outputs, size, self.kernel, self.stride = layer
        self.padding = self.kernel // 2
        out = (size + 2 * self.padding - self.kernel) // self.stride + 1
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]

        def random(*shape):
            return (torch.rand(*shape) - 0.5).to(dtype).contiguous(memory_format=layout)

        self.x = random(options.batch, self.inputs, size, size)
        self.weight = random(outputs, self.inputs, self.kernel, self.kernel)
        self.dy = random(options.batch, outputs, out, out)
        self.flops = 2 * self.dy.numel() * self.inputs * self.kernel**2

    def forward(self):
        torch.nn.functional.conv2d(self.x, self.weight, None, self.stride, self.padding)

    def backward(self, input, weight):
        stride, padding = [self.stride] * 2, [self.padding] * 2
        torch.ops.aten.convolution_backward(
            self.dy, self.x, self.weight, None, stride, padding, [1, 1], False, [0, 0], 1, [input, weight, False]
        )


def seconds_of(flops, f):
    calls = int(min(max(1e9 / flops, 1), 100))
    f()
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - start) / calls


def measure(problems):
    seconds = {}
    for p in problems:
        seconds[p.name + " forward"] = seconds_of(p.flops, p.forward)
        seconds[p.name + " input"] = seconds_of(p.flops, lambda: p.backward(True, False))
        seconds[p.name + " weight"] = seconds_of(p.flops, lambda: p.backward(False, True))
    return seconds


def say(line):
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description="The convolutions of ResNet-18 in PyTorch.")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--channels-last", action="store_true", help="NHWC in memory instead of NCHW")
    parser.add_argument("--turns", action="store_true", help="read from standard input how many passes to do")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        problems = [Problem(layer, options) for layer in LAYERS]
        measure(problems)
        say({"ready": {"torch": torch.__version__}})
        for count in map(int, sys.stdin) if options.turns else [1]:
            for _ in range(count):
                start = time.perf_counter()
                parts = measure(problems)
                say({"seconds": time.perf_counter() - start, "parts": parts})
        say({"end": {}})


if __name__ == "__main__":
    main()

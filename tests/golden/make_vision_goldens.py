#!/usr/bin/env python3
"""Make the reference file that the C++ tests of convolution, pooling and norms over channels compare with.

    python3 tests/golden/make_vision_goldens.py            write vision.safetensors beside this script
    python3 tests/golden/make_vision_goldens.py --check    recompute, and compare with the file that is there

Every case is one PyTorch operation in float64 on random numbers that are rounded to f32: its inputs, its output, the
gradient of the output and the gradients of the inputs. What the file holds, tensor by tensor: README.md in this folder.
"""

import sys

import torch
import torch.nn.functional as F

from make_goldens import save_or_check

# x [N, C, H, W], weight [O, C / groups, R, S], stride, padding, dilation, groups, bias
CONV2D = [
    ((2, 3, 7, 9), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1, True),
    ((3, 4, 7, 8), (3, 4, 3, 2), (2, 3), (1, 0), (1, 1), 1, True),
    ((2, 6, 9, 8), (6, 2, 3, 3), (1, 2), (2, 1), (2, 3), 3, True),
    ((1, 5, 6, 7), (10, 1, 3, 3), (2, 2), (1, 1), (1, 1), 5, False),  # depthwise, two outputs a channel
    ((2, 4, 6, 7), (5, 4, 1, 1), (2, 2), (0, 0), (1, 1), 1, False),
    ((2, 4, 5, 6), (3, 4, 1, 1), (1, 1), (0, 0), (1, 1), 1, True),
    ((2, 3, 9, 10), (3, 3, 5, 4), (3, 2), (4, 3), (1, 2), 1, True),  # more padding than the gradient needs
    ((1, 3, 15, 13), (3, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1, False),  # the first layer of a ResNet
]
# x [N, C, L], weight [O, C / groups, R], stride, padding, dilation, groups, bias
CONV1D = [((2, 4, 11), (6, 2, 3), 2, 1, 2, 2, True), ((3, 3, 7), (4, 3, 4), 1, 3, 1, 1, False)]
# x, kernel, stride, padding, dilation
MAX_POOL = [
    ((2, 2, 8, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((2, 2, 7, 6), (2, 3), (2, 3), (0, 1), (1, 1)),
    ((1, 2, 9, 9), (3, 2), (1, 2), (1, 1), (2, 3)),
]
# x, kernel, stride, padding, count_include_pad
AVG_POOL = [
    ((2, 2, 6, 7), (2, 2), (2, 2), (0, 0), True),
    ((2, 2, 7, 6), (3, 2), (2, 1), (1, 1), True),
    ((2, 2, 7, 6), (3, 2), (2, 1), (1, 1), False),
]
ADAPTIVE = [((2, 3, 7, 5), (1, 1)), ((2, 3, 7, 5), (3, 2)), ((1, 2, 4, 6), (6, 4))]
GROUP_NORM = [((3, 6, 5, 4), 3), ((2, 4, 7), 1), ((2, 5, 8), 5), ((4, 6), 2)]
BATCH_NORM = [((6, 3, 5, 4), 0.1, 1e-5), ((12, 5), 0.3, 1e-3), ((6, 4, 7), 0.1, 1e-5)]


class Numbers:
    """Random numbers that are exact in f32, in f64."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, shape, scale=1.0, shift=0.0):
        return (shift + scale * torch.randn(shape, generator=self.generator)).double()


def run(name, f, inputs, numbers, tensors):
    """Adds inputs, output and gradients of f under `name`."""
    leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
    y = f(**leaves)
    dy = numbers.normal(y.shape)
    y.backward(dy)
    tensors |= {f"{name}.{key}": value.float() for key, value in inputs.items()}
    tensors |= {f"{name}.y": y.detach(), f"{name}.dy": dy.float()}
    tensors |= {f"{name}.d{key}": value.grad for key, value in leaves.items()}


def options(name, values, tensors):
    tensors[f"{name}.options"] = torch.tensor(values, dtype=torch.int32)


def convolutions(numbers, tensors):
    for i, (x, w, stride, padding, dilation, groups, bias) in enumerate(CONV2D):
        inputs = {"x": numbers.normal(x), "weight": numbers.normal(w)}
        if bias:
            inputs["bias"] = numbers.normal(w[:1])
        run(
            f"conv2d.{i}",
            lambda x, weight, bias=None: F.conv2d(x, weight, bias, stride, padding, dilation, groups),
            inputs,
            numbers,
            tensors,
        )
        options(f"conv2d.{i}", [*stride, *padding, *dilation, groups], tensors)
    for i, (x, w, stride, padding, dilation, groups, bias) in enumerate(CONV1D):
        inputs = {"x": numbers.normal(x), "weight": numbers.normal(w)}
        if bias:
            inputs["bias"] = numbers.normal(w[:1])
        run(
            f"conv1d.{i}",
            lambda x, weight, bias=None: F.conv1d(x, weight, bias, stride, padding, dilation, groups),
            inputs,
            numbers,
            tensors,
        )
        options(f"conv1d.{i}", [stride, padding, dilation, groups], tensors)


def pools(numbers, tensors):
    for i, (x, kernel, stride, padding, dilation) in enumerate(MAX_POOL):
        # Rounded to whole numbers and cut at 0, as after a ReLU: windows have several largest elements.
        inputs = {"x": numbers.normal(x, 2).round().clamp(min=0)}
        run(f"max_pool2d.{i}", lambda x: F.max_pool2d(x, kernel, stride, padding, dilation), inputs, numbers, tensors)
        options(f"max_pool2d.{i}", [*kernel, *stride, *padding, *dilation], tensors)
    for i, (x, kernel, stride, padding, counted) in enumerate(AVG_POOL):
        run(
            f"avg_pool2d.{i}",
            lambda x: F.avg_pool2d(x, kernel, stride, padding, count_include_pad=counted),
            {"x": numbers.normal(x)},
            numbers,
            tensors,
        )
        options(f"avg_pool2d.{i}", [*kernel, *stride, *padding, int(counted)], tensors)
    for i, (x, size) in enumerate(ADAPTIVE):
        inputs = {"x": numbers.normal(x)}
        run(f"adaptive_avg_pool2d.{i}", lambda x: F.adaptive_avg_pool2d(x, size), inputs, numbers, tensors)
        options(f"adaptive_avg_pool2d.{i}", [*size], tensors)


def norms(numbers, tensors):
    for i, (shape, groups) in enumerate(GROUP_NORM):
        inputs = {"x": numbers.normal(shape, 1.5, 0.7), "weight": numbers.normal(shape[1:2], 0.5, 1)}
        inputs["bias"] = numbers.normal(shape[1:2])
        run(
            f"group_norm.{i}",
            lambda x, weight, bias: F.group_norm(x, groups, weight, bias, 1e-5),
            inputs,
            numbers,
            tensors,
        )
        options(f"group_norm.{i}", [groups], tensors)
    for i, (shape, momentum, eps) in enumerate(BATCH_NORM):
        name, channels = f"batch_norm.{i}", shape[1]
        mean = numbers.normal(channels)
        variance = numbers.normal(channels, 0.5).abs() + 0.5
        inputs = {"x": numbers.normal(shape, 1.5, 0.7), "weight": numbers.normal(channels, 0.5, 1)}
        inputs["bias"] = numbers.normal(channels)
        tensors |= {f"{name}.running_mean": mean.float(), f"{name}.running_var": variance.float()}
        evaluated = F.batch_norm(inputs["x"], mean, variance, inputs["weight"], inputs["bias"], False, momentum, eps)
        run(
            name,
            lambda x, weight, bias: F.batch_norm(x, mean, variance, weight, bias, True, momentum, eps),
            inputs,
            numbers,
            tensors,
        )
        tensors |= {f"{name}.new_running_mean": mean, f"{name}.new_running_var": variance}
        tensors |= {f"{name}.evaluated": evaluated}
        tensors |= {f"{name}.numbers": torch.tensor([momentum, eps], dtype=torch.float64)}


def make():
    numbers, tensors = Numbers(7), {}
    convolutions(numbers, tensors)
    pools(numbers, tensors)
    norms(numbers, tensors)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


if __name__ == "__main__":
    sys.exit(save_or_check("vision", make, 1e-9))

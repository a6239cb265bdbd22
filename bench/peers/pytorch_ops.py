#!/usr/bin/env python3
"""The operations and layers of bench/op_cases.cpp in PyTorch, with the same names and shapes. Read bench/op_compare.py.

    VENV/bin/python bench/peers/pytorch_ops.py --threads 2 --only softmax,gather
"""

import argparse
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import turns

GROUP_SECONDS, TURN_SECONDS = 4e-3, 40e-3  # as in bench/op_bench.cpp
F32_ONLY = {"adamw_step", "gradient_norm"}


BLOCK = 65521


def repeated(block, shape):
    count = math.prod(shape)
    return block.repeat(-(-count // block.numel()))[:count].reshape(shape)


def random(shape, dtype):
    return repeated((torch.rand(BLOCK) - 0.5).to(dtype), shape)


def random_ids(shape, end):
    return repeated(torch.randint(0, end, (BLOCK,)), shape)


def plane(large):
    return (2048, 4096) if large else (64, 64)


def images(large):
    return (16, 64, 96, 96) if large else (2, 8, 16, 16)


def forward(f):
    def call():
        with torch.no_grad():
            f()
    return call


def both(inputs, f):
    """A call of f(*inputs) and its backward: new gradients of all inputs."""
    inputs = [x.requires_grad_() for x in inputs]
    y = f(*inputs)
    dy = None if y.dim() == 0 else random(y.shape, y.dtype)

    def call():
        torch.autograd.grad(f(*inputs), inputs, dy)
    return call


def both_of_module(module, x, result=lambda y: y):
    """The same for a module, into the gradients of its parameters, which zero_grad() has taken away."""
    x.requires_grad_()
    dy = random(result(module(x)).shape, x.dtype)

    def call():
        x.grad = None
        module.zero_grad()
        result(module(x)).backward(dy)
    return call


def of_plane(f):
    def prepare(dtype, large):
        x = random(plane(large), dtype)
        return forward(lambda: f(x))
    return prepare


def of_plane_with_backward(f):
    return lambda dtype, large: both([random(plane(large), dtype)], f)


def two_planes(f):
    def prepare(dtype, large):
        a, b = random(plane(large), dtype), random(plane(large), dtype)
        return forward(lambda: f(a, b))
    return prepare


def multiply_row(dtype, large):
    a, b = random(plane(large), dtype), random(plane(large)[1:], dtype)
    return forward(lambda: a * b)


def where(dtype, large):
    a, b = random(plane(large), dtype), random(plane(large), dtype)
    mask = a > 0
    return forward(lambda: torch.where(mask, a, b))


def cross_entropy(dtype, large):
    targets = random_ids(plane(large)[:1], plane(large)[1])
    return both([random(plane(large), dtype)], lambda x: F.cross_entropy(x, targets))


def mse_loss(dtype, large):
    target = random(plane(large), dtype)
    return both([random(plane(large), dtype)], lambda x: F.mse_loss(x, target))


def norm_inputs(dtype, large, vectors):
    width = 1024 if large else 64
    rows = plane(large)[0] * plane(large)[1] // width
    return [random((rows, width), dtype)] + [random((width,), dtype) for _ in range(vectors)], (width,)


def layer_norm(dtype, large):
    inputs, shape = norm_inputs(dtype, large, 2)
    return both(inputs, lambda x, g, b: F.layer_norm(x, shape, g, b))


def rms_norm(dtype, large):
    inputs, shape = norm_inputs(dtype, large, 1)
    return both(inputs, lambda x, g: F.rms_norm(x, shape, g, 1e-5))


def gather(dtype, large):
    x, index = random(plane(large), dtype), random_ids(plane(large), plane(large)[1])
    return forward(lambda: torch.gather(x, 1, index))


def gather_backward(dtype, large):
    index = random_ids(plane(large), plane(large)[1])
    return both([random(plane(large), dtype)], lambda x: torch.gather(x, 1, index))


def scatter_add(dtype, large):
    x, values = random(plane(large), dtype), random(plane(large), dtype)
    index = random_ids(plane(large), plane(large)[1])
    return forward(lambda: torch.scatter_add(x, 1, index, values))


def one_hot(dtype, large):
    classes = 1024 if large else 64
    ids = random_ids((8192 if large else 64,), classes)
    return forward(lambda: F.one_hot(ids, classes).to(dtype))


def gather_rows(dtype, large):
    x = random((32768, 256) if large else (64, 64), dtype)
    index = random_ids((x.shape[0],), x.shape[0])
    return forward(lambda: torch.index_select(x, 0, index))


def embedding(dtype, large):
    table = (32768, 256) if large else (512, 64)
    ids = random_ids((32768 if large else 64,), table[0])
    return both([random(table, dtype)], lambda w: F.embedding(ids, w))


def permute_copy(dtype, large):
    x = random((8, 1024, 16, 64) if large else (2, 16, 4, 32), dtype)
    return forward(lambda: x.permute(0, 2, 1, 3).contiguous())


def four_parts(f):
    def prepare(dtype, large):
        parts = [random((plane(large)[0], plane(large)[1] // 4), dtype) for _ in range(4)]
        return forward(lambda: f(parts))
    return prepare


def chunk_multiply(x):
    a, b = x.chunk(2, 1)
    return a * b


def linear_inputs(dtype, large):
    rows, inputs, outputs = (512, 512, 2048) if large else (8, 64, 256)
    return [random((rows, inputs), dtype), random((outputs, inputs), dtype), random((outputs,), dtype)]


def linear(dtype, large):
    inputs = linear_inputs(dtype, large)
    return forward(lambda: F.linear(*inputs))


def matmul_batched(dtype, large):
    shape = (32, 256, 256) if large else (4, 32, 32)
    a, b = random(shape, dtype), random(shape, dtype)
    return forward(lambda: torch.matmul(a, b))


def einsum(dtype, large):
    shape = (4, 512, 8, 64) if large else (2, 16, 4, 32)
    q, k = random(shape, dtype), random(shape, dtype)
    return forward(lambda: torch.einsum("bqhd,bkhd->bhqk", q, k))


def attention(dtype, large):
    shape = (2, 8, 1024, 64) if large else (2, 4, 16, 32)  # [B, H, T, Dh], the layout that PyTorch expects
    return both([random(shape, dtype) for _ in range(3)],
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))


def conv2d(dtype, large):
    batch, channels, outputs, size = (8, 64, 64, 56) if large else (2, 8, 16, 16)
    inputs = [random((batch, channels, size, size), dtype), random((outputs, channels, 3, 3), dtype),
              random((outputs,), dtype)]
    return both(inputs, lambda x, w, b: F.conv2d(x, w, b, padding=1))


def max_pool2d(dtype, large):
    return both([random(images(large), dtype)], lambda x: F.max_pool2d(x, 2))


def batch_norm(dtype, large):
    shape = images(large)
    return both_of_module(torch.nn.BatchNorm2d(shape[1]).to(dtype), random(shape, dtype))


def group_norm(dtype, large):
    shape = images(large)
    inputs = [random(shape, dtype), random((shape[1],), dtype), random((shape[1],), dtype)]
    return both(inputs, lambda x, g, b: F.group_norm(x, 8, g, b))


def recurrent(kind, with_backward):
    def prepare(dtype, large):
        width = 256 if large else 64
        layer = kind(width, width, batch_first=True).to(dtype)
        x = random((32, 64, width) if large else (8, 16, width), dtype)
        if with_backward:
            return both_of_module(layer, x, lambda y: y[0])
        return forward(lambda: layer(x))
    return prepare


def mlp_step(dtype, large):
    width, rows = (1024, 256) if large else (64, 32)
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width),
                              torch.nn.ReLU(), torch.nn.Linear(width, width)).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x, target = random((rows, width), dtype), random((rows, width), dtype)

    def step():
        optimizer.zero_grad()
        F.mse_loss(net(x), target).backward()
        optimizer.step()
    return step


def with_gradients(large):
    inputs, outputs = (2048, 4096) if large else (64, 64)
    layer = torch.nn.Linear(inputs, outputs)
    for parameter in layer.parameters():
        parameter.grad = random(parameter.shape, torch.float32)
    return layer


def adamw_step(dtype, large):
    return torch.optim.AdamW(with_gradients(large).parameters(), lr=1e-6, fused=True).step


def gradient_norm(dtype, large):
    gradients = [p.grad for p in with_gradients(large).parameters()]
    return lambda: torch.nn.utils.get_total_norm(gradients).item()


CASES = {
    "add": two_planes(torch.add),
    "multiply_row": multiply_row,
    "exp": of_plane(torch.exp),
    "tanh": of_plane(torch.tanh),
    "gelu": of_plane(F.gelu),
    "silu_backward": of_plane_with_backward(F.silu),
    "where": where,
    "clamp": of_plane(lambda x: torch.clamp(x, -0.2, 0.3)),
    "dropout": of_plane(lambda x: F.dropout(x, 0.1, True)),
    "sum_all": of_plane(torch.sum),
    "sum_rows": of_plane(lambda x: x.sum(0)),
    "mean_columns": of_plane(lambda x: x.mean(1)),
    "var": of_plane(lambda x: x.var(1)),
    "max": of_plane(lambda x: x.amax(1)),
    "argmax": of_plane(lambda x: x.argmax(1)),
    "topk": of_plane(lambda x: torch.topk(x, 8)),
    "cumsum": of_plane(lambda x: x.cumsum(1)),
    "softmax": of_plane(lambda x: x.softmax(-1)),
    "softmax_backward": of_plane_with_backward(lambda x: x.softmax(-1)),
    "log_softmax_backward": of_plane_with_backward(lambda x: x.log_softmax(-1)),
    "cross_entropy_backward": cross_entropy,
    "mse_loss_backward": mse_loss,
    "layer_norm_backward": layer_norm,
    "rms_norm_backward": rms_norm,
    "gather": gather,
    "gather_backward": gather_backward,
    "scatter_add": scatter_add,
    "one_hot": one_hot,
    "gather_rows": gather_rows,
    "embedding_backward": embedding,
    "permute_copy": permute_copy,
    "transpose_copy": of_plane(lambda x: x.t().contiguous()),
    "concat": four_parts(lambda parts: torch.cat(parts, 1)),
    "stack": four_parts(torch.stack),
    "chunk_multiply_backward": of_plane_with_backward(chunk_multiply),
    "pad": of_plane(lambda x: F.pad(x, (1, 1))),
    "linear": linear,
    "linear_backward": lambda dtype, large: both(linear_inputs(dtype, large), F.linear),
    "matmul_batched": matmul_batched,
    "einsum": einsum,
    "attention_backward": attention,
    "conv2d_backward": conv2d,
    "max_pool2d_backward": max_pool2d,
    "batch_norm_backward": batch_norm,
    "group_norm_backward": group_norm,
    "lstm": recurrent(torch.nn.LSTM, False),
    "lstm_backward": recurrent(torch.nn.LSTM, True),
    "gru_backward": recurrent(torch.nn.GRU, True),
    "mlp_step": mlp_step,
    "adamw_step": adamw_step,
    "gradient_norm": gradient_norm,
}


class Timed:
    """One case with its inputs: as the class of that name in bench/op_bench.cpp."""

    def __init__(self, call):
        self.call = call
        call()
        once = max(self.seconds_of(1), 1e-7)
        self.calls = int(min(max(GROUP_SECONDS / once, 1), 1e5))
        self.groups = int(min(max(TURN_SECONDS / (once * self.calls), 2), 9))

    def seconds_of(self, calls):
        call, start = self.call, time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    def turn(self):
        self.call()
        return statistics.median(self.seconds_of(self.calls) / self.calls for _ in range(self.groups))


def timed(line):
    name, size, dtype = line.split()
    return Timed(CASES[name]({"f32": torch.float32, "bf16": torch.bfloat16}[dtype], size == "large"))


def main():
    parser = argparse.ArgumentParser(description="Times of single operations and layers in PyTorch.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default=",".join(CASES), help="cases to time")
    parser.add_argument("--size", default="small,large")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--turns", action="store_true", help="read cases from standard input")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    if not options.turns:
        for name in options.only.split(","):
            for size in options.size.split(","):
                for dtype in options.dtype.split(","):
                    if dtype == "f32" or name not in F32_ONLY:
                        print(f"{name:24} {size:>6} {dtype:>5} {1e6 * timed(f'{name} {size} {dtype}').turn():12.2f}",
                              flush=True)
        return
    turns.say({"ready": {"torch": torch.__version__}})
    current = None
    for line in map(str.strip, sys.stdin):
        if line == "go":
            turns.say({"seconds": current.turn()})
        else:
            current = None  # frees the inputs of the last case
            current = timed(line)
            turns.say({"prepared": line})
    turns.say({"end": {}})


if __name__ == "__main__":
    main()

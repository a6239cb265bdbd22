"""The time that machine code implies for matrix products and attention on Hopper, at the shapes of two models.

A step of attention: what a consumer warp group does with 64 queries and a tile of keys, or the transpose of that. Its
products take the tensor cores N/2 cycles for 64 x N x 16; its instructions take the schedulers a cycle each, four warps on
four schedulers; its exponentials (MUFU) eight cycles each. The longest of the three is a bound if all overlap. Products:
cuda/kernels/gemm_cut.h cuts them and counts cycles; bench/cuda/cuts.cpp prints what it says.
"""
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass

from .implied import GPT2, GPU, LLAMA, find

CYCLES_OF_MUFU = 8
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclass(frozen=True)
class Tile:
    """A tile of gemm_sm90. Its warp groups share it."""
    size: str
    kernel: str
    warp_groups: int
    file: str = "gemm_sm90.cu"


SHAPE = "gemm_kernel<bf16, bf16, sm90::Shape<(sm90::Consumers)%s>, (Form)0>"
TILES = [Tile("2 of 256 x 192", SHAPE % "1, 2, 192, 3, (Epilogues)1, 2", 2),
         Tile("128 x 192", SHAPE % "2, 2, 192, 4, (Epilogues)1, 1", 1),
         Tile("128 x 256", SHAPE % "1, 1, 256, 4, (Epilogues)0, 1", 2),
         Tile("128 x 128", SHAPE % "1, 1, 128, 4, (Epilogues)0, 1", 2),
         Tile("64 x 64", SHAPE % "0, 1, 64, 4, (Epilogues)0, 1", 1)]


@dataclass(frozen=True)
class Attention:
    """A block has `rows` queries (or keys), 64 for each warp group, and meets `step` keys (or queries) at a time."""
    what: str
    file: str
    kernel: str
    rows: int  # of a block: queries, or keys
    step: int  # keys, or queries, of an iteration
    warp_groups: int


ATTENTION = {
    64: [Attention("attention, causal", "attention_sm90.cu", "forward_kernel<bf16, Shape<64, 3, 128> >", 192, 128, 3),
         Attention("its backward: keys, values", "attention_backward_keys_sm90.cu", "keys_kernel<bf16, attention::backward::Shape<64, 2> >",
                   128, 64, 2),
         Attention("its backward: queries", "attention_backward_queries_sm90.cu", "queries_kernel<bf16, attention::backward::Shape<64, 3> >",
                   192, 64, 3)],
    128: [Attention("attention, causal", "attention_sm90.cu", "forward_kernel<bf16, Shape<128, 2, 128> >", 128, 128, 2),
          Attention("its backward: keys, values", "attention_backward_keys_sm90.cu", "keys_kernel<bf16, attention::backward::Shape<128, 2> >",
                    128, 64, 2),
          Attention("its backward: queries", "attention_backward_queries_sm90.cu", "queries_kernel<bf16, attention::backward::Shape<128, 2> >",
                    128, 64, 2)],
}


def files():
    return {a.file for works in ATTENTION.values() for a in works} | {tile.file for tile in TILES}


def step_cycles(path):
    """(tensor cores, instructions, exponentials) of a step of one warp group, in cycles of a multiprocessor."""
    tensor = sum(int(re.search(r"64x(\d+)x16", i.opcode)[1]) / 2 for i in path.instructions if i.is_("HGMMA"))
    return tensor, len(path.instructions), CYCLES_OF_MUFU * path.count("MUFU")


def causal_steps(length, rows, step):
    """Iterations of all blocks of one head: a block of rows meets what is not beyond it."""
    return sum(-(-min(length, first + rows) // step) for first in range(0, length, rows))


def tile_lines(kernels):
    for tile in TILES:
        kernel = find(tile, kernels)
        tensor, instructions, _ = step_cycles(kernel.products)
        rest = len(kernel.around_products.instructions) - instructions
        yield (f"| {tile.size} | `{tile.kernel}` | {tensor * tile.warp_groups:.0f} | {instructions * tile.warp_groups} "
               f"| {rest * tile.warp_groups} |")


def attention_lines(model, kernels):
    length, heads = model.tokens // model.sequences, model.heads * model.sequences
    for a in ATTENTION[model.head_width]:
        limits = step_cycles(find(a, kernels).products)
        cycles = max(limits)
        steps = causal_steps(length, a.rows, a.step) * a.warp_groups * heads
        seconds = steps * cycles / GPU.multiprocessors / GPU.clock() / 1e6
        yield (f"| {a.what} | `{a.kernel}` | {' | '.join(f'{c:.0f}' for c in limits)} "
               f"| {-(-length // a.rows) * heads / GPU.multiprocessors:.2f} | {seconds * 1e6:,.0f} "
               f"| {('tensor cores', 'issue', 'exponentials')[limits.index(cycles)]} |")


def products(model):
    """(what, m, n, k): y = x W, dx = dy W', dW = x' dy of linear layers. Tiles of 256 x 192 have all their epilogues."""
    linears = [("q, k, v", model.width, model.width + 2 * model.kv_width), ("attention's projection", model.width, model.width),
               ("MLP up", model.width, model.hidden * (2 if model.gated else 1)), ("MLP down", model.hidden, model.width),
               ("logits", model.width, model.vocabulary)]
    for what, inputs, outputs in linears:
        yield what, model.tokens, outputs, inputs
        yield f"{what}: gradient of the input", model.tokens, inputs, outputs
        yield f"{what}: gradient of the weight", inputs, outputs, model.tokens


def product_lines(model):
    all_products = list(products(model))
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "cuts")
        subprocess.run(["g++", "-std=c++20", "-I", ROOT, "-o", program, os.path.join(ROOT, "bench/cuda/cuts.cpp")], check=True)
        shapes = "\n".join(f"{m} {n} {k} 1 1" for _, m, n, k in all_products)
        said = subprocess.run([program], input=shapes, check=True, capture_output=True, text=True).stdout
    for (what, m, n, k), line in zip(all_products, said.splitlines()):
        tile_m, tile_n, waves, divided, cycles = line.split()
        seconds = float(cycles) / GPU.clock() / 1e6
        yield (f"| {what} | {m} x {n} x {k} | {tile_m} x {tile_n} | {waves} | {divided} | {seconds * 1e6:,.0f} "
               f"| {2 * m * n * k / seconds / 1e12:.0f} |")


def lines(kernels):
    """Of the report."""
    table = ["## Products and attention on an H100", "",
             f"At {GPU.clock():.0f} MHz. Products: tiles, waves of tiles on {GPU.multiprocessors} multiprocessors, tiles of the last",
             "wave that are divided among blocks, and the time that cuda/kernels/gemm_cut.h expects. Attention: what a step of 64",
             "rows costs in cycles of a multiprocessor if only the tensor cores counted, or instructions, or exponentials; the",
             "time is that of the longest, with all else under it. scripts/gpu/implied_products.py explains.", "",
             "A step of a tile (64 of K) in cycles of a multiprocessor, by tensor cores and by instructions; and the",
             "instructions of a tile besides steps, on the longest way: they decide how long tensor cores idle between tiles.", "",
             "| tile | kernel | tensor cores | issue | issue besides steps, at most |", "|---|---|---:|---:|---:|",
             *tile_lines(kernels)]
    for model in (GPT2, LLAMA):
        table += ["", f"### Products and attention of {model.name}", "", "| product | m x n x k | tile | waves | divided | implied time, us | TFLOP/s |",
                  "|---|---|---|---:|---:|---:|---:|", *product_lines(model), "",
                  "| work | kernel | tensor cores | issue | exponentials | waves | implied time, us | bound by |",
                  "|---|---|---:|---:|---:|---:|---:|---|", *attention_lines(model, kernels)]
    return table

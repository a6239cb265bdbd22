"""The time that machine code implies for the kernels that move data, at the sizes of a training step of two models.

For each: instructions and bytes for an element (scripts/gpu/sass.py), and the longest of three times:
  memory   all bytes at the bandwidth that copies reach
  loads    all bytes at the bandwidth that the loads in flight allow: threads of a multiprocessor times the bytes that each
           loads in an iteration, every LATENCY (Little's law)
  issue    warps' instructions at one a cycle for each of the four schedulers of a multiprocessor, and exponentials,
           roots and reciprocals (MUFU) at four lanes a cycle each
A model, not a measurement. It leaves out misses and conflicts, and the time that a grid takes to begin and end.
"""
import re
from dataclasses import dataclass

from . import limits

GPU = limits.of("NVIDIA H100 80GB HBM3")
LATENCY = 1e-6  # seconds from a load to its value when memory is busy: an assumption
SCHEDULERS, SPECIAL_LANES = 4, 4


@dataclass(frozen=True)
class Model:
    name: str
    tokens: int
    width: int
    hidden: int  # of an MLP
    gated: bool  # the MLP
    vocabulary: int
    parameters: int
    sequences: int
    heads: int
    head_width: int
    kv_width: int  # of keys, and of values


GPT2 = Model("GPT-2 124M, 16 x 1024 tokens", 16 * 1024, 768, 3072, False, 50304, 124_475_904, 16, 12, 64, 768)
LLAMA = Model("Llama 8B, 8192 tokens", 8192, 4096, 14336, True, 128256, 8_030_261_248, 1, 32, 128, 1024)


@dataclass(frozen=True)
class Work:
    what: str
    file: str
    kernel: str  # matches one kernel's name
    elements: int
    loaded: float  # bytes that the main path loads for an element, also from caches
    bytes: float  # from and to memory for an element


def works(model):
    """The kernels of a step in bf16 besides products and attention; those of every layer, once."""
    rows, wide, logits = model.tokens * model.width, model.tokens * model.hidden, model.tokens * model.vocabulary
    pieces = 4 if model.width % 1024 == 0 else model.width // 256  # of a lane; cuda/kernels/norm_narrow.h
    yield Work("norm with residual", "norm_narrow.cu", f"narrow::forward_kernel<bf16, {pieces}>", rows, 8, 8)
    yield Work("its backward", "norm_narrow.cu", f"narrow::backward_kernel<bf16, {pieces}>", rows, 10, 8)
    yield Work("embedding", "embedding.cu", "embedding_kernel<bf16>", rows, 2, 4)
    yield Work("its backward, in f32", "embedding.cu", "embedding_backward_kernel<bf16>", rows, 6, 10)
    if not model.gated:
        yield Work("gradient of a bias of the MLP", "reduce.cu", "columns_kernel<(Reduction)0, bf16, float>", wide, 2, 2)
        yield Work("dropout", "dropout.cu", "dropout_kernel<bf16>", rows, 2, 4)
    else:
        yield Work("SwiGLU", "elementwise.cu", "swiglu_kernel<bf16>", wide, 4, 6)
        yield Work("its backward", "elementwise.cu", "swiglu_backward_kernel<bf16>", wide, 6, 10)
        # Of queries and of a quarter as many keys; a pair of values has a cosine and a sine in f32, from L2.
        yield Work("rotary positions", "rope.cu", "rope_kernel<bf16>", rows * 5 // 4, 6, 4)
    yield Work("cross entropy of a part of the vocabulary: sums", "cross_entropy.cu", "statistics_kernel<bf16>", logits, 2, 2)
    yield Work("its gradient", "cross_entropy.cu", "gradient_kernel<bf16>", logits, 2, 4)
    yield Work("norm of the gradient", "reduce.cu", "squares_kernel", model.parameters, 4, 4)
    yield Work("AdamW", "optimizer.cu", "adamw_kernel<float, bf16>", model.parameters, 16, 30)


def files():
    return {work.file for model in (GPT2, LLAMA) for work in works(model)}


@dataclass(frozen=True)
class Implied:
    work: Work
    instructions: float  # of a thread, for an element
    in_flight: int  # bytes that a multiprocessor's threads load in an iteration
    memory: float  # seconds
    loads: float
    issue: float

    def seconds(self):
        return max(self.memory, self.loads, self.issue)

    def bound(self):
        return max(("memory", "loads", "issue"), key=lambda name: getattr(self, name))


def implied(work, kernel):
    """`kernel` has registers and threads (cuda_static.Kernel), and `path`, its main path."""
    elements = kernel.path.wide("LDG") / work.loaded  # of an iteration
    moved = work.elements * work.bytes
    in_flight = kernel.blocks() * kernel.threads * kernel.path.wide("LDG")
    warps = work.elements / elements / 32  # iterations of a warp
    cycles = GPU.multiprocessors * GPU.clock() * 1e6 * SCHEDULERS
    issue = max(len(kernel.path.instructions), kernel.path.count("MUFU") * 32 / SPECIAL_LANES)
    return Implied(work, len(kernel.path.instructions) / elements, in_flight, moved / GPU.bandwidth(),
                   moved / (in_flight * work.bytes / work.loaded / LATENCY * GPU.multiprocessors),
                   warps * issue / cycles)


def find(work, kernels):
    found = [k for k in kernels if k.file == work.file and k.architecture == "sm_90a"
             and re.fullmatch(r"(\w+::)*" + re.escape(work.kernel), k.name)]
    if len(found) != 1:
        raise SystemExit(f"implied.py: {len(found)} kernels of {work.file} are '{work.kernel}', expected 1; see works()")
    return found[0]


def lines(kernels):
    """Of the report."""
    table = [
        "## The time that machine code implies on an H100",
        "",
        f"Memory: {GPU.bandwidth() / 1e12:.1f} TB/s. Loads in flight: those of one iteration of all threads that fit,",
        f"which take {LATENCY * 1e6:.0f} us. Issue: {GPU.multiprocessors} multiprocessors of four schedulers at "
        f"{GPU.clock():.0f} MHz. Instructions are",
        "those of the longest way through the main loop for whole vectors. scripts/gpu/implied.py explains. A forecast from",
        "counts, not a measurement.",
    ]
    for model in (GPT2, LLAMA):
        table += ["", f"### {model.name}", "",
                  "| work | kernel | million elements | instructions each | bytes each | in flight, KB "
                  "| implied time, us | bound by |",
                  "|---|---|---:|---:|---:|---:|---:|---|"]
        for work in works(model):
            row = implied(work, find(work, kernels))
            table.append(f"| {work.what} | `{work.kernel}` | {work.elements / 1e6:,.1f} | {row.instructions:.1f} "
                         f"| {work.bytes:g} | {row.in_flight / 1e3:.0f} | {row.seconds() * 1e6:,.1f} | {row.bound()} |")
    return table

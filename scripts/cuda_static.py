#!/usr/bin/env python3
"""What can be said of the CUDA kernels without a GPU: what ptxas reports, and the least time their work can take.

  scripts/cuda_static.py                    compiles every kernel for sm_80 and sm_90a: some minutes on two cores
  scripts/cuda_static.py --only gemm        the files whose name contains the text; writes no report
  scripts/cuda_static.py --self-test        tries the reading of ptxas's output on a planted one; needs no nvcc

Writes bench/results/cuda_static.md. The status is 1 when a kernel spills registers, or when ptxas warns, which it does
when it serialises wgmma or ignores setmaxnreg: both cost most of a kernel's speed. Without nvcc: says so, status 0.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPORT = os.path.join(ROOT, "bench", "results", "cuda_static.md")
FLAGS = ["-std=c++20", "--expt-relaxed-constexpr", "-DFMT_USE_CONSTEXPR=1", "-diag-suppress", "20012,177"]
ARCHITECTURES = {"sm_80": "arch=compute_80,code=sm_80", "sm_90a": "arch=compute_90a,code=sm_90a"}
REGISTERS, MAX_BLOCKS, MAX_WARPS = 65536, 32, 64  # of a multiprocessor, the same on both architectures
# H200 SXM: dense bf16 from tensor cores, and memory bandwidth (NVIDIA's data sheet).
PEAK_FLOPS, PEAK_BYTES = 989e12, 4.8e12


@dataclass
class Kernel:
    name: str
    file: str
    architecture: str
    registers: int
    shared: int
    spills: int
    threads: int = 0

    def blocks(self):
        """How many blocks a multiprocessor can hold by threads and registers; a warp's come in units of 256."""
        warps = (self.threads + 31) // 32
        by_registers = REGISTERS // (warps * ((self.registers * 32 + 255) // 256 * 256))
        return min(by_registers, MAX_WARPS // warps, MAX_BLOCKS)


def find_nvcc():
    for path in (os.environ.get("NVCC"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.path.exists(path):
            return path
    return None


def readable(mangled):
    """gemm_kernel<bf16, float, Shape<2, 256, 4>, (Form)1> for a mangled name."""
    name = subprocess.run(["c++filt", "-p", mangled], capture_output=True, text=True, check=True).stdout.strip()
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"(trireme|cuda|\(anonymous namespace\)|_GLOBAL__N__\w+)::", "", name)
    return name.replace("(int)", "").replace("(bool)0", "false").replace("(bool)1", "true")


def parse(text, file, architecture):
    """Kernels by mangled name, and complaints, from what nvcc -Xptxas -v says."""
    kernels, complaints, current = {}, [], None
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            current = Kernel(found[1], file, architecture, 0, 0, 0)
            kernels[found[1]] = current
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if current is None:
                complaints.append(f"{file}: spills outside a kernel: {line.strip()}")
            else:
                current.spills = int(found[1]) + int(found[2])
        elif (found := re.search(r"Used (\d+) registers", line)) and current is not None:
            current.registers = int(found[1])
            shared = re.search(r"(\d+) bytes smem", line)
            current.shared = int(shared[1]) if shared else 0
        elif re.search(r"warning|Potential Performance Loss|serializ|setmaxnreg|error", line, re.IGNORECASE):
            complaints.append(f"{file} for {architecture}: {line.strip()}")
    for kernel in kernels.values():
        if kernel.spills:
            complaints.append(f"{file} for {architecture}: {kernel.name} spills {kernel.spills} bytes")
    return kernels, complaints


def compile_one(nvcc, file, architecture):
    """One file for one architecture; PTX is kept to read each kernel's number of threads from it."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, *FLAGS, "-gencode=" + ARCHITECTURES[architecture], "-Xptxas", "-v", "--keep", "--keep-dir", folder,
             "-I.", "-c", file, "-o", os.path.join(folder, "kernel.o")],
            cwd=ROOT, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        kernels, complaints = parse(text, os.path.basename(file), architecture)
        if done.returncode != 0:
            complaints.append(f"{file} for {architecture} does not compile: {text[-500:]}")
        for path in glob.glob(os.path.join(folder, "*.ptx")):
            with open(path, encoding="utf-8") as ptx:
                for entry in re.finditer(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", ptx.read()):
                    if entry[1] in kernels:
                        kernels[entry[1]].threads = int(entry[2])
    for kernel in kernels.values():
        if kernel.threads == 0:
            complaints.append(f"{file}: {kernel.name} states no __launch_bounds__")
    return list(kernels.values()), complaints


def gpt2_work():
    """(kernel, what, FLOPs, bytes) of GPT-2 124M, 16 sequences of 1024 tokens, as the kernels' headers count them."""
    tokens, width, vocabulary, layers, heads, length = 16 * 1024, 768, 50304, 12, 12, 1024

    def product(m, n, k, extra=0):  # bf16 in and out; `extra` bytes for each value of c
        return 2 * m * n * k, 2 * (m * k + k * n + m * n) + extra * m * n

    parameters = 124_475_904
    return [
        ("gemm", "q, k, v of a layer: 16384 x 2304 x 768", *product(tokens, 3 * width, width)),
        ("gemm", "attention's projection, residual: 16384 x 768 x 768", *product(tokens, width, width, 2)),
        ("gemm", "MLP up, GELU, pre-activation: 16384 x 3072 x 768", *product(tokens, 4 * width, width, 2)),
        ("gemm", "MLP down, residual: 16384 x 768 x 3072", *product(tokens, width, 4 * width, 2)),
        # The gradient is f32 and is read and written: 8 bytes a value instead of 2.
        ("gemm", "weight gradient of MLP up, f32: 768 x 3072 x 16384", *product(width, 4 * width, tokens, 6)),
        ("gemm", "logits: 16384 x 50304 x 768", *product(tokens, vocabulary, width)),
        ("attention", "forward of a layer, causal: 16 x 12 heads, 1024, 64",
         16 * heads * 2 * length * length * 64, 4 * tokens * width * 2 + 4 * 16 * heads * length),
        ("norm", "LayerNorm forward with residual", 8 * tokens * width, 8 * tokens * width),
        ("norm", "LayerNorm backward with residual", 14 * tokens * width, 8 * tokens * width),
        ("cross_entropy", "both passes, bf16 logits", 8 * tokens * vocabulary, 6 * tokens * vocabulary),
        ("optimizer", f"AdamW, {parameters:,} parameters", 18 * parameters, 28 * parameters),
        ("optimizer", "norm of the gradient, bf16", 2 * parameters, 2 * parameters),
    ]


def roofline_rows():
    rows = []
    for kernel, what, flops, data in gpt2_work():
        arithmetic, memory = flops / PEAK_FLOPS * 1e6, data / PEAK_BYTES * 1e6
        bound = "arithmetic" if arithmetic > memory else "memory"
        rows.append(f"| {kernel} | {what} | {flops / 1e9:,.1f} | {data / 1e6:,.1f} | "
                    f"{max(arithmetic, memory):,.1f} | {bound} |")
    return rows


def report(version, kernels):
    lines = [
        "# CUDA kernels as ptxas sees them",
        "",
        f"*Compiled*, not measured: `scripts/cuda_static.py`, {version}. No kernel below has been timed by this.",
        "",
        "Threads are those of `__launch_bounds__`. Static shared memory leaves out what a launch asks for. Blocks: how",
        "many a multiprocessor holds by threads and registers; dynamic shared memory may allow fewer. Registers of",
        "kernels that use `setmaxnreg` are those at launch. Form 0, 1, 2: NN, NT, TN.",
        "",
        "| kernel | file | for | registers | static shared, bytes | spills, bytes | threads | blocks | occupancy |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for k in sorted(kernels, key=lambda kernel: (kernel.file, kernel.architecture, kernel.name)):
        occupancy = k.blocks() * k.threads / 32 / MAX_WARPS
        lines.append(f"| `{k.name}` | {k.file} | {k.architecture} | {k.registers} | {k.shared} | {k.spills} "
                     f"| {k.threads} | {k.blocks()} | {occupancy:.0%} |")
    lines += [
        "",
        "## The least time on an H200",
        "",
        f"FLOPs over {PEAK_FLOPS / 1e12:.0f} TFLOP/s (dense bf16) or bytes over {PEAK_BYTES / 1e12:.1f} TB/s, whichever",
        "is longer, for GPT-2 124M with 16 sequences of 1024 tokens. The counts are those of the kernels' headers: every",
        "byte once. A bound, not a forecast.",
        "",
        "| kernel | work | GFLOP | MB | least time, us | bound by |",
        "|---|---|---:|---:|---:|---|",
        *roofline_rows(),
    ]
    return "\n".join(lines) + "\n"


def self_test():
    planted = """ptxas info    : Compiling entry function '_Z5cleanv' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compiling entry function '_Z6spillsv' for 'sm_90a'
    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a function call
ptxas info    : (C7508) setmaxnreg is ignored; unable to determine register count at entry
"""
    kernels, complaints = parse(planted, "x.cu", "sm_90a")
    clean = kernels["_Z5cleanv"]
    clean.threads = 384
    checks = [clean.registers == 168, clean.shared == 512, clean.spills == 0, clean.blocks() == 1,
              kernels["_Z6spillsv"].spills == 20, len(complaints) == 3,
              any("serialized" in c for c in complaints), any("setmaxnreg" in c for c in complaints),
              any("spills 20 bytes" in c for c in complaints)]
    print("cuda_static: self-test " + ("passed" if all(checks) else f"FAILED: {checks}"))
    return 0 if all(checks) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="files whose name contains this text; writes no report")
    parser.add_argument("--self-test", action="store_true", help="try the reading of ptxas's output; needs no nvcc")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at once (default 2)")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    nvcc = find_nvcc()
    if nvcc is None:
        print("cuda_static: nvcc was not found, so there is nothing to say; install the CUDA toolkit, or set NVCC")
        return 0
    files = [os.path.relpath(f, ROOT) for f in sorted(glob.glob(os.path.join(ROOT, "cuda/kernels/*.cu")))]
    # What is written for sm_90a has an empty body elsewhere.
    jobs = [(f, a) for f in files if options.only in os.path.basename(f)
            for a in ARCHITECTURES if a == "sm_90a" or not f.endswith("_sm90.cu")]
    if not jobs:
        print(f"cuda_static: no kernel's file contains '{options.only}'; see cuda/kernels/", file=sys.stderr)
        return 2
    kernels, complaints = [], []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (file, architecture), (found, said) in zip(jobs, pool.map(lambda job: compile_one(nvcc, *job), jobs)):
            print(f"{file} for {architecture}: {len(found)} kernels, at most "
                  f"{max((k.registers for k in found), default=0)} registers", flush=True)
            kernels += found
            complaints += said
    for complaint in complaints:
        print("cuda_static: " + complaint, file=sys.stderr)
    if complaints:
        return 1
    for kernel in kernels:
        kernel.name = readable(kernel.name)
    if not options.only:
        version = re.search(r"release [\d.]+", subprocess.run([nvcc, "--version"], capture_output=True, text=True,
                                                              check=True).stdout)
        os.makedirs(os.path.dirname(REPORT), exist_ok=True)
        with open(REPORT, "w", encoding="utf-8") as out:
            out.write(report(f"nvcc {version[0]}" if version else "nvcc", kernels))
        print(f"wrote {os.path.relpath(REPORT, ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

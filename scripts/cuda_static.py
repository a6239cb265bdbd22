#!/usr/bin/env python3
"""Static facts about the CUDA kernels, without a GPU: what ptxas reports, and the least time their work can take.

  scripts/cuda_static.py                    compiles every kernel for sm_80 and sm_90a: some minutes on two cores
  scripts/cuda_static.py --check            the same, and compares with the committed report instead of writing it
  scripts/cuda_static.py --is-current       compiles nothing; the status is 0 if the report was made from these sources
  scripts/cuda_static.py --only gemm        the files whose name contains the text; writes no report
  scripts/cuda_static.py --folder build     in this build folder, whose other objects are kept (default build-cuda)
  scripts/cuda_static.py --self-test        tests the parsing of ptxas's output on a sample; needs no nvcc

The objects are those that programs link: CMake compiles them (cuda/runtime/CMakeLists.txt; the files are those of
cuda/kernels), and this script parses nvcc's output and the machine code, which nvdisasm prints (gpu/sass.py). Writes
bench/results/cuda_static.md. The status is 1 if a kernel spills registers, or if ptxas warns that it serialises wgmma or ignores setmaxnreg: these cost most of a kernel's
speed. It is also 1 if the machine code has a comparison that ptxas 13.0 gets wrong (gpu/sass.py). Without nvcc it
prints that and returns 0.
"""
import argparse
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu import limits, sass  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPORT = os.path.join(ROOT, "bench", "results", "cuda_static.md")
# Keeps uncompressed PTX in the objects: it has each kernel's number of threads.
CONFIGURE = ["-DTRIREME_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=80;90a-real", "-DCMAKE_CUDA_FLAGS=-Xptxas -v --no-compress"]
OBJECT = re.compile(r"^(\S*/trireme_cuda_kernels_\w+\.dir/\S*/(\S+)\.o)$")
REGISTERS, MAX_BLOCKS, MAX_WARPS = 65536, 32, 64  # of a multiprocessor, the same on both architectures
MOST_ROWS = 8  # of instances of one template
# Headers of host classes. Of these, machine code depends on constants alone, such as Shape::max_dims.
HOST_ONLY = {"core/error.h", "core/memory.h", "core/shape.h", "core/tensor.h"}
H200 = limits.of("H200")
PEAK_FLOPS, PEAK_BYTES = H200.flops, H200.memory


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
        """Blocks that a multiprocessor can hold, by threads and registers; a warp's registers come in units of 256."""
        warps = (self.threads + 31) // 32
        by_registers = REGISTERS // (warps * ((self.registers * 32 + 255) // 256 * 256))
        return min(by_registers, MAX_WARPS // warps, MAX_BLOCKS)


def find_nvcc():
    for path in (os.environ.get("NVCC"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.path.exists(path):
            return path
    return None


def readable(mangled):
    """A mangled name as "gemm_kernel<bf16, float, Shape<2, 256, 4>, (Form)1>"."""
    name = subprocess.run(["c++filt", "-p", mangled], capture_output=True, text=True, check=True).stdout.strip()
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"(trireme|cuda|\(anonymous namespace\)|_GLOBAL__N__\w+)::", "", name)
    return name.replace("(int)", "").replace("(bool)0", "false").replace("(bool)1", "true")


def parse(text, file):
    """Kernels by (architecture, mangled name), and complaints, from the output of nvcc -Xptxas -v for one file."""
    kernels, complaints, current = {}, [], None
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            current = kernels[found[2], found[1]] = Kernel(found[1], file, found[2], 0, 0, 0)
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
            complaints.append(f"{file}: {line.strip()}")
    for kernel in kernels.values():
        if kernel.spills:
            complaints.append(f"{file} for {kernel.architecture}: {kernel.name} spills {kernel.spills} bytes")
    return kernels, complaints


def included_by(path, seen):
    """Adds to `seen` the file and what it includes of ours for nvcc, directly or not; paths are relative to the root."""
    emulator = path.startswith("cuda/emu/")  # for other compilers only: cuda/device/device.h
    if emulator or path in seen or not os.path.exists(os.path.join(ROOT, path)):
        return
    seen.add(path)
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for include in re.findall(r'^\s*#include "([^"]+)"', file.read(), re.M):
            included_by(include, seen)


def fingerprint(version):
    """A hash of all that the report depends on, comments aside: kernels, what they include, and how they are compiled."""
    files = {"cmake/cuda.cmake", "cuda/runtime/CMakeLists.txt", "scripts/gpu/sass.py", "scripts/gpu/limits.py"}
    for name in os.listdir(os.path.join(ROOT, "cuda", "kernels")):
        if name.endswith(".cu"):
            included_by("cuda/kernels/" + name, files)
    digest = hashlib.sha256(" ".join([version, *CONFIGURE]).encode())
    for path in sorted(files):
        digest.update(path.encode())
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            lines = [re.sub(r"//.*|^ *#(?!include|if|e|def|pragma|undef).*", "", line).rstrip() for line in file]
        if path in HOST_ONLY:
            lines = [line for line in lines if "constexpr" in line]
        digest.update("\n".join(line for line in lines if line).encode())
    return digest.hexdigest()[:16]


def is_current():
    """Whether the committed report was made from these sources, by the nvcc that it names; needs no nvcc."""
    with open(REPORT, encoding="utf-8") as saved:
        text = saved.read()
    made_from = re.search(r"^Made from sources `(\w+)`", text, re.M)
    compiler = re.search(r"nvcc release \d+\.\d+", text)
    return bool(made_from and compiler) and made_from[1] == fingerprint(compiler[0])


def compile_all(folder, only, jobs):
    """{object: nvcc's output} for a build folder's kernel objects, all rebuilt (or by ccache); and ninja's errors."""
    subprocess.run(["cmake", "--preset", "release", "-B", folder, *CONFIGURE], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    listed = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], cwd=ROOT, check=True, capture_output=True,
                            text=True).stdout
    objects = [found[1] for line in listed.splitlines()
               if (found := OBJECT.match(line.split(":")[0])) and only in found[2]]
    for path in objects:
        if os.path.exists(os.path.join(ROOT, folder, path)):
            os.remove(os.path.join(ROOT, folder, path))
    said, current, problem = {path: "" for path in objects}, None, ""
    if not objects:
        return said, problem
    with subprocess.Popen(["ninja", "-C", folder, "-k", "0", "-j", str(jobs), *objects], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ninja:
        for line in ninja.stdout:
            if found := re.match(r"\[\d+/\d+\] Building CUDA object (\S+)", line):
                current = found[1]
                print(line.rstrip(), flush=True)
            elif line.startswith("ninja:"):
                problem += line
            elif current in said and not line.startswith("/"):  # skip the command that failed
                said[current] += line
    return said, problem if ninja.returncode != 0 else ""


def read_threads(path, kernels):
    """Sets each kernel's number of threads, from the object's PTX."""
    with open(path, "rb") as saved:
        threads = {entry[1].decode(): int(entry[2])
                   for entry in re.finditer(rb"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", saved.read())}
    for kernel in kernels:
        kernel.threads = threads.get(kernel.name, 0)


def wrong_code(path, nvdisasm):
    """Complaints about the object's machine code."""
    return [f"{readable(name)} compares a value with the bound that it was cut to, which ptxas gets wrong "
            "(cuda/kernels/pieces.h)"
            for cubin in sass.cubins(path) for name in sass.wrong_comparisons(sass.listing(nvdisasm, cubin))]


def compile_kernels(folder, only, jobs, nvdisasm):
    """All kernels, and complaints; both are empty if no file's name contains `only`."""
    said, problem = compile_all(folder, only, jobs)
    all_kernels, all_complaints = [], []
    for path, text in said.items():
        file = OBJECT.match(path)[2]
        kernels, complaints = parse(text, file)
        kernels = list(kernels.values())
        if os.path.exists(os.path.join(ROOT, folder, path)):
            read_threads(os.path.join(ROOT, folder, path), kernels)
            complaints += [f"{file}: {k.name} states no __launch_bounds__" for k in kernels if k.threads == 0]
            complaints += [f"{file}: {said}" for said in wrong_code(os.path.join(ROOT, folder, path), nvdisasm)]
        else:
            complaints.append(f"{file} does not compile: {text[-1500:]}")
        all_kernels += kernels
        all_complaints += complaints
    if problem:
        all_complaints.append(problem.strip())
    return all_kernels, all_complaints


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
        # 14 T^2 D a head, half when causal; q, k, v, out, dout, dq, dk, dv once and the log-sum-exp.
        ("attention_backward", "of a layer, causal: the same", 16 * heads * 7 * length * length * 64,
         8 * tokens * width * 2 + 4 * 16 * heads * length),
        ("norm", "LayerNorm forward with residual", 8 * tokens * width, 8 * tokens * width),
        ("norm", "LayerNorm backward with residual", 14 * tokens * width, 8 * tokens * width),
        ("embedding", "tokens to rows, bf16", 0, 4 * tokens * width),
        ("embedding", "gradient, f32: each token's row once", tokens * width, 10 * tokens * width),
        ("elementwise", "derivative of GELU, 3072 wide (unless a product's epilogue has it)",
         10 * tokens * 4 * width, 6 * tokens * 4 * width),
        ("elementwise", "sum of two, 768 wide", tokens * width, 6 * tokens * width),
        ("reduce", "gradient of a bias: sum over tokens, 3072 wide", tokens * 4 * width, 2 * tokens * 4 * width),
        ("copy", "transpose, 768 wide, bf16", 0, 4 * tokens * width),
        ("dropout", "768 wide, bf16", 25 * tokens * width, 4 * tokens * width),
        ("rope", "queries and keys of a layer, bf16", 3 * 2 * tokens * width, 4 * 2 * tokens * width),
        ("softmax", "of a layer's scores as a matrix, bf16: what attention saves", 5 * 16 * heads * length * length,
         4 * 16 * heads * length * length),
        ("cross_entropy", "loss and gradient in one pass, bf16 logits", 8 * tokens * vocabulary,
         4 * tokens * vocabulary),
        ("optimizer", f"AdamW, {parameters:,} parameters", 18 * parameters, 28 * parameters),
        ("optimizer", "norm of the gradient, bf16", 2 * parameters, 2 * parameters),
        ("sgd", f"momentum and a 16-bit copy, {parameters:,} parameters", 5 * parameters, 22 * parameters),
    ]


def roofline_rows():
    rows = []
    for kernel, what, flops, data in gpt2_work():
        arithmetic, memory = flops / PEAK_FLOPS * 1e6, data / PEAK_BYTES * 1e6
        bound = "arithmetic" if arithmetic > memory else "memory"
        rows.append(f"| {kernel} | {what} | {flops / 1e9:,.1f} | {data / 1e6:,.1f} | "
                    f"{max(arithmetic, memory):,.1f} | {bound} |")
    return rows


def row(name, k):
    occupancy = k.blocks() * k.threads / 32 / MAX_WARPS
    return (f"| {name} | {k.file} | {k.architecture} | {k.registers} | {k.shared} | {k.spills} | {k.threads} "
            f"| {k.blocks()} | {occupancy:.0%} |")


def report(version, made_from, kernels):
    lines = [
        "# CUDA kernels as ptxas sees them",
        "",
        f"*Compiled*, not measured: `scripts/cuda_static.py`, {version}. No kernel below has been timed by this.",
        "",
        f"Made from sources `{made_from}`: a hash of the kernels, of what they include, and of how they are compiled.",
        "",
        "Threads are those of `__launch_bounds__`. Static shared memory leaves out what a launch asks for. Blocks: how",
        "many a multiprocessor holds by threads and registers; dynamic shared memory may allow fewer. Registers of",
        "kernels that use `setmaxnreg` are those at launch. Form 0, 1, 2: NN, NT, TN. Of templates with many instances",
        f"(more than {MOST_ROWS} for an architecture) the one is shown of which a multiprocessor holds the fewest threads.",
        "",
        "| kernel | file | for | registers | static shared, bytes | spills, bytes | threads | blocks | occupancy |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    families = {}
    for k in sorted(kernels, key=lambda kernel: (kernel.file, kernel.architecture, kernel.name)):
        families.setdefault((k.file, k.architecture, k.name.split("<")[0]), []).append(k)
    for family in families.values():
        if len(family) <= MOST_ROWS:
            lines += [row(f"`{k.name}`", k) for k in family]
            continue
        # Of many instances show the one of which the fewest fit.
        k = min(family, key=lambda kernel: (kernel.blocks() * kernel.threads, -kernel.registers, -kernel.shared))
        lines.append(row(f"`{k.name}`, the fullest of {len(family)}", k))
    lines += [
        "",
        "## The least time on an H200",
        "",
        f"FLOPs over {PEAK_FLOPS / 1e12:.0f} TFLOP/s (dense bf16) or bytes over {PEAK_BYTES / 1e12:.1f} TB/s, whichever",
        "is longer, for GPT-2 124M with 16 sequences of 1024 tokens. The counts are those of the kernels' headers, every",
        "byte once; operations besides products run on other units, far from their bound. A bound, not a forecast. Dropout,",
        "rotary positions, softmax and momentum are no part of a GPT-2 step; they stand here in its sizes.",
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
    kernels, complaints = parse(planted, "x.cu")
    clean = kernels["sm_90a", "_Z5cleanv"]
    clean.threads = 384
    checks = [clean.registers == 168, clean.shared == 512, clean.spills == 0, clean.blocks() == 1,
              kernels["sm_90a", "_Z6spillsv"].spills == 20, len(complaints) == 3,
              any("serialized" in c for c in complaints), any("setmaxnreg" in c for c in complaints),
              any("spills 20 bytes" in c for c in complaints)]
    bounds = """.text.wrong:
        /*06d0*/                   VIMNMX.RELU R9, P0, P0, R8, 0x4, PT ;
.text.right:
        /*0010*/                   VIMNMX.RELU R9, R8, 0x4, PT ;
"""
    checks.append(sass.wrong_comparisons(bounds) == ["wrong"])
    print("cuda_static: self-test " + ("passed" if all(checks) else f"FAILED: {checks}"))
    return 0 if all(checks) else 1


def compare(text):
    """0 if the committed report is the same; with another nvcc, if it has the same kernels."""
    with open(REPORT, encoding="utf-8") as saved:
        committed = saved.read()

    def what_matters(report_text):
        report_text = re.sub(r"^Made from sources `\w+`", "", report_text, flags=re.M)
        if version(text) == version(committed):
            return report_text.splitlines()
        return [" | ".join(line.split("|")[1:4]) if line.startswith("| `") else line
                for line in report_text.splitlines() if not line.startswith("*Compiled*")]

    def version(report_text):
        return re.search(r"nvcc release [\d.]+", report_text)[0]

    differences = list(difflib.unified_diff(what_matters(committed), what_matters(text), "committed", "compiled now",
                                            lineterm="", n=0))
    if not differences:
        print(f"cuda_static: {os.path.relpath(REPORT, ROOT)} says the same ({version(text)})")
        return 0
    print("\n".join(differences))
    print(f"cuda_static: {os.path.relpath(REPORT, ROOT)} differs; run scripts/cuda_static.py, and look at what changed",
          file=sys.stderr)
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="files whose name contains this text; writes no report")
    parser.add_argument("--self-test", action="store_true", help="try the reading of ptxas's output; needs no nvcc")
    parser.add_argument("--check", action="store_true", help="compare with the committed report, and write nothing")
    parser.add_argument("--is-current", action="store_true",
                        help="whether the committed report was made from these sources, comments aside")
    parser.add_argument("--folder", default="build-cuda", help="the build folder, relative to the root (build-cuda)")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at once (default 2)")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.is_current:
        current = is_current()
        print(f"cuda_static: {os.path.relpath(REPORT, ROOT)} was made from {'these' if current else 'other'} sources"
              + ("" if current else "; run scripts/cuda_static.py where there is an nvcc, and commit the report"))
        return 0 if current else 1
    nvcc = find_nvcc()
    if nvcc is None:
        print("cuda_static: nvcc was not found, so there is nothing to say; install the CUDA toolkit, or set NVCC")
        return 0
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release [\d.]+", said)
    version = f"nvcc {release[0]}" if release else "nvcc"
    made_from = fingerprint(version)
    nvdisasm = sass.nvdisasm(os.path.join(ROOT, options.folder))
    kernels, complaints = compile_kernels(options.folder, options.only, options.jobs, nvdisasm)
    if not kernels and not complaints:
        print(f"cuda_static: no kernel's file contains '{options.only}'; see cuda/kernels/", file=sys.stderr)
        return 2
    for complaint in complaints:
        print("cuda_static: " + complaint, file=sys.stderr)
    if complaints:
        return 1
    for kernel in kernels:
        kernel.name = readable(kernel.name)
    if options.only:
        for k in sorted(kernels, key=lambda kernel: (kernel.file, kernel.architecture, kernel.name)):
            print(f"{k.file} {k.architecture} {k.name}: {k.registers} registers, {k.threads} threads")
        return 0
    text = report(version, made_from, kernels)
    if options.check:
        return compare(text)
    os.makedirs(os.path.dirname(REPORT), exist_ok=True)
    with open(REPORT, "w", encoding="utf-8") as out:
        out.write(text)
    print(f"wrote {os.path.relpath(REPORT, ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

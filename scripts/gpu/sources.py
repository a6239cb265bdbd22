"""Which sources are compiled for a GPU, into which programs, and the hash that says whether a result is still theirs.

Tests are compiled as they are: under emulation by CMake, here by nvcc. Left out are those that only make sense under
emulation, and those that compare with the CPU's kernels, which need Eigen.
"""
import glob
import hashlib
import os
import re

from .place import ROOT, Failed

# Of the emulator's own reports, and those that need its schedules.
EMULATED_ONLY = {"bounds_test.cpp", "connections_test.cpp", "limits_test.cpp", "planted_launch_test.cpp",
                 "planted_test.cpp", "planted_wgmma_test.cpp", "race_test.cpp", "runtime_test.cpp"}
CPU_REFERENCE = {"copy_test.cpp", "rows_test.cpp"}
OTHER_BINARIES = ("table_", "cublaslt_", "cudnn_", "hopper_")
HASHED = ("core/*", "cuda/**/*", "examples/cuda_lab/**/*", "tests/cuda/*", "tests/cuda_lab/*", "tests/support/*",
          "tests/main.cpp", "bench/cuda/*.cu")
# Programs without all kernels that their tests name: the others get stand-ins (build.py).
PARTIAL = {"sm90_test"}
CORE = ["core/dtype.cpp", "core/shape.cpp"]  # the part that kernels use


def listed(folder, variable):
    """The files of a list in a folder's sources.cmake, relative to the root."""
    with open(os.path.join(ROOT, folder, "sources.cmake"), encoding="utf-8") as saved:
        found = re.search(r"set\(%s\s([^)]*)\)" % variable, saved.read())
    if not found:
        raise Failed(f"{folder}/sources.cmake has no list {variable}")
    return [f"{folder}/{name}" for name in found[1].split()]


def found(pattern):
    return sorted(glob.glob(pattern, root_dir=ROOT))


def kernel_tests():
    return [path for path in found("tests/cuda/*_test.cpp")
            if os.path.basename(path) not in EMULATED_ONLY | CPU_REFERENCE
            and not os.path.basename(path).startswith(OTHER_BINARIES)]


def products():
    """Sources by program. hopper_test has no kernels, and sm90_test few, so that they are ready early."""
    kernels, lab = found("cuda/kernels/*.cu"), listed("examples/cuda_lab", "trireme_cuda_levels")
    hopper = [*found("cuda/kernels/*_sm90.cu"), "cuda/kernels/attention_delta.cu"]
    return {"hopper_test": [*CORE, *found("tests/cuda/hopper_*_test.cpp"), "tests/main.cpp"],
            "sm90_test": [*CORE, *hopper, *(f"tests/cuda/{name}_test.cpp" for name in
                                            ("attention_sm90", "gemm_sm90", "gemm_row_sums", "gemm_grouped")),
                          "tests/main.cpp"],
            "gpu_test": [*CORE, *kernels, *kernel_tests(), "tests/main.cpp"],
            "lab_test": [*CORE, *kernels, *lab, *found("tests/cuda_lab/*_test.cpp"), "tests/main.cpp"],
            "tiles_bench": [*CORE, "cuda/kernels/gemm_sm90.cu", "bench/cuda/tiles.cu"],
            "libtrireme_shim.so": [*CORE, *kernels, *lab, "bench/cuda/shim.cu"]}


def digest_of(flags, patterns=HASHED):
    digest = hashlib.sha256(" ".join(flags).encode())
    for pattern in patterns:
        for path in sorted(glob.glob(pattern, root_dir=ROOT, recursive=True)):
            if os.path.isfile(os.path.join(ROOT, path)):
                with open(os.path.join(ROOT, path), "rb") as source:
                    digest.update(path.encode() + source.read())
    return digest.hexdigest()

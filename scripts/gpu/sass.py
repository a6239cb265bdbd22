"""Machine code of kernels, read from the objects that nvcc made: the instructions that ptxas is known to get wrong. Needs
nvdisasm.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

CUDA_MACHINE = 190  # EM_CUDA, in the header of an ELF file


def nvdisasm(folder):
    """The path of nvdisasm: NVDISASM, or in PATH, or of the CUDA toolkit, or of Python's package, put into `folder`."""
    packaged = os.path.join(folder, "nvdisasm", "nvidia", "cu13", "bin", "nvdisasm")
    places = [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm", packaged]
    if found := next((path for path in places if path and os.path.exists(path)), None):
        return found
    installed = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target",
                                os.path.join(folder, "nvdisasm"), "nvidia-cuda-nvdisasm"], capture_output=True, text=True)
    if os.path.exists(packaged):
        return packaged
    raise SystemExit("sass.py: nvdisasm was not found; expected it in PATH, in /usr/local/cuda/bin or named by NVDISASM; "
                     f"pip could not install nvidia-cuda-nvdisasm: {installed.stderr.strip()[-500:]}")


def cubins(path):
    """The machine code for GPUs in an object: ELF files inside the ELF file, not compressed."""
    with open(path, "rb") as saved:
        data = saved.read()
    for found in re.finditer(rb"\x7fELF\x02\x01", data):
        header = data[found.start():found.start() + 64]
        if struct.unpack_from("<H", header, 18)[0] != CUDA_MACHINE:
            continue
        programs, sections = struct.unpack_from("<QQ", header, 32)
        program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
        end = max(programs + program_size * program_count, sections + section_size * section_count)
        yield data[found.start():found.start() + end]


# Seen on an H100: ptxas 13.0 computes max(min(x, N), 0) == N by the predicate of one instruction, which is also true
# for x below N. cuda/kernels/pieces.h says how to write it instead.
WRONG_COMPARISON = re.compile(r"VIMNMX\.RELU R\d+, P\d")


def listing(tool, cubin):
    """The machine code of a cubin as text."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True).stdout


def wrong_comparisons(text):
    """The mangled names of the kernels of a listing that have a comparison which ptxas gets wrong."""
    names, current = [], None
    for line in text.splitlines():
        if found := re.match(r"\.text\.([\w$]+):", line):
            current = found[1]
        elif WRONG_COMPARISON.search(line) and current not in names:
            names.append(current)
    return names

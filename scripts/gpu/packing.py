"""--pack: everything that a machine without our libraries, CMake or much time needs, made here as one file.

It builds the tests for the GPU with nvcc, and whole programs with their libraries linked in, and compresses them: machine code for many instances of a template shrinks to a twentieth. On the other machine gpu_check unpacks the
file, and the build stages find nothing to do, as long as the sources are the same.
"""
import lzma
import os
import shutil
import tarfile

from . import machine, process
from .build import Build
from .place import ROOT, Failed, load_json, save_json, say

# Self-contained, for any GPU from the A100 on and any x86-64 processor of the last ten years.
# NCCL and cuDNN are left out, as a program that links them does not start without them.
CONFIGURE = ["-DTRIREME_CUDA=ON", "-DTRIREME_MPI=OFF", "-DTRIREME_SELF_CONTAINED=ON", "-DTRIREME_ARCH=x86-64-v3",
             "-DTRIREME_NCCL_LIBRARY=OFF", "-DTRIREME_CUDNN=OFF"]
PROGRAMS = ["parity", "parity_matrix", "train_gpt", "generate", "eval"]
ARCHIVE, CONTENTS = "pack.tar.xz", ("bin", "include", "manifest.json")
# Whole programs share most of their code: with a window larger than one of them it is stored once.
COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 256 << 20}]


def headers(place):
    """So that the other machine can compile what it has to."""
    for name in ("fmt", "doctest"):
        if not os.path.isdir("/usr/include/" + name):
            raise Failed(f"/usr/include/{name} is missing; install lib{name}-dev or {name}-dev first")
        shutil.copytree("/usr/include/" + name, place.path("include", name), dirs_exist_ok=True)


def must(place, command, limit, log):
    ended = process.run(command, limit, place.log(log), ROOT)
    if not ended.passed():
        raise Failed(f"{' '.join(command[:3])} ...: {ended.how()}; {ended.log} ends with\n{ended.text[-2000:]}")


def programs(place, jobs):
    folder = os.path.join(ROOT, "build-pack")
    must(place, ["cmake", "--preset", "release", "-B", folder, *CONFIGURE], 600, "pack_configure")
    must(place, ["cmake", "--build", folder, "--parallel", str(jobs), "--target", *PROGRAMS], 7200, "pack")
    os.makedirs(place.path("bin"), exist_ok=True)
    for name in PROGRAMS:
        must(place, ["strip", "-o", place.path("bin", name), os.path.join(folder, "bin", name)], 60, "strip")


def pack(place, nvcc, architecture, jobs):
    """Returns the lines to print. Objects stay behind: the programs are enough."""
    headers(place)
    if nvcc is None:
        raise Failed("no nvcc on the PATH or in /usr/local/cuda/bin; install the CUDA Toolkit")
    build = Build(place, nvcc, architecture)
    say("building the tests and the library with nvcc, then whole programs; this takes some minutes")
    say(build.all(list(build.products), 7200, jobs))
    if build.failures:
        raise Failed("\n".join(f"{name}: {text}" for name, text in build.failures.items()))
    for name in build.products:
        must(place, ["strip", place.path("bin", name)], 60, "strip")
    programs(place, jobs)
    with open(place.path("unpacked"), "w", encoding="utf-8"):
        pass  # here the programs are already in place
    manifest = place.path("manifest.json")
    save_json(manifest, {**load_json(manifest, {}), "commit": machine.commit()})
    return [archive(place), "bring this file along with the sources; the programs need the C library of this machine or a "
                            "newer one, and the GPU's driver"]


def archive(place):
    """Makes the file, and returns a line about it."""
    programs_size = sum(os.path.getsize(place.path("bin", name)) for name in os.listdir(place.path("bin")))
    with lzma.open(place.path(ARCHIVE + ".part"), "w", filters=COMPRESSION) as file, \
            tarfile.open(fileobj=file, mode="w") as out:
        for name in CONTENTS:
            out.add(place.path(name), name)
    os.replace(place.path(ARCHIVE + ".part"), place.path(ARCHIVE))
    return (f"{place.path(ARCHIVE)}: {os.path.getsize(place.path(ARCHIVE)) / 2**20:.1f} MiB, with programs of "
            f"{programs_size / 2**20:.0f} MiB")


def unpack(place):
    """Unpacks a file that was brought along, once. Returns whether it did."""
    mark = place.path("unpacked")
    if not os.path.exists(place.path(ARCHIVE)) or (
            os.path.exists(mark) and os.path.getmtime(mark) >= os.path.getmtime(place.path(ARCHIVE))):
        return False
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
    with tarfile.open(place.path(ARCHIVE)) as saved:
        for member in saved.getmembers():
            if member.name.split("/")[0] in CONTENTS and ".." not in member.name:
                saved.extract(member, place.folder, **safe)
    with open(mark, "w", encoding="utf-8"):
        pass
    return True

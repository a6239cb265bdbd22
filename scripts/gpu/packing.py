"""--pack: everything that a machine without our libraries, CMake or much time needs, made here.

It builds the programs for the GPU with nvcc, and parity and train_gpt with their libraries linked in, into
build-gpu/bin. The build stages there then find nothing to do, as long as the sources are the same.
"""
import os
import shutil

from . import machine, process
from .build import Build
from .place import ROOT, Failed, load_json, save_json, say

# Self-contained, for any GPU from the A100 on and any x86-64 processor of the last ten years.
CONFIGURE = ["-DTRIREME_CUDA=ON", "-DTRIREME_MPI=OFF", "-DTRIREME_SELF_CONTAINED=ON", "-DTRIREME_ARCH=x86-64-v3"]
PROGRAMS = ["parity", "train_gpt"]
MOST_MB = 64


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
    say("building the tests and the library with nvcc, then parity and train_gpt; this takes some minutes")
    say(build.all(list(build.products), 7200, jobs))
    if build.failures:
        raise Failed("\n".join(f"{name}: {text}" for name, text in build.failures.items()))
    for name in build.products:
        must(place, ["strip", place.path("bin", name)], 60, "strip")
    programs(place, jobs)
    manifest = place.path("manifest.json")
    save_json(manifest, {**load_json(manifest, {}), "commit": machine.commit()})
    sizes = {name: os.path.getsize(place.path("bin", name)) / 2**20 for name in sorted(os.listdir(place.path("bin")))}
    total = sum(sizes.values())
    lines = [f"{place.path('bin', name)}: {size:.1f} MiB" for name, size in sizes.items()]
    lines.append(f"{total:.1f} MiB in all" + (f"; more than {MOST_MB}" if total > MOST_MB else ""))
    return [*lines, "bring along build-gpu/bin, build-gpu/include and build-gpu/manifest.json; the programs need the C "
                    "library of this machine or a newer one, and the GPU's driver"]

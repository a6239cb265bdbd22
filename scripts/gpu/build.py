"""Compiles the sources with nvcc and links the programs, whatever fails on the way.

A source that does not compile costs only the tests that call it: programs are linked with a stand-in for each of its
functions, which prints that it was not compiled and ends the process. An object is compiled again only if a source of
any of them has changed, so a build that ran out of time goes on where it stopped.
"""
import concurrent.futures
import os
import shutil
import subprocess
import threading
import time

from . import costs, process, sources
from .place import ROOT, load_json, save_json

STAND_IN = """#include <stdio.h>
#include <unistd.h>
void stand_in_%d(void) __asm__("%s");
void stand_in_%d(void) { fprintf(stderr, "gpu_check: %s was not compiled\\n"); _exit(97); }
"""


class Build:
    def __init__(self, place, nvcc, architecture, products=None):
        self.place, self.nvcc, self.architecture = place, nvcc, architecture
        self.products = products if products is not None else sources.products()
        self.ccache = [path for path in [shutil.which("ccache")] if path]
        self.flags = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DFMT_USE_CONSTEXPR=1", "-DFMT_HEADER_ONLY",
                      "-diag-suppress", "20012,177,20208", f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
                      "-Xcompiler", "-fPIC"]
        self.folders = ["-I" + ROOT, "-I" + place.path("include")]
        self.digest = sources.digest_of(self.flags)
        self.failures = {}  # source or program: what went wrong
        self.lock = threading.Lock()

    def object_of(self, source):
        return self.place.path("objects", os.path.basename(os.path.dirname(source)) + "_" + os.path.basename(source) +
                               ".o")

    def manifest(self):
        """Which digest each object and program was made from."""
        return load_json(self.place.path("manifest.json"), {})

    def note(self, path):
        with self.lock:
            save_json(self.place.path("manifest.json"), {**self.manifest(), os.path.basename(path): self.digest})

    def is_current(self, path):
        return os.path.exists(path) and self.manifest().get(os.path.basename(path)) == self.digest

    def ready(self, product):
        """True if the program is there, made from these sources: by an earlier build, or by --pack."""
        return self.is_current(self.place.path("bin", product))

    def compile(self, source, deadline):
        target, left = self.object_of(source), deadline - time.monotonic()
        if left < 1:
            return f"not started: the time for compiling was over; nvcc needs about {costs.seconds_of(source):.0f} s"
        command = [*self.ccache, self.nvcc, *self.flags, *self.folders, "-x", "cu", "-c", source, "-o", target]
        ended = process.run(command, left, self.place.log("compile_" + os.path.basename(target)), ROOT)
        if not ended.passed():
            if os.path.exists(target):
                os.remove(target)
            return f"{ended.how()}: {first_error(ended.text)}"
        self.note(target)
        return None

    def compile_all(self, names, deadline, jobs):
        """Objects by source, without those that failed."""
        todo = [s for s in costs.longest_first({s for name in names for s in self.products[name]})
                if not self.is_current(self.object_of(s))]
        with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
            for source, failure in zip(todo, pool.map(lambda s: self.compile(s, deadline), todo)):
                if failure:
                    self.failures[source] = failure
        return {s: self.object_of(s) for name in names for s in self.products[name] if s not in self.failures}

    def all(self, names, limit, jobs=None):
        """Builds programs. Returns a line about them; self.failures has what failed, sources and programs."""
        begin, self.failures = time.monotonic(), {}
        missing = [name for name in names if not self.ready(name)]
        if not missing:
            return f"{', '.join(names)}: built before from these sources"
        os.makedirs(self.place.path("bin"), exist_ok=True)
        deadline = begin + limit - min(25.0, limit / 4)  # linking needs some seconds
        objects = self.compile_all(missing, deadline, jobs or os.cpu_count() or 1)
        for name in missing:
            failure = self.link(name, [objects[s] for s in self.products[name] if s in objects],
                                begin + limit - time.monotonic())
            if failure:
                self.failures[name] = failure
        total = {s for name in missing for s in self.products[name]}
        return (f"{len(total & objects.keys())} of {len(total)} sources compiled, "
                f"{sum(name not in self.failures for name in missing)} of {len(missing)} programs linked")

    def link(self, name, objects, left):
        target = self.place.path("bin", name)
        kind = ["-shared"] if name.endswith(".so") else []
        complete = not any(s in self.failures for s in self.products[name])
        extra = [] if complete and name not in sources.PARTIAL else self.stand_ins(name, objects)
        ended = process.run([self.nvcc, *kind, "-o", target, *objects, *extra], min(60, left),
                            self.place.log("link_" + name), ROOT)
        if not ended.passed():
            return f"link: {ended.how()}: {ended.text.strip()[-1500:]}"
        if complete:
            self.note(target)
        return None

    def stand_ins(self, name, objects):
        """An object that defines every function of ours that the objects call and none of them has."""
        missing = missing_symbols(objects)
        if not missing:
            return []
        path = self.place.path("objects", f"stand_ins_{name}.c")
        with open(path, "w", encoding="utf-8") as out:
            out.write("".join(STAND_IN % (i, symbol, i, symbol) for i, symbol in enumerate(missing)))
        process.run([self.nvcc, "-Xcompiler", "-fPIC,-w", "-c", path, "-o", path + ".o"], 30,
                    self.place.log("stand_ins_" + name), ROOT)
        return [path + ".o"]


def first_error(text):
    """Compilers say first what is wrong; later errors often follow from it."""
    at = text.find("error")
    begin = text.rfind("\n", 0, at) + 1 if at >= 0 else max(0, len(text) - 1200)
    return text[begin:begin + 1200].strip()


def missing_symbols(objects):
    """Mangled names with `trireme` in them that some object needs and no object defines."""
    defined, needed = set(), set()
    for path in objects:
        try:
            listing = subprocess.run(["nm", path], capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        for line in listing.splitlines():
            *_, kind, symbol = line.split()
            (needed if kind == "U" else defined).add(symbol)
    return sorted(symbol for symbol in needed - defined if "trireme" in symbol)

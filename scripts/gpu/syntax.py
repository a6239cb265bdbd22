"""--syntax: nvcc's front end over all sources, which finds what the C++ compiler accepts and nvcc does not.

Under emulation the C++ compiler reads the tests, so nothing else would notice such a source before there is a GPU. It
takes about 2 CPU seconds a source, because neither ptxas nor the host's compiler run.
"""
import concurrent.futures
import time

from . import process
from .build import Build, first_error
from .place import ROOT, load_json, save_json

LIMIT = 1800  # seconds, for one source on a busy machine


def check(place, nvcc, architecture, jobs):
    """(line, failures by source)."""
    build = Build(place, nvcc, architecture)
    manifest = place.path("manifest.json")
    if load_json(manifest, {}).get("syntax") == build.digest:
        return "nvcc's front end accepted these sources before", {}
    sources, begin = sorted({s for names in build.products.values() for s in names}), time.monotonic()

    def failure_of(source):
        command = [nvcc, *build.flags, *build.folders, "-x", "cu", "-ptx", source, "-o", "/dev/null"]
        ended = process.run(command, LIMIT, place.log("syntax_" + source.replace("/", "_")), ROOT)
        return None if ended.passed() else f"{ended.how()}: {first_error(ended.text)}"

    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        failures = {s: failure for s, failure in zip(sources, pool.map(failure_of, sources)) if failure}
    if not failures:
        save_json(manifest, {**load_json(manifest, {}), "syntax": build.digest})
    return f"nvcc's front end read {len(sources)} sources in {time.monotonic() - begin:.0f} s", failures

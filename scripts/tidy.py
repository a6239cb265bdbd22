#!/usr/bin/env python3
"""Runs clang-tidy on the sources that build/ compiles, on all cores. The status is 1 if it has findings.

  scripts/tidy.py               all sources but tests
  scripts/tidy.py core nn/mlp   those whose path contains one of these texts

Sources are compiled in batches, and analysed in them: clang-tidy reads the headers of a batch once. Tests are left out:
speed does not count there, and running them is their check. A batch without findings is analysed again only after a
change of a source, of a header of ours, of its command or of .clang-tidy: the user's cache folder has an empty file per
clean state, for all clones. clang-tidy comes from PyPI and is installed in the same folder: this version leaves out the
declarations of system headers, and takes a fifth of the time of Debian 12's.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
WORK = os.path.join(BUILD, "tidy")  # compile_commands.json of what is analysed
VERSION = "23.1.4"  # checks differ between versions
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "trireme", "tidy")
CLEAN = os.path.join(CACHE, "clean")
PACKAGE = os.path.join(CACHE, "clang-tidy-" + VERSION)
TIDY = os.path.join(PACKAGE, "clang_tidy", "data", "bin", "clang-tidy")


def require_clang_tidy():
    """Installs the package of clang-tidy in the cache folder, unless it is there. Ends with 75 if that fails."""
    if os.path.exists(TIDY):
        return
    print(f"Installing clang-tidy {VERSION} in {CACHE} ...", flush=True)
    os.makedirs(CACHE, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:  # renamed when whole: another run may install it, too
        new = os.path.join(folder, "new")
        installed = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", new,
                                    "clang-tidy==" + VERSION], capture_output=True, text=True, check=False)
        if installed.returncode != 0:
            print(f"trireme: tidy: pip could not install clang-tidy {VERSION}: {installed.stderr.strip()[-500:]}",
                  file=sys.stderr)
            sys.exit(75)
        try:
            os.rename(new, PACKAGE)
        except OSError:
            if not os.path.exists(TIDY):
                raise


def ours(path):
    """True for a file of the repository, a batch of sources included."""
    return path.startswith(ROOT + "/")


def is_batch(path):
    return "/Unity/unity_" in path


def sources_of(path):
    """The sources that a batch includes, or the source itself."""
    if not is_batch(path):
        return [path]
    with open(path) as batch:
        return re.findall(r'^#include "(.*)"$', batch.read(), re.M)


def chosen_commands():
    """One command a source. Kernels are compiled several times; prefers a command of g++ without sanitizers."""
    with open(os.path.join(BUILD, "compile_commands.json")) as file:
        commands = json.load(file)

    def rank(entry):
        return bool(re.search(r" -fsanitize=|nvcc", entry["command"]))

    chosen, seen = [], set()
    for entry in sorted(commands, key=rank):
        if not ours(entry["file"]) or re.match(re.escape(ROOT) + "/(build/)?tests/", entry["file"]):
            continue
        sources = sources_of(entry["file"])
        if seen.issuperset(sources):
            continue
        seen.update(sources)
        # Only g++ knows these; it compiles the puzzles' kernels with them, so that all accesses stay visible.
        command = re.sub(r" -fno-(tree-[a-z-]+|thread-jumps)(?= )", "", entry["command"])
        chosen.append(dict(entry, command=command))
    return chosen


def only(commands, texts):
    """The sources whose path contains one of `texts`, each with the command of its batch."""
    entries = []
    for entry in commands:
        for source in sources_of(entry["file"]):
            if any(text in os.path.relpath(source, ROOT) for text in texts):
                entries.append(dict(entry, command=entry["command"].replace(entry["file"], source), file=source))
    return entries


def recorded_headers():
    """Our files that each source or batch includes, as ninja recorded them when it compiled."""
    printed = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=False).stdout
    headers = {}
    for block in re.split(r"\n(?=\S)", printed):
        paths = [os.path.normpath(os.path.join(BUILD, line.strip())) for line in block.splitlines()[1:]]
        mine = [path for path in paths if ours(path)]
        if mine:
            headers[mine[0]] = mine
    return headers


def state_of(entry, headers):
    """A hash of all that the result depends on; None if ninja has no record of the source: it has not been
    compiled, or only in a batch."""
    if entry["file"] not in headers:
        return None
    digest = hashlib.sha256((VERSION + entry["command"].replace(ROOT, ".")).encode())
    folders = [os.path.dirname(entry["file"])]
    while folders[-1] != ROOT and len(folders[-1]) > len(ROOT):
        folders.append(os.path.dirname(folders[-1]))
    checks = [path for folder in folders if os.path.exists(path := os.path.join(folder, ".clang-tidy"))]
    for path in [*checks, *headers[entry["file"]]]:
        try:
            with open(path, "rb") as file:
                digest.update(file.read().replace(ROOT.encode(), b"."))
        except OSError:
            return None
    return os.path.join(CLEAN, digest.hexdigest())


def take_omp_header():
    """A folder that has g++'s omp.h, and none of its other headers, for the benchmark that runs Eigen with OpenMP."""
    folder = os.path.join(WORK, "include")
    os.makedirs(folder, exist_ok=True)
    path = subprocess.run(["g++", "-print-file-name=include/omp.h"], capture_output=True, text=True, check=True).stdout
    shutil.copy(path.strip(), folder)
    return folder


def findings_in(entry, state, omp):
    """What clang-tidy prints; empty if it is content, now or the last time it saw this state."""
    if state and os.path.exists(state):
        return ""
    # The commands are for g++, which reports warnings itself; only the checks of .clang-tidy count here. One of them is
    # against including sources, as batches do.
    done = subprocess.run([TIDY, "-p", WORK, "--quiet", "--extra-arg=-Wno-error", "--extra-arg=-isystem" + omp,
                           "--checks=-bugprone-suspicious-include", entry["file"]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode == 0:
        if state:
            open(state, "w").close()
        return ""
    return done.stdout or f"{TIDY} ended with {done.returncode} on {entry['file']}\n"


def main():
    commands = chosen_commands()
    if sys.argv[1:]:
        commands = only(commands, sys.argv[1:])
    if not commands:
        print("trireme: tidy: no source matches; build/compile_commands.json lists what there is", file=sys.stderr)
        sys.exit(64)
    require_clang_tidy()
    os.makedirs(WORK, exist_ok=True)
    os.makedirs(CLEAN, exist_ok=True)
    with open(os.path.join(WORK, "compile_commands.json"), "w") as file:
        json.dump(commands, file, indent=1)
    headers, omp = recorded_headers(), take_omp_header()
    count = sum(len(sources_of(entry["file"])) for entry in commands)
    print(f"clang-tidy on {count} sources, in {len(commands)} runs ...", flush=True)
    start, wrong, shown = time.time(), 0, set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for output in pool.map(lambda e: findings_in(e, state_of(e, headers), omp), commands):
            wrong += bool(output)
            for finding in re.split(r"^(?=/\S+:\d+:\d+: error)", output, flags=re.M):
                if finding not in shown:  # of a header, each batch has it
                    shown.add(finding)
                    sys.stdout.write(finding)
                    sys.stdout.flush()
    took = f"{time.time() - start:.0f} s"
    if wrong:
        sys.exit(f"trireme: clang-tidy has findings in {wrong} runs (after {took})")
    print(f"  clean, in {took}")


if __name__ == "__main__":
    main()

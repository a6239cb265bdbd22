"""What scripts/peer_hf.py and the other comparisons share: our programs, versions, distances, and what is printed.

Needs nothing but Python; distance() needs numpy.
"""

import array
import importlib.metadata
import math
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "golden"))  # recipes of models and tokenizers, from which the goldens are made


def add_folders(parser, name):
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder of our programs")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / name, help="folder for files made here")


def print_versions(*packages):
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    print(", ".join([*versions, f"Python {platform.python_version()}"]), flush=True)


def run(o, program, *flags):
    """What one of our programs prints on standard output; bytes that are not UTF-8 are surrogates."""
    command = [str(part) for part in (o.bin / program, *flags)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stdout[-2000:] + done.stderr[-2000:]).decode(errors="replace")
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{said}")
    return done.stdout.decode("utf-8", "surrogateescape")


def encoded(o, tokenizer, data, *flags):
    """The ids of a file's text, by our tokenizer."""
    path = o.work / "ids.bin"
    run(o, "tokenizer_bench", "--tokenizer", tokenizer, "--data", data, "--ids", path, *flags)
    ids = array.array("i")
    ids.frombytes(path.read_bytes())
    return list(ids)


def first_difference(a, b):
    """The index; of equal lists, or where one is the beginning of the other, the shorter length."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def distance(ours, theirs):
    """The norm of the difference, as a part of the norm of theirs; infinity for what is no number."""
    import numpy as np

    a, b = (np.asarray(x, dtype=np.float64) for x in (ours, theirs))
    if a.shape != b.shape:
        return math.inf
    norm = float(np.linalg.norm(b))
    off = float(np.linalg.norm(a - b)) / (norm if norm > 0 else 1)
    return math.inf if math.isnan(off) else off


def farthest(ours, theirs):
    """The largest distance of two tensors of one name, and the name."""
    if set(ours) != set(theirs):
        return math.inf, f"other names: {sorted(set(ours) ^ set(theirs))[:6]}"
    return max((distance(ours[name], theirs[name]), name) for name in theirs)


class Report:
    """Prints a line for each comparison, and remembers whether all were good."""

    def __init__(self):
        self.good, self.lines = True, 0

    def line(self, good, text):
        self.good &= good
        self.lines += 1
        print(f"{'ok     ' if good else 'DIFFERS'} {text}", flush=True)

    def end(self):
        """Ends the program: with 1 if anything differed, or if nothing was compared."""
        if self.lines == 0:
            sys.exit("nothing was compared; expected a name that exists; change --only")
        print("all are the same" if self.good else "SOME DIFFER")
        sys.exit(0 if self.good else 1)

"""What this machine has: the GPU, nvcc, and which commit the sources are."""
import os
import re
import shutil
import subprocess

from .place import ROOT

FIELDS = ["name", "compute_cap", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit",
          "memory.total"]


def find_gpu():
    """nvidia-smi's data on the first GPU, or None."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    lines = text.strip().splitlines()
    return dict(zip(FIELDS, [f.strip() for f in lines[0].split(",")])) if lines else None


def find_nvcc():
    for path in (os.environ.get("NVCC"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.path.exists(path):
            return path
    return None


def architecture(gpu):
    """For nvcc. Hopper's own instructions exist only in sm_90a."""
    version = "90" if gpu is None else gpu["compute_cap"].replace(".", "")
    return "90a" if version == "90" else version


def commit():
    """Of the sources: by git, or read from .git where git is not installed."""
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                               timeout=10)
        if found.returncode == 0:
            return found.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return commit_of(os.path.join(ROOT, ".git"))


def commit_of(folder):
    def lines(name):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as saved:
                return saved.read().splitlines()
        except OSError:
            return []

    head = (lines("HEAD") or [""])[0]
    if not head.startswith("ref: "):
        return head[:7] or "unknown"
    reference = head[5:]
    direct = lines(reference)
    packed = [line.split()[0] for line in lines("packed-refs") if line.endswith(" " + reference)]
    found = (direct or packed or [""])[0]
    return found[:7] if re.fullmatch(r"[0-9a-f]{40,64}", found) else "unknown"

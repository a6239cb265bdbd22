"""A copy of the committed sources in which some texts are replaced, with a build folder of its own: for the mutations
of scripts/mutation_check.py and the exhibits of scripts/museum.py.
"""

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass
class Replacement:
    file: str
    old: str  # occurs exactly once
    new: str


def committed():
    """{path: (content, is executable)} of the last commit."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: (tar.extractfile(member).read(), member.mode & 0o100 != 0)
                for member in tar if member.isfile()}


def why_not_planted(replacement, source):
    """Empty when the text is in the source once."""
    found = source.count(replacement.old)
    return "" if found == 1 else f"the line is in {replacement.file} {found} times"


def write_changed(folder, files):
    """Makes the folder hold these files, besides its build folder. Files that are equal stay as they are, so that
    little is compiled again. Returns whether anything was written."""
    changed = False
    for path, (content, executable) in files.items():
        target = os.path.join(folder, path)
        if os.path.exists(target):
            with open(target, "rb") as file:
                if file.read() == content:
                    continue
        changed = True
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)
        os.chmod(target, 0o755 if executable else 0o644)
    return remove_others(folder, files) or changed


def remove_others(folder, files):
    """Sources of earlier commits, which a build would find by their names."""
    removed = False
    for at, folders, names in os.walk(folder):
        if at == folder:
            folders[:] = [name for name in folders if name != "build"]
            continue
        for path in (os.path.join(at, name) for name in names):
            if os.path.relpath(path, folder) not in files:
                os.remove(path)
                removed = True
    return removed

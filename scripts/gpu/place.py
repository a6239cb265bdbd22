"""Where everything is, and the two ways in which a stage can end early."""
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failed(Exception):
    """A stage found something wrong."""


class NotRun(Exception):
    """Why a stage has nothing to do here. The stage neither passed nor failed."""


class Place:
    """The folder of all products, logs and results: build-gpu, or another one for rehearsals and tests."""

    def __init__(self, folder=None):
        self.folder = folder or os.path.join(ROOT, "build-gpu")
        for name in ("", "logs", "objects"):
            os.makedirs(self.path(name), exist_ok=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def log(self, name):
        return self.path("logs", name + ".log")


def say(text=""):
    print(text, flush=True)


def load_json(path, default):
    """The contents of a file that may be absent, or cut off by the end of a machine."""
    try:
        with open(path, encoding="utf-8") as saved:
            return json.load(saved)
    except (OSError, ValueError):
        return default


def save_text(path, text):
    """The file is complete at any time: it may be copied while it is written."""
    with open(path + ".part", "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(path + ".part", path)


def save_json(path, value):
    save_text(path, json.dumps(value, indent=1))

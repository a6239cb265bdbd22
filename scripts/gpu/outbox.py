"""Copies what there is so far to the folder that the environment variable OUT names, after every stage and now and then:
a borrowed machine keeps nothing else, and may be taken away at any time. Few files, all text.
"""
import contextlib
import glob
import os
import shutil
import threading

FILES = ["report.md", "report.json", "cases.jsonl", "compare.json", "step.json", "triage_train.jsonl", "state.json"]
LOGS = "logs.txt"  # with it there are eight
LOG_CHARACTERS, ALL_CHARACTERS = 16_000, 8_000_000
EVERY_SECONDS = 10


class Outbox:
    def __init__(self, place, folder):
        self.place, self.folder = place, folder
        self.lock, self.stopped = threading.Lock(), threading.Event()

    def copy(self):
        if not self.folder:
            return
        with self.lock, contextlib.suppress(OSError):
            os.makedirs(self.folder, exist_ok=True)
            for name in FILES:
                if os.path.exists(self.place.path(name)):
                    shutil.copyfile(self.place.path(name), os.path.join(self.folder, name))
            with open(os.path.join(self.folder, LOGS), "w", encoding="utf-8") as out:
                out.write(all_logs(self.place))

    def _copy_again_and_again(self):
        while not self.stopped.wait(EVERY_SECONDS):
            self.copy()

    def __enter__(self):
        if self.folder:
            threading.Thread(target=self._copy_again_and_again, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.copy()


def all_logs(place):
    """The end of every log, the latest first."""
    text = ""
    for path in sorted(glob.glob(place.path("logs", "*.log")), key=os.path.getmtime, reverse=True):
        with open(path, encoding="utf-8", errors="replace") as saved:
            text += f"==== {os.path.basename(path)}\n{saved.read()[-LOG_CHARACTERS:].rstrip()}\n"
        if len(text) > ALL_CHARACTERS:
            return text + "==== older logs were left out\n"
    return text

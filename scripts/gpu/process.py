"""Runs a program with a time limit. What it started ends with it: each program leads a group of processes."""
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

running = set()  # groups, to be ended when this program is


@dataclass
class Ended:
    status: "int | None"  # None: it had not ended at the limit
    seconds: float
    limit: float
    text: str  # the end of its output
    log: str

    def passed(self):
        return self.status == 0

    def how(self):
        """In words."""
        if self.status is None:
            return f"no end after {self.limit:.0f} s"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


def end_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_all():
    for process in list(running):
        end_group(process)


def own_group():
    """Arguments of Popen. Not a session: whoever ends this program's session ends those as well."""
    return {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


def end_of(path, characters):
    with open(path, "rb") as saved:
        saved.seek(max(0, os.path.getsize(path) - characters))
        return saved.read().decode(errors="replace")


def run(command, limit, log, cwd=None):
    """Output goes to the file `log`; input is empty. A limit below 1 s counts as 1 s."""
    limit, begin = max(1.0, limit), time.monotonic()
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, **own_group())
        except OSError as error:
            out.write(f"{error}\n".encode())
            return Ended(127, 0.0, limit, str(error), log)
        running.add(process)
        status = None
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end_group(process)  # also what a program left behind
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)  # a process that waits for a driver may not end
            running.discard(process)
    return Ended(status, time.monotonic() - begin, limit, end_of(log, 20000), log)

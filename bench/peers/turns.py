"""The line protocol of bench/turns.h for peers in Python: the driver asks for steps, the peer reports their times.

    turns.serve(options, step, prepare, facts)     # in the peer
    with turns.Runner(command) as runner: runner.turn(3)    # in the driver
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time


def at_least(low):
    """Reads an integer from `low` on."""
    def read(text):
        if not text.strip().isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text.strip()!r} is not a number of steps; expected an integer from {low}")
        return int(text)
    return read


def add_flags(parser):
    parser.add_argument("--steps", type=at_least(1), default=10, help="steps to measure, unless --turns")
    parser.add_argument("--warm-up", type=at_least(0), default=3, help="steps before those that are measured")
    parser.add_argument("--turns", action="store_true",
                        help="read how many to do from standard input, one line per turn")


def say(line):
    print(json.dumps(line), flush=True)


def serve(options, step, prepare, facts):
    """Times step(prepare()), without prepare()."""
    for _ in range(options.warm_up):
        step(prepare())
    say({"ready": facts})
    for count in map(at_least(1), sys.stdin) if options.turns else [options.steps]:
        for _ in range(count):
            batch = prepare()
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            step(batch)
            seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
            say({"seconds": seconds, "minor_faults": after.ru_minflt - before.ru_minflt,
                 "major_faults": after.ru_majflt - before.ru_majflt})
    say({"end": {"peak_rss": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}})


class Runner:
    """A program that speaks the protocol: started here, ready on entry, ended on exit. `end` is its last line."""

    def __init__(self, command, environment=None, patience=900, cwd=None):
        self.command = [str(word) for word in command]
        self.patience = patience  # seconds for any one answer
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd,
                                        env=os.environ | (environment or {}))
        self.ready, self.end = None, None

    def _answer(self, key):
        """The next line of JSON that has the key; skips other output of the program."""
        watchdog = threading.Timer(self.patience, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    answer = json.loads(line)
                    if key in answer:
                        return answer
        finally:
            watchdog.cancel()
        raise RuntimeError(f"{' '.join(self.command)}: ended with {self.process.wait()} before it said '{key}'; "
                           f"expected an answer within {self.patience} s; run it by itself with --steps 3")

    def __enter__(self):
        try:
            self.ready = self._answer("ready")["ready"]
        except BaseException:
            self.process.kill()
            raise
        return self

    def turn(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return [self._answer("seconds") for _ in range(steps)]

    def ask(self, line, key):
        """Writes a line, and returns the value of `key` in the answer."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._answer(key)[key]

    def finish(self):
        """Ends the program, and returns its last line."""
        if self.end is None:
            self.process.stdin.close()
            self.end = self._answer("end")["end"]
            self.process.wait()
        return self.end

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

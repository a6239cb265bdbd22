#!/usr/bin/env python3
"""The table of performance goals: Trireme beside PyTorch and llm.c on this machine, in turns, and beside its limits.

    bench/compare.py                                              Trireme alone, printed: what ./trireme bench does
    bench/compare.py --python VENV/bin/python --llmc LLMC --write    with peers, into bench/results/cpu_NAME.{json,md}
    bench/compare.py ... --write --readme                         and a few of its rows into README.md
    bench/compare.py --only bf16-T256 --rounds 9 ... --write         one contest again; the others in the file stay

A contest starts its programs once. They warm up, and then run steps in turns of some seconds, round after round: A B C
A B C. The median step of each turn counts. Ratios are taken within a round, and the table has their median over rounds.
PyTorch runs eager and compiled, and the faster one counts. Read next: bench/README.md (what each figure means),
bench/goals.py (the table), bench/peers/ (the peers).
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "peers"))
import goals  # noqa: E402
import kernel_tables  # noqa: E402
import llmc  # noqa: E402
import turns  # noqa: E402

PRELOADS = ["/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4"]
CHAR = {"layers": 4, "heads": 4, "width": 128, "context": 64, "micro-batch": 12, "vocab": 65}
ROUNDS, MORE_ROUNDS = 5, {"char": 9}  # its steps are short, so noise is larger


# --- who takes part --------------------------------------------------------------------------------------------------


# Binds the peers' threads to cores, as Trireme's are.
BOUND = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}


def flags(values):
    return [word for name, value in values.items() for word in (f"--{name}", value)]


class Sides:
    """The programs of each contest, by name: {who: (command, environment)}."""

    def __init__(self, options, folder):
        self.o, self.folder = options, folder
        self.llmc_step = llmc.build(options.llmc, folder) if options.llmc else None

    def ours(self, program, values, threads=None):
        command = [os.path.join(self.o.bin, program), "--turns", "--threads", threads or self.o.threads]
        return command + flags(values), {}

    def pytorch(self, script, values):
        """Eager and compiled; with --max-autotune also compiled in that mode; empty without --python."""
        if not self.o.python:
            return {}
        command = [self.o.python, os.path.join(HERE, "peers", script), "--turns", "--threads", self.o.threads]
        environment = BOUND | ({"LD_PRELOAD": self.o.preload} if self.o.preload else {})
        command += flags(values)
        ways = {"eager": [], "compiled": ["--compile"]}
        if self.o.max_autotune:
            ways["max-autotune"] = ["--compile", "max-autotune"]
        return {f"PyTorch {way}": (command + more, environment) for way, more in ways.items()}

    def gpt2(self, dtype, length):
        ours = {"model": "gpt2-124m", "context": length, "micro-batch": 4, "dtype": dtype}
        theirs = {"layers": 12, "heads": 12, "width": 768, "context": length, "micro-batch": 4, "vocab": 50304,
                  "gelu": "tanh", "dtype": dtype}
        sides = {"Trireme": self.ours("step_bench", ours)} | self.pytorch("pytorch_step.py", theirs)
        if self.llmc_step and dtype == "f32":
            model = os.path.join(self.folder, f"gpt2_{length}.bin")
            llmc.write_model(model, length)
            sides["llm.c"] = ([self.llmc_step, model, 4, length, 1], BOUND | {"OMP_NUM_THREADS": str(self.o.threads)})
        return sides

    def char(self):
        return {"Trireme": self.ours("step_bench", CHAR)} | self.pytorch("pytorch_step.py", CHAR)

    def recompute(self):
        values = {"model": "gpt2-124m", "context": 256, "micro-batch": 4}
        return {"Trireme": self.ours("step_bench", values | {"recompute": "full"}),
                "Trireme none": self.ours("step_bench", values)}

    def ranks(self, dtype):
        values = {"model": "gpt2-124m", "context": 256, "global-batch": 4, "dtype": dtype}
        one = max(1, self.o.threads // 2)
        return {"Trireme dp=2": self.ours("step_bench", values | {"mesh": "dp=2"}, one),
                "Trireme tp=2": self.ours("step_bench", values | {"mesh": "tp=2"}, one),
                "Trireme one rank": self.ours("step_bench", values)}

    def generate(self, dtype):
        return ({"Trireme": self.ours("generate_bench", {"model": "gpt2-124m", "dtype": dtype}),
                 "memory": self.ours("machine_bench", {})} | self.pytorch("pytorch_generate.py", {"dtype": dtype}))

    def contests(self):
        found = {f"{dtype}-T{length}": (lambda d=dtype, n=length: self.gpt2(d, n))
                 for dtype in ("f32", "bf16") for length in (64, 256)}
        found["char"] = self.char
        found["recompute"] = self.recompute
        for dtype in ("f32", "bf16"):
            found[f"ranks-{dtype}"] = lambda d=dtype: self.ranks(d)
        for dtype in ("f32", "bf16"):
            found[f"generate-{dtype}"] = lambda d=dtype: self.generate(d)
        return found


# --- a contest -------------------------------------------------------------------------------------------------------


def run_contest(name, sides, options):
    """All results, by side: command, environment, its output, and the median step of each round."""
    runners, result = {}, {}
    try:
        for who, (command, environment) in sides.items():
            print(f"{name}: {who} starts", flush=True)
            runners[who] = turns.Runner(command, environment)
            runners[who].__enter__()
        steps, rounds = {}, {who: [] for who in sides}
        for who, runner in runners.items():
            seconds = runner.turn(1)[0]["seconds"]
            steps[who] = max(1, min(100, round(options.seconds / seconds)))
        count = rounds_of(name, options)
        for number in range(count):
            for who, runner in runners.items():
                time.sleep(0.3)  # threads of the previous side may still spin
                rounds[who].append(runner.turn(steps[who]))
            medians = "  ".join(f"{who} {1e3 * median_step(r[-1]):.1f} ms" for who, r in rounds.items())
            print(f"{name}: round {number + 1}/{count}: {medians}", flush=True)
        for who, runner in runners.items():
            every = [step for turn in rounds[who] for step in turn]
            result[who] = {"command": " ".join(shown(word) for word in runner.command),
                           "environment": sides[who][1], "ready": runner.ready, "end": runner.finish(),
                           "round_seconds": [median_step(turn) for turn in rounds[who]], "steps": len(every),
                           "minor_faults": statistics.median(step["minor_faults"] for step in every),
                           "major_faults": statistics.median(step["major_faults"] for step in every)}
    finally:
        for runner in runners.values():
            runner.__exit__()
    return {"date": datetime.date.today().isoformat(), "commit": commit(ROOT), "sides": result}


def rounds_of(contest, options):
    return options.rounds or MORE_ROUNDS.get(contest, ROUNDS)


def median_step(turn):
    return statistics.median(step["seconds"] for step in turn)


def shown(word):
    """A path for publication: relative to the repository, or only its last part."""
    inside = os.path.relpath(word, ROOT)
    return word if not os.path.isabs(word) else inside if not inside.startswith("..") else os.path.basename(word)


def commit(folder):
    git = ["git", "-C", folder]
    found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if found.returncode != 0:
        return "unknown"
    what_is_written = [":(exclude)bench/results", ":(exclude)README.md"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ".", *what_is_written]).returncode != 0
    return found.stdout.strip() + (" and changes" if changed else "")


# --- the machine -----------------------------------------------------------------------------------------------------


def measure_speed(options):
    return json.loads(subprocess.run([os.path.join(options.bin, "machine_bench"), "--threads", str(options.threads)],
                                     check=True, stdout=subprocess.PIPE, text=True).stdout)


def fastest(speed, other):
    """The better of each figure: a limit is what is possible without disturbance."""
    return {k: max(v, other[k]) if isinstance(v, float) else v for k, v in speed.items()}


def measure_machine(options):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    model = re.search(r"model name\s*: (.*)", text)
    features = set((re.search(r"^flags\s*: (.*)", text, re.M) or [None, ""])[1].split())
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(re.search(r"MemTotal:\s*(\d+)", file.read())[1]) * 1024
    return {"cpu": model[1].strip() if model else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "features": [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in features],
            "memory_bytes": memory, "kernel": platform.release(), **measure_speed(options)}


# --- kernels ----------------------------------------------------------------------------------------------------------


def kernel_page(options, folder, machine):
    """The tables of the kernel benchmarks, by number of threads."""
    page = f"# CPU kernels, {machine['cpu']}\n\n{goals.machine_lines(machine)}\n\n" \
           f"Commit {commit(ROOT)}, {datetime.date.today().isoformat()}; " \
           "each share is of a peak measured just before (bench/README.md).\n\n"

    def run(program, *flags):
        path = os.path.join(folder, "kernels.md")
        subprocess.run([os.path.join(options.bin, program), *flags, "--markdown", path], check=True)
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()

    return page + "\n".join(kernel_tables.tables(run, options.threads)) + "\n"


# --- what is asked for -----------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(64, f"compare.py: {message}\n")


def between(kind, least, most):
    def value(text):
        try:
            if least <= kind(text) <= most:
                return kind(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}, got '{text}'")
    return value


def programs_of(contest):
    if contest == "kernels":
        return kernel_tables.PROGRAMS
    return ["generate_bench" if contest.startswith("generate-") else "step_bench"]


def refusal(o, names):
    """Why these contests cannot run, found before any of them starts; None if they can."""
    if o.readme and not o.write:
        return "--readme without --write has nothing to copy; expected both"
    if o.name and not re.fullmatch(r"[\w.-]+", o.name):
        return f"[--name] '{o.name}' is to be part of a file's name; expected letters, digits, _ - ."
    programs = sorted({"machine_bench"}.union(*map(programs_of, names)))
    absent = [program for program in programs if not shutil.which(os.path.join(o.bin, program))]
    if absent:
        return f"[--bin] '{o.bin}' has no {', '.join(absent)}; expected a folder with them: ./trireme build " \
               f"{' '.join(absent)}"
    if o.python and not shutil.which(o.python):
        return f"[--python] '{o.python}' is no program; expected a Python that has PyTorch"
    if o.python and subprocess.run([o.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        return f"[--python] '{o.python}' cannot import torch; expected a Python that has PyTorch"
    if o.python and o.preload and not os.path.exists(o.preload):
        return f"[--preload] '{o.preload}' does not exist; expected an allocator's library, or '' for none"
    return llmc.refusal(o.llmc) if o.llmc else None


# --- the program -----------------------------------------------------------------------------------------------------


def parse(names):
    p = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", help="a Python that has PyTorch, the peer")
    p.add_argument("--llmc", help="a checkout of llm.c, the other peer")
    p.add_argument("--only", action="append", metavar="CONTEST", choices=names,
                   help=f"may be given several times: {', '.join(names)}")
    p.add_argument("--rounds", type=between(int, 1, 1000), metavar="N",
                   help=f"turns of each program (default: {ROUNDS}; {MORE_ROUNDS['char']} of char)")
    p.add_argument("--seconds", type=between(float, 0.01, 600), default=3, metavar="S",
                   help="of a turn, about (default: 3)")
    p.add_argument("--threads", type=between(int, 1, 1024), default=len(os.sched_getaffinity(0)), metavar="N",
                   help="of each program; ranks share them (default: one thread per core, %(default)s here)")
    p.add_argument("--max-autotune", action="store_true", help="PyTorch compiled in that mode, too; takes long")
    p.add_argument("--preload", help="allocator for PyTorch (default: tcmalloc where it is installed; '': none)",
                   default=next(filter(os.path.exists, PRELOADS), ""))
    p.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="where Trireme's programs are")
    p.add_argument("--write", action="store_true", help="into bench/results/")
    p.add_argument("--readme", action="store_true", help="with --write: some rows of the table into README.md, too")
    p.add_argument("--name", help="of the machine, in the files' names (default: from its processor)")
    o = p.parse_args()
    o.contests = o.only or (names if o.write else [name for name in names if name != "kernels"])
    if why := refusal(o, o.contests):
        p.error(why)
    return o


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def stored(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["contests"]


class Results:
    """All contests so far, each with its machine's state; written after each contest, so that none is lost."""

    def __init__(self, options, machine):
        words = re.findall("[a-z0-9]+", f"{machine['cpu']} {machine['cores']} cores".lower())
        name = options.name or "_".join(words)
        self.path = os.path.join(HERE, "results", f"cpu_{name}") if options.write else None
        self.machine = machine  # shared by all contests of this command
        self.all = {"contests": {}, "rows": []}
        if self.path and options.only and os.path.exists(self.path + ".json"):
            self.all["contests"] = stored(self.path + ".json")

    def add(self, contest, result, speed):
        self.machine |= fastest(speed, self.machine)
        self.all["contests"][contest] = {"machine": self.machine} | result
        self.all["rows"] = goals.rows(self.all)
        if self.path:
            write(self.path + ".json", json.dumps(self.all, indent=1) + "\n")
            write(self.path + ".md", goals.page(self.all))

    def into_readme(self, path):
        begin, end = (f"<!-- performance: {which} -->\n" for which in ("begin", "end"))
        with open(path, encoding="utf-8") as file:
            before, rest = file.read().split(begin)
        write(path, f"{before}{begin}\n{goals.summary(self.all)}\n{end}{rest.split(end)[1]}")

    def add_kernels(self, page):
        if self.path:
            write(self.path + "_kernels.md", page)


def main():
    names = list(Sides(argparse.Namespace(llmc=None), None).contests())
    o = parse(names + ["kernels"])
    machine = measure_machine(o)
    results = Results(o, machine)
    with tempfile.TemporaryDirectory(prefix="trireme-compare-") as folder:
        sides = Sides(o, folder).contests()
        for contest in o.contests:
            if contest == "kernels":
                results.add_kernels(kernel_page(o, folder, machine))
            else:
                result = run_contest(contest, sides[contest](), o)
                results.add(contest, result, measure_speed(o))
    if results.all["contests"]:
        print(goals.page(results.all))
    if o.readme:
        results.into_readme(os.path.join(ROOT, "README.md"))
    if results.path:
        print(f"written to {os.path.relpath(results.path)}*")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, subprocess.CalledProcessError) as error:  # a program of a contest ended
        raise SystemExit(f"compare.py: {error}") from error

"""The stages, on a GPU or in rehearsal. Each returns a line to print, raises Failed, or raises NotRun with the reason.

A call is a list of stages that together stay below ten minutes, the most that some machines lend at a time.
"""
import hashlib
import os
import re
import shutil
import sys
import time

from . import cases, inference, packing, process, rehearsal, sanitizing, sources, training
from .build import Build
from .place import ROOT, Failed, NotRun, load_json

# Seconds. Programs that --pack brought along need no build.
LIMITS = {"build_triage": 120, "hopper": 30, "sm90": 40, "train": 40,
          "build": 200, "wrappers": 30, "kernels": 80, "sanitizer": 70, "parity": 40, "matrix": 80,
          "inference": 40,
          "build_bench": 130, "bench": 115, "step": 210, "profile": 95, "report": 15}
CALLS = {"triage": ["build_triage", "hopper", "sm90", "train", "report"],
         "tests": ["build", "wrappers", "kernels", "sanitizer", "parity", "matrix", "inference",
                   "report"],
         "benchmarks": ["build_bench", "bench", "step", "profile", "report"]}
BUILDS = {"build_triage": ["hopper_test", "sm90_test"], "build": ["gpu_test", "lab_test"],
          "build_bench": ["libtrireme_shim.so"]}
# Each compared with one rank on the CPU: loss, gradients, weights (examples/parity.cpp).
PARITY = ["--mesh dp=2", "--mesh tp=2", "--mesh pp=2 --micro-batches 4", "--mesh cp=2", "--mesh dp=2,tp=2 --zero 3",
          "--mesh dp=2,tp=2,pp=2 --micro-batches 4", "--mesh dp=2,tp=2,pp=2 --micro-batches 4 --dtype bf16"]
MATRIX_EVERY = "10"  # a combination takes two seconds
SANITIZED = [f"{what}*" for what in ("emulator:", "cuda norms", "cuda adamw", "cuda reduce", "cuda softmax", "cuda cross",
                                     "cuda embedding", "cuda top", "cuda rank", "cuda merge")]


class Check:
    """options: --rehearse, --programs, --case-limit. The results of a stage that runs programs depend on `key`."""

    def __init__(self, place, options, gpu, nvcc, architecture):
        self.place, self.gpu, self.nvcc = place, gpu, nvcc
        self.rehearse, self.programs = options.rehearse, options.programs
        self.build_with = Build(place, nvcc, architecture, rehearsal.products(place) if self.rehearse else None)
        self.cases = cases.Cases(place, gpu, options.case_limit)
        self.failures = {}  # of the stage that runs

    def key(self, stage):
        """The hash that a stage's result depends on: of the sources, or of the program that it runs."""
        prefix = "rehearsed " if self.rehearse else ""
        programs = {"parity": ["parity"], "matrix": ["parity_matrix"], "inference": ["train_gpt", "generate", "eval"],
                    "step": ["train_gpt"], "train": ["train_gpt"], "profile": ["train_gpt"]}.get(stage, [])
        compared = ("bench/cuda/*.py", "bench/peers/*.py", "scripts/gpu/limits.py")
        scripts = sources.digest_of([], compared) if stage in ("bench", "step", "profile") else ""
        for name in programs:
            path = self.find(name)
            if path is None:
                return prefix + "no program"
            with open(path, "rb") as saved:
                scripts += hashlib.sha256(saved.read()).hexdigest()
        return prefix + (scripts if programs else self.build_with.digest + scripts)

    # ---- programs --------------------------------------------------------------------------------------------------

    def find(self, name):
        """The program made by a build stage, brought by --pack, or in the build folder; or None."""
        if self.programs:
            places = [os.path.join(self.programs, name)]
        elif self.rehearse:
            places = [os.path.join(ROOT, "build", rehearsal.EMULATED[name])]
        else:
            places = [self.place.path("bin", name), os.path.join(ROOT, "build", "bin", name)]
        return next((path for path in places if os.path.exists(path)), None)

    def needed(self, name):
        if self.rehearse and not self.programs:
            rehearsal.build(self.place, name)
        path = self.find(name)
        if path is None and name in packing.PROGRAMS:
            raise NotRun(f"no {name} in build-gpu/bin or build/bin; run --pack where CMake and the libraries are")
        if path is None:
            raise Failed(f"no {name}; its build stage failed or did not run")
        return path

    def slower(self, limit):
        """Emulation takes longer than a GPU, above all on a busy machine."""
        return limit * (20 if self.rehearse else 1)

    # ---- building --------------------------------------------------------------------------------------------------

    def compile(self, names, limit):
        if self.nvcc is None:
            raise NotRun("no nvcc here, so nothing was compiled for a GPU")
        line = self.build_with.all(names, limit)
        self.failures = dict(self.build_with.failures)
        if self.failures:
            raise Failed(line + "".join(f"\n    {name}: {' '.join(text.split())[:300]}"
                                        for name, text in list(self.failures.items())[:8]))
        return line

    def build_triage(self, limit):
        return self.compile(["planted_program"] if self.rehearse else BUILDS["build_triage"], limit)

    def build(self, limit):
        return self.compile(["hopper_test"] if self.rehearse else BUILDS["build"], limit)

    def build_bench(self, limit):
        if self.rehearse:
            raise NotRun("the emulated library is built by CMake")
        return self.compile(BUILDS["build_bench"], limit)

    # ---- test cases ------------------------------------------------------------------------------------------------

    def run_cases(self, stage, programs, patterns, limit):
        results, broken = [], []
        self.cases.forget(stage)
        if self.rehearse:
            programs = [*programs, "planted_test"]
        deadline = time.monotonic() + self.slower(limit)
        for name in programs:
            try:
                if name == "planted_test":
                    path, case_limit = rehearsal.planted_test(self.place), self.cases.case_limit
                else:
                    path, case_limit = self.needed(name), self.slower(self.cases.case_limit)
                partial = name in sources.PARTIAL and name not in self.build_with.failures
                results += self.cases.run_all(path, patterns, stage, deadline - time.monotonic(), case_limit, partial)
            except Failed as failure:
                broken.append(f"{name}: {failure}")
        if results and all(r["status"] == "skipped" for r in results) and not broken:
            raise NotRun(results[0]["reason"])
        line, good = cases.summary(results)
        self.failures = {r["case"]: f"{r['status']}: {r['reason']}" for r in results
                         if r["status"] not in ("passed", "skipped")} | dict(b.split(": ", 1) for b in broken)
        if broken or not good:
            raise Failed("\n    ".join([line, *broken]))
        return line

    def hopper(self, limit):
        return self.run_cases("hopper", ["hopper_test"], ["hopper:*"], limit)

    def sm90(self, limit):
        return self.run_cases("sm90", ["sm90_test"], ["cuda gemm_sm90*", "cuda attention_sm90*",
                                                      "cuda attention_backward_sm90*", "cuda grouped_gemm_sm90*"], limit)

    def wrappers(self, limit):
        return self.run_cases("wrappers", ["gpu_test"], ["emulator:*"], limit)

    def kernels(self, limit):
        return self.run_cases("kernels", ["gpu_test", "lab_test"], ["cuda *"], limit)

    def sanitizer(self, limit):
        if self.rehearse:
            raise NotRun("needs a GPU; under emulation the checks of docs/cuda.md stand in for it")
        tool = sanitizing.where()
        if tool is None:
            raise NotRun("compute-sanitizer was not found beside nvcc")
        line, self.failures = sanitizing.run_all(tool, self.place, self.needed("gpu_test"), SANITIZED, limit - 2, 40,
                                                  self.cases.jobs)
        if any(sanitizing.UNSUPPORTED in text for text in self.failures.values()):
            raise NotRun("compute-sanitizer says that this device is not supported")
        return line if not self.failures else self.fail()

    # ---- whole programs --------------------------------------------------------------------------------------------

    def must_pass(self, command, limit, what):
        """A failure is noted, and what comes after it still runs."""
        log = self.place.log(re.sub(r"[^A-Za-z0-9]+", "_", what).strip("_"))
        ended = process.run(command, limit, log, ROOT)
        if not ended.passed():
            self.failures[what] = f"{ended.how()}: {ended.text.strip()[-800:]}"
        return ended

    def fail(self):
        raise Failed("; ".join(f"{what}: {' '.join(text.split())[:300]}" for what, text in self.failures.items()))

    def train(self, limit):
        program = self.needed("train_gpt")
        line = training.twenty_steps(program, self.place, self.slower(limit), self.rehearse, self.must_pass)
        return line if not self.failures else self.fail()

    def parity(self, limit):
        program = self.needed("parity")
        small = "--layers 2 --width 32 --context 16".split() if self.rehearse else []
        deadline = time.monotonic() + self.slower(limit)
        for done, flags in enumerate(PARITY):
            share = (deadline - time.monotonic()) / max(1, (len(PARITY) - done) / 2)
            self.must_pass([program, "--device", "cuda", *flags.split(), *small], share, "parity " + flags)
        return f"{len(PARITY)} meshes equal one rank" if not self.failures else self.fail()

    def matrix(self, limit):
        """A tenth of the combinations that together have every pair of choices, in f32 and in bf16."""
        every = "130" if self.rehearse else MATRIX_EVERY  # under emulation one takes a minute
        ended = self.must_pass([self.needed("parity_matrix"), "--covering", "--device", "cuda", "--report-every", "1",
                                "--every", every], self.slower(limit), "matrix")
        return " ".join(ended.text.strip().splitlines()[-4:]) if not self.failures else self.fail()

    def inference(self, limit):
        programs = {name: self.needed(name) for name in ("train_gpt", "generate", "eval")}
        line = inference.compare(programs, self.place, self.slower(limit), self.rehearse, self.must_pass)
        return line if not self.failures else self.fail()

    def bench(self, limit):
        library, out = self.needed("libtrireme_shim.so"), self.place.path("compare.json")
        flags = ["--rehearse", "--plant", "--case-limit", str(self.cases.case_limit)] if self.rehearse else []
        ended = self.must_pass([sys.executable, "bench/cuda/compare.py", "--library", library, "--out", out, "--within",
                                str(limit - 5), *flags], limit, "bench")
        return self.figures(ended, out)

    def step(self, limit):
        out = self.place.path("step.json")
        ended = self.must_pass([sys.executable, "bench/cuda/step.py", "--program", self.needed("train_gpt"), "--out",
                                out, "--within", str(limit / 2 - 5), *(["--rehearse"] if self.rehearse else [])],
                               limit, "step")
        return self.figures(ended, out)

    def profile(self, limit):
        if self.rehearse:
            raise NotRun("needs a GPU's counters")
        if shutil.which("ncu") is None:
            raise NotRun("no ncu (Nsight Compute) on the PATH")
        text, program = "", self.needed("train_gpt")
        for model, part in (("gpt2", 0.4), ("llama", 0.6)):
            out = self.place.path(f"step_kernels_{model}.json")
            ended = self.must_pass([sys.executable, "bench/cuda/step_kernels.py", "--model", model, "--program", program,
                                    "--out", out, "--within", str(part * limit - 3)], part * limit,
                                   "profile " + model)
            text += "\n" + ended.text if ended.passed() else ""
        return text if not self.failures else self.fail()

    def figures(self, ended, out):
        """Both programs write what they have after each figure, and what failed."""
        results = load_json(out, {"rows": [], "failures": []})
        self.failures |= {failure["case"]: failure["error"] for failure in results["failures"]}
        line = f"{len(results['rows'])} rows in {os.path.relpath(out, ROOT)}"
        if ended.passed():
            return line
        if results["failures"]:
            self.failures.pop("bench", None)
        raise Failed(line + "".join(f"\n    {what}: {' '.join(text.split())[:300]}"
                                    for what, text in self.failures.items()))

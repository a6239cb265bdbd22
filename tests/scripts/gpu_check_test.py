#!/usr/bin/env python3
"""scripts/gpu_check without a GPU and without nvcc: what it compiles, and that a fault costs only what it touches.

The rehearsal runs with programs that answer like the real ones, and with a compiler that stands in for nvcc. It and the
other cases whose programs hang, or not, by the clock run only with TRIREME_CLOCK=1: ./trireme soak sets it.
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "scripts", "gpu_check")
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "bench", "cuda")]
import isolation  # noqa: E402
import step_kernels  # noqa: E402
from gpu import cases, costs, inference, machine, outbox, place, process, report, sanitizing, sources, stages  # noqa: E402

PATIENCE = 1800  # seconds: only a program that hangs needs so many
with_clock = unittest.skipUnless(os.environ.get("TRIREME_CLOCK"), "depends on the machine's speed")

# Compiles what was planted as C++; other sources become empty objects, and their programs empty files.
NVCC = """#!/bin/sh
out= ; planted= ; kept=
for word in "$@"; do
  case $previous in -o) out=$word ;; esac
  case $word in */planted/*.cu | *planted_program*) planted=1 ;; esac
  case $word in cu) word=c++ ;; -std=*|-x|-c|-o|*.o|*.c|*/*.cu|*/*_program) ;; *) word= ;; esac
  [ -n "$word" ] && [ "$previous" != -Xcompiler ] && kept="$kept $word"
  previous=$word
done
if [ -n "$planted" ]; then exec g++ $kept; fi
: >"$out"
"""
TEST = """#!%s
import os, sys, time
NAMES = %r
pattern = next((w[4:] for w in sys.argv if w.startswith("-tc=")), "*")
if "-ltc" in sys.argv:
    print("[doctest] listing all test case names\\n" + "=" * 79)
    starts = pattern.replace("*", "").split(",")
    print("\\n".join(name for name in NAMES if any(name.startswith(start) for start in starts)))
else:
    print("[doctest] test cases:  1 |  1 passed | 0 failed | 2 skipped")
"""
TRAIN = """#!%s
import json, os, sys
out = sys.argv[sys.argv.index("--out") + 1]
os.makedirs(out)
with open(os.path.join(out, "metrics.jsonl"), "w") as lines:
    for step in range(20):
        lines.write(json.dumps({"step": step + 1, "loss": 4 - step / 10, "step_ms": 5}) + "\\n")
"""
NAMES = ["hopper: TMA load, here and there", "emulator: votes", "cuda gemm_sm90: equals f64", "cuda norms: all, \"wide\""]
# Sides of two cases: one crashes, one hangs, one fails by itself; the others return a time.
WORKER = """
import os, sys, time
sys.path.insert(0, %r)
from isolation import Journal
journal = Journal(sys.argv[-1], lambda: False)  # an error spoils the process, as on a GPU
def raises(): raise RuntimeError("planted error")
SIDES = {"first": {"ours": os.abort, "theirs": lambda: 1.0, "other": raises},
         "second": {"ours": lambda: 2.0, "theirs": lambda: time.sleep(60)}, "third": {"ours": lambda: 3.0}}
for case, sides in SIDES.items():
    if journal.wanted(case):
        ms = {who: journal.attempt(case, who, call) for who, call in sides.items()}
        journal.row({"case": case, "ms": {who: t for who, t in ms.items() if t}})
"""


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def fakes(folder):
    for name in ("hopper_test", "sm90_test", "gpu_test", "lab_test"):
        script(folder, name, TEST % (sys.executable, NAMES))
    for name in ("parity", "parity_matrix"):
        script(folder, name, "#!/bin/sh\nexit 0\n")
    script(folder, "generate", """#!/bin/sh\necho '{"ids":[3,1],"text":"he"}'\n""")
    script(folder, "eval", """#!/bin/sh\necho '{"loss":2.5}'\n""")
    script(folder, "train_gpt", TRAIN % sys.executable)
    return script(folder, "nvcc", NVCC)


class Sources(unittest.TestCase):
    def test_exist(self):
        products = sources.products()
        every = {source for names in products.values() for source in names}
        self.assertEqual([s for s in every if not os.path.exists(os.path.join(ROOT, s))], [])
        for part in ("cuda/kernels/gemm_sm90.cu", "tests/cuda/gemm_test.cpp"):
            self.assertIn(part, products["gpu_test"])
        self.assertIn("examples/cuda_lab/gemm/1_naive.cu", products["lab_test"])
        self.assertFalse([s for s in products["hopper_test"] if s.startswith("cuda/kernels")])

    def test_objects_have_names_of_their_own(self):
        from gpu.build import Build
        with tempfile.TemporaryDirectory() as folder:
            build = Build(place.Place(folder), "nvcc", "90a")
            every = {source for names in build.products.values() for source in names}
            self.assertEqual(len({build.object_of(source) for source in every}), len(every))


class Costs(unittest.TestCase):
    def test_simulation(self):
        self.assertEqual(costs.simulate([4, 2, 2], 2, False), (4, [1, 0, 2]))
        self.assertEqual(costs.simulate([1, 1, 3], 1, False)[0], 5)
        self.assertAlmostEqual(costs.simulate([10], 16)[0], 10)  # alone on its core
        self.assertAlmostEqual(costs.simulate([10] * 16, 16)[0], 16)  # two on each: 10 work of 16

    def test_measured_sources_exist_and_builds_are_short(self):
        self.assertEqual([s for s in costs.SECONDS if not os.path.exists(os.path.join(ROOT, s))], [])
        for names in stages.BUILDS.values():
            every = costs.longest_first({s for name in names for s in sources.products()[name]})
            seconds, _ = costs.simulate([costs.seconds_of(s) for s in every], 16)
            self.assertLess(seconds, 150, names)

    def test_calls_take_less_than_ten_minutes(self):
        for names in stages.CALLS.values():
            self.assertLess(sum(stages.LIMITS[name] for name in names), 570)

    def test_unknown_sources_have_a_cost(self):
        self.assertGreater(costs.seconds_of("cuda/kernels/gemm.h"), 1)
        self.assertGreater(costs.seconds_of("absent.cu"), 1)


class Verdicts(unittest.TestCase):
    def ended(self, status, text=""):
        return process.Ended(status, 1.0, 20.0, text, "log")

    def test_of_a_case(self):
        hopper = "trireme: [gemm] the device has compute capability 8.0; expected 9.0 (Hopper); use the kernel for sm_80"
        for status, text, gpu, expected in ((0, "test cases: 1 | 1 passed", True, "passed"),
                                            (0, "test cases: 0 | 0 passed", True, "failed"),
                                            (1, "x.cpp:3: ERROR: CHECK( a )", True, "failed"), (-11, "", True, "crashed"),
                                            (None, "", True, "hung"), (1, hopper, False, "skipped"),
                                            (1, hopper, True, "failed")):
            self.assertEqual(cases.verdict(self.ended(status, text), gpu)["status"], expected)
        said = cases.verdict(self.ended(97, "gpu_check: _Z4gemm was not compiled"))
        self.assertEqual(said, {"status": "failed", "reason": "_Z4gemm was not compiled"})

    def test_an_older_gpu_skips_what_only_hopper_has(self):
        with tempfile.TemporaryDirectory() as folder:
            older = cases.Cases(place.Place(folder), {"compute_cap": "8.0"})
            for name in ("hopper: TMA load 2d", "cuda gemm_sm90: ragged", "emulator: a block can have all 227 KiB"):
                self.assertIn("8.0", older.reason_to_skip(name))
            self.assertIsNone(older.reason_to_skip("cuda gemm_sm80: ragged"))
            self.assertIsNone(cases.Cases(place.Place(folder), {"compute_cap": "9.0"}).reason_to_skip("hopper: TMA"))

    def test_filters_match_names_with_commas(self):
        self.assertEqual(cases.exactly('a, b "c" *'), "-tc=a? b ?c? ?")


class Processes(unittest.TestCase):
    def state(self, number):
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8") as saved:
                return saved.read().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return "gone"

    def test_what_a_program_started_ends_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            pid, limit = os.path.join(folder, "pid"), 1
            while not (os.path.exists(pid) and os.path.getsize(pid)):  # the program has come so far
                ended = process.run(["sh", "-c", f'sleep 36000 & echo $! >"{pid}"; wait'], limit,
                                    os.path.join(folder, "log"))
                self.assertIsNone(ended.status)
                limit *= 2
            with open(pid, encoding="utf-8") as saved:
                number = int(saved.read())
            while self.state(number) not in ("gone", "Z"):  # the system may take a while to end it
                time.sleep(0.1)

    def test_how_it_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            self.assertEqual(process.run(["sh", "-c", "kill -SEGV $$"], PATIENCE, log).how(), "killed by SIGSEGV")
            self.assertEqual(process.run(["sh", "-c", "exit 3"], PATIENCE, log).how(), "exit status 3")
            self.assertEqual(process.run(["/nonexistent"], PATIENCE, log).status, 127)


class Results(unittest.TestCase):
    def test_the_commit_without_git(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(machine.commit_of(folder), "unknown")
            for name, text in (("HEAD", "ref: refs/heads/main\n"), ("packed-refs", "# pack\n" + "ab" * 20 +
                                                                  " refs/heads/main\n")):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                    out.write(text)
            self.assertEqual(machine.commit_of(folder), "abababa")

    def test_at_most_eight_files_leave(self):
        self.assertLessEqual(len(outbox.FILES) + 1, 8)

    def test_reports_are_joined(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            state = {"status": "passed", "seconds": 1, "line": "fine", "key": "k"}
            first = report.collect(place.Place(one), {"name": "A GPU"}, {"hopper": state})
            report.write(first, os.path.join(one, "report"))
            both = report.collect(place.Place(two), None, {"kernels": state}, [one, "/nonexistent"])
            self.assertEqual(list(both["stages"]), ["hopper", "kernels"])
            self.assertEqual(report.collect(place.Place(two), None, {}, [one])["about"]["gpu"]["name"], "A GPU")

    @with_clock
    def test_a_failing_side_costs_only_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            worker = script(folder, "worker.py", WORKER % os.path.join(ROOT, "bench", "cuda"))
            out = os.path.join(folder, "out.json")
            found = isolation.Driver([sys.executable, worker], os.path.join(folder, "journal"), out, 1.5, 10, 60).run()
            self.assertEqual([(row["case"], row["ms"]) for row in found["rows"]],
                             [("first", {"theirs": 1.0}), ("second", {"ours": 2.0}), ("third", {"ours": 3.0})])
            self.assertEqual([f["case"] for f in found["failures"]], ["first, ours", "first, other", "second, theirs"])
            with open(out, encoding="utf-8") as saved:
                self.assertEqual(json.load(saved), found)


class Packing(unittest.TestCase):
    def test_what_was_packed_is_ready_elsewhere(self):
        from gpu import packing
        from gpu.build import Build
        with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
            place_here, place_there = place.Place(here), place.Place(there)
            os.makedirs(place_here.path("bin"))
            os.makedirs(place_here.path("include", "fmt"))
            program = script(place_here.path("bin"), "hopper_test", "#!/bin/sh\nexit 0\n")
            Build(place_here, "nvcc", "90a").note(program)
            self.assertIn("pack.tar.xz", packing.archive(place_here))
            self.assertFalse(packing.unpack(place_there))
            os.rename(place_here.path("pack.tar.xz"), place_there.path("pack.tar.xz"))
            self.assertTrue(packing.unpack(place_there))
            self.assertFalse(packing.unpack(place_there), "once is enough")
            self.assertIn("built before", Build(place_there, "nvcc", "90a").all(["hopper_test"], PATIENCE))
            self.assertFalse(Build(place_there, "nvcc", "80").ready("hopper_test"))
            ended = process.run([place_there.path("bin", "hopper_test")], PATIENCE, place_there.log("x"))
            self.assertEqual(ended.status, 0)


class Syntax(unittest.TestCase):
    def test_a_source_that_nvcc_refuses_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, SCRIPT, "--syntax", "--folder", os.path.join(folder, "build")]
            for text, status in (("case $* in *gemm_test.cpp*) echo 'a.cpp(3): error: no' >&2; exit 2 ;; esac", 1), ("", 0)):
                nvcc = script(folder, "nvcc", "#!/bin/sh\n" + text)
                ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NVCC": nvcc})
                self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
                self.assertEqual("tests/cuda/gemm_test.cpp: exit status 2: a.cpp(3): error: no" in ended.stdout, status == 1)
            again = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NVCC": "/bin/false"})
            self.assertIn("before", again.stdout)


class Rehearsal(unittest.TestCase):
    @with_clock
    def test_only_the_planted_faults_are_lost(self):
        with tempfile.TemporaryDirectory() as folder:
            nvcc, out, begin = fakes(folder), os.path.join(folder, "out"), time.monotonic()
            names = ["build_triage", "hopper", "sm90", "train", "build", "wrappers", "kernels", "sanitizer", "parity",
                     "matrix", "inference", "report"]
            ended = subprocess.run([sys.executable, SCRIPT, *names, "--rehearse", "--programs", folder, "--folder",
                                    os.path.join(folder, "build"), "--case-limit", "1.5"], capture_output=True, text=True,
                                   env={**os.environ, "NVCC": nvcc, "OUT": out})
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertLess(time.monotonic() - begin, 60)
            left = sorted(os.listdir(out))
            self.assertEqual(left, ["cases.jsonl", "logs.txt", "report.json", "report.md", "state.json",
                                    "triage_train.jsonl"])
            with open(os.path.join(out, "report.json"), encoding="utf-8") as saved:
                found = json.load(saved)
            status = {name: state["status"] for name, state in found["stages"].items()}
            self.assertEqual({name for name, s in status.items() if s == "FAILED"}, {"build_triage", "hopper"})
            self.assertIn("planted_error", str(found["stages"]["build_triage"]["failures"]))
            self.assertIn("1 of 1 programs linked", found["stages"]["build_triage"]["line"])
            by_case = {case["case"]: case["status"] for case in found["cases"]}
            self.assertEqual((by_case["hopper: planted hang"], by_case["hopper: planted crash"]), ("hung", "crashed"))
            self.assertEqual({by_case[name] for name in NAMES}, {"passed"})
            with open(os.path.join(out, "report.md"), encoding="utf-8") as saved:
                text = saved.read()
            for part in ("planted hang | hung", "planted crash | crashed", "| train | passed"):
                self.assertIn(part, text)
            # The program without the broken source was linked; its call ends with the name of what is missing.
            program = os.path.join(folder, "build", "bin", "planted_program")
            self.assertEqual(subprocess.run([program]).returncode, 0)
            called = subprocess.run([program, *"12345"], capture_output=True, text=True)
            self.assertEqual((called.returncode, "was not compiled" in called.stderr), (97, True))


class Inference(unittest.TestCase):
    def judged(self, ids="[3,1]", loss="2.5"):
        texts = {where: '{"ids":[3,1],"text":"he"}' for where in ("cpu", "cuda, tp=2")}
        return inference.judged({**texts, "cuda": '{"ids":%s,"text":"he"}' % ids},
                                {"cpu": 'warning: slow\n{"loss":2.5}', "cuda": '{"loss":%s}' % loss})

    def test_texts_and_losses_are_compared(self):
        self.assertIn("the same text", self.judged())
        self.judged(loss="2.50001")
        with self.assertRaisesRegex(place.Failed, "no tokens"):  # on no device: equal, and wrong
            inference.judged({"cpu": "", "cuda": ""}, {"cpu": '{"loss":2}', "cuda": '{"loss":2}'})
        for wrong in ({"ids": "[3,2]"}, {"loss": "2.51"}, {"loss": "NaN"}):
            with self.assertRaises(place.Failed):
                self.judged(**wrong)


class Sanitizing(unittest.TestCase):
    RACE = "========= COMPUTE-SANITIZER\n========= Error: Race reported between Read access at void %s<float, (int)3>()+0x50\n"
    DONE = "[doctest] Status: SUCCESS!\n"

    def verdict(self, text, status=3):
        return sanitizing.verdict(process.Ended(status, 1, 1, text, ""), text)

    def test_only_known_false_races_are_accepted(self):
        known = self.RACE % "trireme::cuda::narrow::<unnamed>::backward_kernel"
        self.assertIsNone(self.verdict("", 0))
        self.assertEqual(self.verdict(known + self.DONE), sanitizing.LEFT_OUT)
        for wrong in (self.RACE % "other_kernel" + self.DONE, known + self.RACE % "other_kernel" + self.DONE, known,
                      "========= Invalid __shared__ read of size 12 bytes\n" + self.DONE):
            self.assertIn("exit status 3: =====", self.verdict(wrong))
        self.assertIn("no end after", self.verdict(known, None))


class KernelsOfAStep(unittest.TestCase):
    """What step_kernels.py makes of the table that Nsight Compute writes."""
    FIELDS = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")

    def table(self, kernels, unit="us"):
        rows = [self.FIELDS]
        for i, kernel in enumerate(kernels):
            name = f"void trireme::cuda::(anonymous namespace)::{kernel}<(int)2, trireme::bf16>(trireme::Args<(int)1>)"
            rows += [(i, name, step_kernels.TIME, unit, f"{1000 * (i + 1):,}"), (i, name, step_kernels.DRAM, "Mbyte", "5")]
        return "==PROF== Connected\n" + "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)

    def test_a_step_ends_with_the_last_launch_of_adamw(self):
        found = step_kernels.launches(self.table(["a", "adamw", "b", "c", "b", "adamw", "adamw", "a"]))
        rows = step_kernels.summed(step_kernels.one_step(found))
        self.assertEqual([(row["kernel"], row["launches"], row["ms"]) for row in rows],
                         [("adamw<2, bf16>", 2, 13.0), ("b<2, bf16>", 2, 8.0), ("c<2, bf16>", 1, 4.0)])
        self.assertAlmostEqual(rows[0]["gbytes"], 0.01)

    def test_less_than_a_step_and_unknown_units_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "the end of 1 steps; expected two"):
            step_kernels.one_step(step_kernels.launches(self.table(["a", "adamw", "b"])))
        with self.assertRaisesRegex(SystemExit, "in 'fortnight'; expected one of ns"):
            step_kernels.launches(self.table(["a"], "fortnight"))


if __name__ == "__main__":
    unittest.main()

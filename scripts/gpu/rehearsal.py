"""The same paths without a GPU: kernels under emulation, and faults planted to see that only they are lost.

Planted are a source that does not compile, a test case that hangs, one that crashes, and the same two in the
comparison (bench/cuda/rehearsal.py). A rehearsal is good if the report has each of them, and all else passed.
"""
import os
import stat
import sys

from . import packing, process, sources
from .place import ROOT, Failed

# In the folder `build`.
EMULATED = {"hopper_test": "bin/hopper_test", "sm90_test": "bin/cuda_test", "gpu_test": "bin/cuda_test",
            "lab_test": "bin/cuda_lab_test", "libtrireme_shim.so": "lib/libtrireme_shim_emulated.so",
            **{name: f"bin/{name}_emulated" for name in packing.PROGRAMS}}
PLANTED = {"build_triage": ["broken.cu"], "hopper": ["planted hang", "planted crash"],
           "bench": ["planted hang", "planted crash"]}
BROKEN = "int trireme_planted() { return planted_error; }  // does not compile\n"
WHOLE = "int trireme_planted();\nint main(int count, char**) { return count > 5 ? trireme_planted() : 0; }\n"
# Answers like a doctest program with three cases.
PROGRAM = '''#!%s
import os, sys, time
NAMES = ["hopper: planted hang", "hopper: planted crash", "hopper: planted case that passes"]
words = sys.argv[1:]
pattern = next((w[4:] for w in words if w.startswith("-tc=")), "*")
if "-ltc" in words:
    print("[doctest] listing all test case names")
    print("\\n".join(NAMES if "hopper:*" in pattern else []))
elif "hang" in pattern:
    time.sleep(3600)
elif "crash" in pattern:
    os.abort()
else:
    print("[doctest] test cases:  1 |  1 passed | 0 failed | 2 skipped")
'''


def products(place):
    """What a rehearsal compiles with nvcc: the tests of Hopper, and a program of which one source has an error."""
    os.makedirs(place.path("planted"), exist_ok=True)
    for name, text in (("broken.cu", BROKEN), ("whole.cu", WHOLE)):
        with open(place.path("planted", name), "w", encoding="utf-8") as out:
            out.write(text)
    return {"hopper_test": sources.products()["hopper_test"],
            "planted_program": [place.path("planted", name) for name in ("broken.cu", "whole.cu")]}


def planted_test(place):
    path = place.path("planted", "planted_test")
    with open(path, "w", encoding="utf-8") as out:
        out.write(PROGRAM % sys.executable)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def build(place, name):
    """Builds the emulated program into build/, if it is older than its sources."""
    target = os.path.splitext(os.path.basename(EMULATED[name]))[0].removeprefix("lib")
    ended = process.run([os.path.join(ROOT, "trireme"), "build", target], 3600, place.log("emulated_" + target), ROOT)
    if not ended.passed():
        raise Failed(f"./trireme build {target}: {ended.how()}: {ended.text.strip()[-800:]}")


def verdict(states):
    """What differs between the failures of the stages and the planted ones; empty if nothing does."""
    wrong = []
    for name, state in states.items():
        failures = state.get("failures", {})
        planted = PLANTED.get(name, [])
        wrong += [f"{name}: {plant} did not come back" for plant in planted
                  if state["status"] != "not run" and not any(plant in what for what in failures)]
        wrong += [f"{name}: {what}: {text}" for what, text in failures.items()
                  if not any(plant in what for plant in planted)]
        if state["status"] == "FAILED" and not failures:
            wrong.append(f"{name}: {state['line']}")
    return wrong

"""Twenty steps of a small GPT: the first whole program to run on a new GPU. The loss must be a number and must fall."""
import math
import os
import shutil

from .place import Failed
from .report import load_lines

SHAPE = "--layers 4 --heads 4 --width 256 --context 256 --micro-batch 8"
SMALL = "--layers 1 --heads 2 --width 32 --context 16 --micro-batch 4"  # under emulation
STEPS = 20


def text_to_learn(path):
    """Words in an order that repeats: easy to learn, so twenty steps lower the loss."""
    with open(path, "w", encoding="ascii") as out:
        out.write("the quick brown fox jumps over the lazy dog. " * 4000)


def twenty_steps(program, place, limit, small, must_pass):
    data, out = place.path("triage.txt"), place.path("triage_run")
    text_to_learn(data)
    shutil.rmtree(out, ignore_errors=True)
    command = [program, "--device", "cuda", "--dtype", "f32" if small else "bf16", "--data", data, "--tokenizer", "char",
               "--out", out, *(SMALL if small else SHAPE).split(), "--steps", str(STEPS), "--log-every", "1",
               "--eval-batches", "1"]
    ended = must_pass(command, limit, "train_gpt")
    return judged(os.path.join(out, "metrics.jsonl"), place, ended)


def judged(metrics, place, ended):
    """A line about the losses; a failure is added to what train_gpt itself reported."""
    rows = load_lines(metrics)
    if rows:
        shutil.copyfile(metrics, place.path("triage_train.jsonl"))
    losses = [row.get("loss") for row in rows]
    line = f"{len(rows)} steps" + (f", loss {losses[0]} to {losses[-1]}" if rows else "") + f", {ended.seconds:.0f} s"
    good = all(isinstance(loss, (int, float)) and math.isfinite(loss) for loss in losses)
    if ended.passed() and not (len(rows) == STEPS and good and losses[-1] < losses[0]):
        raise Failed(line + f"; expected {STEPS} steps with a loss that falls")
    return line

"""Does a model on a GPU write the same text as on the CPU, and predict as well? Trains a small model in f32, in which
devices differ by rounding only, then runs generate and eval on both.
"""
import json
import os
import shutil

from .place import Failed
from .training import text_to_learn

SHAPE = "--layers 4 --heads 4 --kv-heads 2 --width 256 --context 256 --micro-batch 8"
SMALL = "--layers 1 --heads 2 --kv-heads 1 --width 32 --context 16 --micro-batch 4"  # under emulation
MODEL = "--norm rms --positions rope --activation swiglu --bias off --dtype f32 --lr 3e-3 --warmup-steps 2"
CLOSE = 1e-5  # of losses, relative


def output_of(command, what, limit, must_pass):
    ended = must_pass(command, limit, what)
    return ended.text if ended.passed() else None


def loss_in(text):
    """Of the JSON object that eval prints; warnings may stand before it."""
    return json.loads(text[text.index("{"):])["loss"]


def compare(programs, place, limit, small, must_pass):
    """programs: paths of train_gpt, generate and eval. Returns a line; what is wrong is among must_pass's failures, or
    raised."""
    data, run = place.path("inference.txt"), place.path("inference_run")
    text_to_learn(data)
    shutil.rmtree(run, ignore_errors=True)
    share = limit / 6
    must_pass([programs["train_gpt"], "--device", "cuda", "--data", data, "--tokenizer", "char", "--out", run,
               *(SMALL if small else SHAPE).split(), *MODEL.split(), "--steps", "20" if small else "60"], share,
              "inference: train_gpt")
    length = "20" if small else "300"
    write = [programs["generate"], "--checkpoint", run, "--prompt", "the quick ", "--length", length, "--samples", "2",
             "--seed", "7", "--json"]
    texts = {where: output_of([*write, *flags.split()], "inference: generate " + where, share, must_pass)
             for where, flags in (("cpu", ""), ("cuda", "--device cuda"), ("cuda, tp=2", "--device cuda --mesh tp=2"))}
    short = place.path("inference_short.txt")
    with open(data, encoding="ascii") as whole, open(short, "w", encoding="ascii") as out:
        out.write(whole.read()[:200 if small else 20000])
    losses = {device: output_of([programs["eval"], "--checkpoint", run, "--data", short, "--device", device, "--json"],
                                "inference: eval " + device, share, must_pass) for device in ("cpu", "cuda")}
    return judged(texts, losses)


def judged(texts, losses):
    wrong = [f"{where}: {text[-300:]!r}; on the CPU {texts['cpu'][-300:]!r}" for where, text in texts.items()
             if texts["cpu"] is not None and text is not None and ids_of(text) != ids_of(texts["cpu"])]
    if texts["cpu"] is not None and not all(ids_of(texts["cpu"]) or [None]):
        wrong.append(f"no tokens from generate on the CPU: {texts['cpu'][-300:]!r}")
    found = {device: loss_in(text) for device, text in losses.items() if text is not None}
    if len(found) == 2 and not abs(found["cuda"] - found["cpu"]) <= CLOSE * abs(found["cpu"]):
        wrong.append(f"eval: a loss of {found['cuda']} on the GPU and {found['cpu']} on the CPU")
    if wrong:
        raise Failed("; ".join(wrong))
    return f"the same text on both devices; losses {found}"


def ids_of(text):
    return [json.loads(line)["ids"] for line in text.splitlines() if line.startswith("{")]

#!/usr/bin/env python3
"""Reads the event files of a run, of its resume and of its rollback with the package tensorboard, and compares every
value with metrics.jsonl. Usage: tensorboard_test.py build/bin/train_gpt"""

import json
import os
import struct
import tempfile

import support

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from tensorboard.util import tensor_util
except ImportError:
    support.skip("the Python package tensorboard is not installed")


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def load(out):
    folder = os.path.join(out, "tensorboard")
    loaded = plugin_event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.TENSORS: 0})
    loaded.Reload()
    return loaded


def curve(loaded, tag):
    return [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in loaded.Tensors(tag)]


def text(loaded, tag):
    return [(e.step, tensor_util.make_ndarray(e.tensor_proto)[0].decode()) for e in loaded.Tensors(tag)]


def check_equal(out, key, tag):
    want = [(r["step"], f32(r[key])) for r in support.records(out) if key in r]
    got = curve(load(out), tag)
    assert want and got == want, f"{tag}: {got}, expected {want}"


TAGS = {"loss": "loss/training", "lr": "optimizer/lr", "grad_norm": "optimizer/grad_norm", "tokens": "progress/tokens",
        "tokens_per_s": "speed/tokens_per_s", "step_ms": "speed/step_ms", "peak_bytes": "memory/peak_bytes"}


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        flags = ["--tensorboard", "on", "--decay-steps", "12", "--sample-every", "4", "--sample-length", "5"]
        support.train(out, *flags, "--steps", "8", "--checkpoint-every", "4", "--eval-every", "2")
        for key, tag in TAGS.items():
            check_equal(out, key, tag)
        validation = [v for v in curve(load(out), "loss/validation")]
        assert [step for step, _ in validation] == [0, 2, 4, 6, 8], validation
        assert validation[1:] == [(r["step"], f32(r["val_loss"])) for r in support.records(out) if "val_loss" in r]
        samples = text(load(out), "sample")
        assert [step for step, _ in samples] == [4, 8] and all(t.startswith("    ") for _, t in samples), samples
        (step, config), = text(load(out), "configuration")
        with open(os.path.join(out, "config.json"), encoding="utf-8") as file:
            assert step == 0 and json.loads(config) == json.load(file), config
        for tag in ("sample", "configuration"):
            assert load(out).SummaryMetadata(tag).plugin_data.plugin_name == "text"

        # Steps 5 to 8 are made again, from an older checkpoint: their points replace the first ones.
        os.rename(os.path.join(out, "checkpoints", "step_00000008"), os.path.join(folder, "away"))
        support.train(out, *flags, "--steps", "12", "--resume", "auto")
        assert len(os.listdir(os.path.join(out, "tensorboard"))) == 2
        for key, tag in TAGS.items():
            check_equal(out, key, tag)
        assert [step for step, _ in text(load(out), "sample")] == [4, 8, 12]
    print("tensorboard reads what was written")


if __name__ == "__main__":
    main()

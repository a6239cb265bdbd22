#!/usr/bin/env python3
"""Compares our GGUF files with llama.cpp: small models of every architecture are trained for a few steps, exported,
and have the same logits and the same greedy text there; the package gguf reads the keys and tensors. Then tokenizers of
every kind: the same ids (scripts/gguf_tokenizers.py).

    ./trireme peers gguf --python VENV/bin/python          (or VENV/bin/python scripts/peer_gguf.py)

VENV has `llama-cpp-python`, `gguf`, `tokenizers`, `sentencepiece` and `protobuf` from pip. Needs build/bin/train_gpt,
prepare_data, convert, generate, eval and tokenizer_bench. Prints one line for each model: the largest difference of the
logits of a text of 200 tokens, how many bytes of the greedy text agree, and how many do if the weights are stored as
Q8_0.
"""

import argparse
import json
import os
import shutil

import gguf
import llama_cpp
import numpy as np
from peer_common import Report, add_folders, first_difference, print_versions, run
from peer_models import LENGTH, MODELS, PROMPT, TEXT, train

import gguf_tokenizers

# Of logits, of the largest one. llama.cpp computes GELU by a table of 16-bit numbers, even with f32 weights.
TOLERANCE, TOLERANCE_GELU = 2e-5, 1e-3


def ours(o, checkpoint):
    text = run(o, "generate", "--checkpoint", checkpoint, "--prompt", PROMPT, "--length", LENGTH, "--temperature", "0",
               "--threads", "1", "--stop-at-end", "off")
    return text.encode("utf-8", "surrogateescape")


class Peer:
    """Greedy text of llama.cpp, with keys and values in f32."""

    def __init__(self, path):
        self.model = llama_cpp.Llama(str(path), n_ctx=256, n_batch=256, n_threads=1, logits_all=True, verbose=False,
                                     type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)

    def logits(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return np.array(self.model.scores[: len(ids)])

    def ids_of(self, text):
        return self.model.tokenize(text, add_bos=False, special=False)

    def text(self):
        model = self.model
        ids = model.tokenize(PROMPT.encode(), add_bos=False, special=False)
        model.reset()
        model.eval(ids)
        for _ in range(LENGTH):
            ids.append(int(np.argmax(model.scores[model.n_tokens - 1])))
            model.eval(ids[-1:])
        return b"".join(model.detokenize([token], special=True) for token in ids)


def our_logits(o, checkpoint, ids):
    (o.work / "ids.json").write_text(json.dumps(ids))
    run(o, "eval", "--checkpoint", checkpoint, "--ids", o.work / "ids.json", "--logits", o.work / "logits.npy")
    return np.load(o.work / "logits.npy")


def difference_of_logits(o, peer, checkpoint):
    """The largest difference, as a part of the largest logit."""
    ids = peer.ids_of(TEXT.read_bytes()[5000:9000])[:LENGTH]
    own, theirs = our_logits(o, checkpoint, ids), peer.logits(ids)
    return float(np.abs(own - theirs[:, : own.shape[1]]).max() / np.abs(own).max())


def check_metadata(path, name):
    reader = gguf.GGUFReader(path)
    architecture = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    assert f"{architecture}.block_count" in reader.fields, name
    return architecture, len(reader.fields), len(reader.tensors)


def compare(o, report, name):
    run_folder = train(o, name)
    path, small = o.work / f"{name}.gguf", o.work / f"{name}-q8_0.gguf"
    run(o, "convert", "gguf", run_folder, path, "--dtype", "f32")
    run(o, "convert", "gguf", run_folder, small, "--dtype", "q8_0")
    architecture, keys, tensors = check_metadata(path, name)
    llama = Peer(path)
    difference = difference_of_logits(o, llama, run_folder)
    own, from_file, peer = ours(o, run_folder), ours(o, path), llama.text()
    rounded = Peer(small).text()
    size = len(peer)
    most = TOLERANCE_GELU if "gelu-tanh" in MODELS[name] or "geglu" in MODELS[name] else TOLERANCE
    report.line(
        own[:size] == peer and own == from_file and difference < most,
        f"{name:9} as {architecture:9} {keys:2} keys {tensors:3} tensors; logits differ by {difference:.1e}; greedy "
        f"text: {first_difference(own, peer)} of {size} bytes agree ({len(set(peer.split()))} words); read back: "
        f"{'the same' if own == from_file else 'other'}; Q8_0: {first_difference(rounded, peer)} bytes agree")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_gguf")
    parser.add_argument("--only", help=f"one of {', '.join(MODELS)}; or a tokenizer")
    parser.add_argument("--part", choices=["models", "tokenizers"], help="without it: both")
    parser.add_argument("--megabytes", type=float, default=1, help="of the tokenizers' text")
    o = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print_versions("llama-cpp-python", "gguf", "tokenizers", "sentencepiece")
    shutil.rmtree(o.work, ignore_errors=True)
    o.work.mkdir(parents=True)
    report = Report()
    if o.part != "tokenizers":
        for name in MODELS:
            if o.only in (None, name) and name != "mistral":  # convert gguf refuses its window: llama.cpp has none
                compare(o, report, name)
    if o.part != "models":
        gguf_tokenizers.compare_all(o, report)
    report.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares our fine-tuning on dialogues with TRL's SFTTrainer: the loss of the assistant's turns, and all gradients.

    ./trireme peers trl --python VENV/bin/python           (or VENV/bin/python scripts/peer_trl.py)

VENV has `torch`, `transformers`, `peft` and `trl` from pip; build/bin must have train_gpt and convert. For a random
Llama and a random GPT-2, all weights or the adapters of PEFT are trained for one step of SGD over all dialogues, with
so large a learning rate that the change of a weight over it is the gradient to seven digits. TRL's sequences are
padded, each by itself, or packed (strategy `bfd`); ours are packed always. Ends with 1 if a loss differs by more than
1e-5 of itself, or a gradient by more than 1e-5 of its norm.

TRL's other strategies mean something else, and the last lines print how far off they are: `wrapped` puts all dialogues
one after the other and cuts the text into rows, whose tokens see other dialogues; `bfd_split` makes of what is longer
than a row another dialogue, whose tokens do not see the beginning.
"""

import argparse
import json
import shutil

import safetensors.torch
import torch
from peer_common import Report, add_folders, farthest, print_versions, run

import trl_recipes as recipes

CONTEXT, LR = 80, 1e5
# Of the adapters. With 0.3, products of queries and keys are so large that rounding alone changes gradients by more
# than the tolerance: from those in f64, TRL's were 1.5e-5 off and ours 8e-6.
SIZE = 0.1
MESHES = ("dp=1", "dp=2,tp=2")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_trl")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    return parser.parse_args()


def ours(o, work, mesh, adapters):
    """One step over all dialogues -> (loss, gradients under the names of the files)."""
    out = work / f"{'adapters' if adapters else 'weights'}-{mesh}"
    flags = ["--init-from", work / "base", "--data", work / "dialogues.jsonl",
             "--chat-template", work / "template.jinja", "--context", CONTEXT, "--val-fraction", 0, "--steps", 1, "--lr", LR, "--lr-schedule", "constant",
             "--warmup-steps", 0, "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--clip", 0,
             "--mesh", mesh, "--out", out, "--micro-batch", 1]
    if adapters:
        flags += ["--init-adapter", work / "adapter"]
    plan = run(o, "train_gpt", *flags, "--dry-run")
    rows = int(plan.split(" dialogues in ")[1].split(" rows")[0].replace(",", ""))
    run(o, "train_gpt", *flags, "--global-batch", 2 * rows)  # each row twice, so that dp=2 divides it
    run(o, "convert", "peft" if adapters else "hf", out, out / "after")
    file = "adapter_model.safetensors" if adapters else "model.safetensors"
    before, after = (safetensors.torch.load_file(folder / file)
                     for folder in (work / ("adapter" if adapters else "base"), out / "after"))
    loss = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()
            if "loss" in json.loads(line)][0]
    return loss, {name: (before[name].double() - after[name].double()) / LR for name in after}


def theirs(work, name, tokenizer, data, adapters, rows=1, **options):
    model = recipes.model_of(name, len(tokenizer), context=CONTEXT)
    if name == "gpt2":  # TRL computes the last token of a row, too, which is an input of nothing
        more = torch.nn.Embedding(CONTEXT + 1, model.config.n_embd)
        more.weight.data[:CONTEXT] = model.transformer.wpe.weight.data
        model.transformer.wpe = more
    if adapters:
        model = recipes.with_adapters(model, size=SIZE)
    loss, targets, gradients = recipes.computed(model, tokenizer, data, CONTEXT, work / "trl", rows, **options)
    if "transformer.wpe.weight" in gradients:
        gradients["transformer.wpe.weight"] = gradients["transformer.wpe.weight"][:CONTEXT]
    return loss, targets, {key.replace(".default", ""): value.double() for key, value in gradients.items()}


def prepare(work, name, as_pairs):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tokenizer, made = recipes.tokenizer_of(40), recipes.dialogues(40)
    model = recipes.model_of(name, len(tokenizer), context=CONTEXT)
    for part in (model, tokenizer):
        part.save_pretrained(work / "base")
    recipes.with_adapters(model, size=SIZE).save_pretrained(work / "adapter")
    (work / "template.jinja").write_text(recipes.TEMPLATE)
    recipes.write_dialogues(work / "dialogues.jsonl", made, as_pairs)
    return tokenizer, recipes.dataset_of(made, as_pairs)


def compare(o, report, name, as_pairs):
    work = o.work / f"{name}-{'pairs' if as_pairs else 'messages'}"
    tokenizer, data = prepare(work, name, as_pairs)
    for adapters in (False, True):
        what = f"{name}, {'prompts and answers' if as_pairs else 'messages'}, {'adapters' if adapters else 'weights'}"
        results = {mesh: ours(o, work, mesh, adapters) for mesh in MESHES}
        for label, options in (("unpacked", {"rows": 5}), ("packed", {"packing": True})):
            loss, targets, gradients = theirs(work, name, tokenizer, data, adapters, **options)
            for mesh, (our_loss, our_gradients) in results.items():
                off, (worst, tensor) = abs(our_loss - loss) / loss, farthest(our_gradients, gradients)
                report.line(off < o.tolerance and worst < o.tolerance,
                            f"{what}, TRL {label}, ours on {mesh}: {targets} targets, loss {loss:.6f} off by "
                            f"{off:.1e}, gradients by {worst:.1e} ({tensor})")
        if adapters or as_pairs:
            continue
        for strategy in ("wrapped", "bfd_split"):
            loss, targets, gradients = theirs(work, name, tokenizer, data, adapters, packing=True,
                                              packing_strategy=strategy)
            our_loss, our_gradients = results[MESHES[0]]
            worst, tensor = farthest(our_gradients, gradients)
            print(f"        {what}, TRL's {strategy}, which is something else: {targets} targets, loss off by "
                  f"{abs(our_loss - loss) / loss:.1e}, gradients by {worst:.1e} ({tensor})", flush=True)


def main():
    o = arguments()
    torch.set_num_threads(1)
    print_versions("trl", "peft", "transformers", "torch")
    report = Report()
    for name in ("llama", "gpt2"):
        for as_pairs in (False, True):
            compare(o, report, name, as_pairs)
    report.end()


if __name__ == "__main__":
    main()

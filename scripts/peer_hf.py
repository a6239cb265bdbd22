#!/usr/bin/env python3
"""Compares what we compute of models in Hugging Face's layout with `transformers`, for small random models of every
architecture.

    ./trireme peers hf --python VENV/bin/python            (or VENV/bin/python scripts/peer_hf.py)

VENV has `torch` and `transformers` from pip; build/bin must have model_peer, train_gpt, generate and convert. For each
model: logits, all gradients and the weights after 5 steps of AdamW, in f32, relative to the norm of each tensor; our
copy of the untrained folder, byte by byte; and 200 tokens of greedy text of a model that we have trained and exported.
Ends with 1 if anything differs by more than 1e-5.
"""

import argparse
import pathlib
import shutil

import numpy as np
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
from peer_common import ROOT, Report, add_folders, farthest, print_versions, run

import hugging_face_recipes as recipes

SIZE = recipes.SMALL
STEPS, LR, DECAY, EPS, BETAS = 5, 1e-3, 0.1, 1e-4, (0.9, 0.95)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_hf")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--mesh", default="dp=1,tp=2", help="a second mesh for logits, gradients and steps; none: no")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    return parser.parse_args()


def compare_tensors(options, report, what, ours, theirs):
    """Both: name -> tensor."""
    worst, where = farthest(ours, theirs)
    report.line(worst < options.tolerance, f"{what}: {worst:.1e}" + (f" ({where})" if len(theirs) > 1 else ""))


def make_tokenizer(text, folder):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=SIZE["vocab"] - 1,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def tensors_of(folder):
    """All tensors of a folder, as (dtype, bytes)."""
    all_tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
                all_tensors[name] = (
                    tensor.dtype,
                    tuple(tensor.shape),
                    tensor.contiguous().view(torch.uint8).numpy().tobytes(),
                )
    return all_tensors


def stored(model, work, gradients=False):
    """Weights, or gradients in their place, under the names with which save_pretrained() stores them."""
    folder = work / "stored"
    shutil.rmtree(folder, ignore_errors=True)
    values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        if gradients:
            for parameter in model.parameters():
                parameter.copy_(parameter.grad if parameter.grad is not None else torch.zeros_like(parameter))
        model.save_pretrained(folder)
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])
    return safetensors.torch.load_file(folder / "model.safetensors")


def their_results(name, work, ids, targets):
    model = recipes.model_of(name, SIZE)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=LR,
        betas=BETAS,
        eps=EPS,
    )
    results = {"losses": []}
    for step in range(STEPS + 1):
        logits = model(input_ids=ids, use_cache=False).logits
        loss = recipes.loss_of(logits, targets)
        results["losses"].append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            results["logits"] = logits.detach()
            results["gradients"] = stored(model, work, gradients=True)
        if step < STEPS:
            optimizer.step()
    results["trained"] = stored(model, work)
    return results


def greedy(model, prompt, length):
    ids = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=length,
        min_new_tokens=length,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    return ids[0, len(prompt) :].tolist()


def compare_computed(options, report, name, folder, work):
    ids, targets = recipes.batch(SIZE, rows=2, length=64)
    prompt = ids[0, :8]
    np.savez(work / "batch.npz", inputs=ids.int().numpy(), targets=targets.int().numpy(), prompt=prompt.int().numpy())
    theirs = their_results(name, work, ids, targets)
    expected = greedy(recipes.model_of(name, SIZE), prompt.tolist(), 200)
    for mesh in ["dp=1"] + ([] if options.mesh == "none" else [options.mesh]):
        out = work / f"ours_{mesh.replace(',', '_')}"
        run(
            options,
            "model_peer",
            "--checkpoint",
            folder,
            "--batch",
            work / "batch.npz",
            "--out",
            out,
            "--mesh",
            mesh,
            "--steps",
            STEPS,
            "--lr",
            LR,
            "--weight-decay",
            DECAY,
            "--eps",
            EPS,
        )
        ours = np.load(out / "results.npz")
        for what, own, others in (
            ("logits", {"": ours["logits"]}, {"": theirs["logits"]}),
            (f"losses of {STEPS} steps", {"": ours["losses"]}, {"": theirs["losses"]}),
            ("gradients", safetensors.torch.load_file(out / "gradients.safetensors"), theirs["gradients"]),
            (f"weights after {STEPS} steps", safetensors.torch.load_file(out / "trained.safetensors"),
             theirs["trained"]),
        ):
            compare_tensors(options, report, f"{what} on {mesh}", own, others)
        report.line(ours["greedy"].tolist() == expected, f"200 greedy tokens on {mesh}")


def compare_round_trip(options, report, folder, text, work):
    for path in ("run", "back"):
        shutil.rmtree(work / path, ignore_errors=True)
    run(options, "convert", "hf", folder, work / "run")
    run(options, "convert", "hf", work / "run", work / "back")
    report.line(tensors_of(folder) == tensors_of(work / "back"), "the bytes of folder -> run -> folder")
    before, after = (transformers.AutoTokenizer.from_pretrained(path) for path in (folder, work / "back"))
    ids = [tokenizer(text.read_text()[:20000])["input_ids"] for tokenizer in (before, after)]
    report.line(ids[0] == ids[1], f"{len(ids[0])} ids of its tokenizer")


def compare_export(options, report, folder, text, work):
    run_folder = work / "trained"
    shutil.rmtree(run_folder, ignore_errors=True)
    flags = [
        "--micro-batch",
        4,
        "--steps",
        60,
        "--lr",
        "3e-3",
        "--mesh",
        "tp=2",
        "--eval-batches",
        1,
        "--export-hf",
        "on",
    ]
    run(options, "train_gpt", "--init-from", folder, "--data", text, "--out", run_folder, *flags)
    exported = run_folder / "checkpoints" / "step_00000060" / "hf"
    model = transformers.AutoModelForCausalLM.from_pretrained(exported, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    prompt = "The model"
    ids = tokenizer(prompt)["input_ids"]
    length = 200  # within the context of the model
    theirs = prompt + tokenizer.decode(greedy(model, ids, length))
    flags = ["--prompt", prompt, "--length", length, "--temperature", 0, "--stop-at-end", "off"]
    ours = run(options, "generate", "--checkpoint", run_folder, *flags)[:-1]
    again = run(options, "generate", "--checkpoint", exported, *flags)[:-1]
    for what, text_of_export in (("here", again), ("there", theirs)):
        same = ours == text_of_export
        report.line(same, f"text of our run and of its export {what}: "
                          f"{repr(ours[:60]) if same else f'{ours!r} and {text_of_export!r}'}")


def main():
    options = arguments()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    print_versions("transformers", "torch")
    text = work / "text.txt"
    text.write_text(
        "".join(p.read_text() for p in sorted((ROOT / "docs").glob("*.md"))[:6]).encode("ascii", "ignore").decode()
    )
    report = Report()
    names = [n for n in options.only.split(",") if n] or list(recipes.configs(SIZE))
    for name in names:
        place = work / name
        shutil.rmtree(place, ignore_errors=True)
        folder = place / "model"
        model = recipes.model_of(name, SIZE)
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters", flush=True)
        model.save_pretrained(folder)
        make_tokenizer(text.read_text(), folder)
        compare_computed(options, report, name, folder, place)
        compare_round_trip(options, report, folder, text, place)
        compare_export(options, report, folder, text, place)
    report.end()


if __name__ == "__main__":
    main()

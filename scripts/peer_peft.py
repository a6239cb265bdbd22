#!/usr/bin/env python3
"""Compares adapters with the library `peft`: those that we train, and those that it saves.

    ./trireme peers peft --python VENV/bin/python          (or VENV/bin/python scripts/peer_peft.py)

VENV has `torch`, `transformers` and `peft` from pip; build/bin must have train_gpt, eval and convert. A random model of
`transformers` is read with --init-from, and adapters are trained on two meshes. Then the adapters, loaded by peft onto
that model, and the merged model, loaded by transformers, must compute our logits. In the other direction, peft makes
adapters of several kinds, and its logits must be those of `eval --adapter`, and of what `convert hf --adapter` merges.
Ends with 1 if they differ by more than 1e-5 of their norm.
"""

import argparse
import shutil

import numpy as np
import peft
import safetensors.torch
import torch
import transformers
from peer_common import Report, add_folders, distance, print_versions, run

VOCAB, IDS = 97, [5, 17, 3, 60, 33, 8, 1, 90, 41, 2]
COMMON = {"vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None}
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **COMMON, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64)),
}


# Adapters that peft makes: which layers, with what factor, and in which dtype they are stored.
KINDS = {
    "all layers": {"target_modules": "all-linear"},
    "queries and values, rslora": {"target_modules": ["q_proj", "v_proj"], "use_rslora": True},
    "gate without up, in block 1": {"target_modules": ["gate_proj", "o_proj"], "layers_to_transform": [1]},
    "all layers, bf16": {"target_modules": "all-linear", "dtype": torch.bfloat16},
}
GPT2_KINDS = {
    "all layers": {"target_modules": ["c_attn", "c_proj", "c_fc"]},
    "queries, keys and values, rslora": {"target_modules": ["c_attn"], "use_rslora": True},
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_peft")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    return parser.parse_args()


def compare(o, report, name, mesh):
    work = o.work / f"{name}-{mesh}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    torch.manual_seed(3)
    base = MODELS[name]().eval()
    for parameter in base.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    base.save_pretrained(work / "base")
    text = work / "text.txt"
    text.write_text("".join(chr(33 + (i * i + 7 * i) % 60) for i in range(20000)))
    run(o, "train_gpt", "--init-from", work / "base", "--data", text, "--tokenizer", "char",
        "--micro-batch", 4, "--steps", 20, "--lr", "1e-2", "--eval-batches", 1, "--mesh", mesh,
        "--lora-rank", 3, "--lora-alpha", 5, "--out", work / "run")
    (work / "ids.json").write_text(str(IDS))
    run(o, "eval", "--checkpoint", work / "run", "--ids", work / "ids.json", "--logits", work / "ours.npy")
    run(o, "convert", "peft", work / "run", work / "adapter")
    run(o, "convert", "hf", work / "run", work / "merged")
    ours = np.load(work / "ours.npy").reshape(len(IDS), VOCAB)
    batch = torch.tensor([IDS])
    adapted = peft.PeftModel.from_pretrained(base, work / "adapter").eval()
    missing = [key for key, value in adapted.state_dict().items() if "lora_B" in key and value.abs().max() == 0]
    merged = transformers.AutoModelForCausalLM.from_pretrained(work / "merged").eval()
    with torch.no_grad():
        by_peft = distance(ours, adapted(batch).logits[0])
        by_merged = distance(ours, merged(batch).logits[0])
        with adapted.disable_adapter():
            without = distance(ours, adapted(batch).logits[0])
    good = by_peft < o.tolerance and by_merged < o.tolerance and without > 1e-2 and not missing
    report.line(good, f"{name} on {mesh}: peft {by_peft:.1e}, merged {by_merged:.1e}; without adapters {without:.1e}; "
                      f"untouched matrices {len(missing)}")


def compare_read(o, report, name, kind, options):
    work = o.work / f"{name}-read"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    torch.manual_seed(5)
    base = MODELS[name]().eval()
    base.save_pretrained(work / "base")
    options = dict(options)
    dtype = options.pop("dtype", torch.float32)
    adapted = peft.get_peft_model(base, peft.LoraConfig(
        r=4, lora_alpha=7, task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2", **options)).eval()
    for key, value in adapted.named_parameters():
        if "lora_" in key:
            value.data = (0.3 * torch.randn_like(value)).to(dtype).float()
    adapted.save_pretrained(work / "adapter")
    if dtype != torch.float32:
        path = work / "adapter" / "adapter_model.safetensors"
        stored = safetensors.torch.load_file(path)
        safetensors.torch.save_file({key: value.to(dtype) for key, value in stored.items()}, path)
    (work / "ids.json").write_text(str(IDS))
    with torch.no_grad():
        theirs = adapted(torch.tensor([IDS])).logits[0]
    offs = []
    for mesh in ("dp=1", "tp=2"):
        run(o, "eval", "--checkpoint", work / "base", "--adapter", work / "adapter", "--ids", work / "ids.json",
            "--logits", work / "ours.npy", "--mesh", mesh)
        offs.append(distance(np.load(work / "ours.npy").reshape(len(IDS), VOCAB), theirs))
    run(o, "convert", "hf", work / "base", work / "merged", "--adapter", work / "adapter")
    merged = transformers.AutoModelForCausalLM.from_pretrained(work / "merged").eval()
    with torch.no_grad():
        offs.append(distance(merged(torch.tensor([IDS])).logits[0], theirs))
    report.line(all(off < o.tolerance for off in offs),
                f"{name} with adapters of peft, {kind}: eval {offs[0]:.1e}, on tp=2 {offs[1]:.1e}, "
                f"merged {offs[2]:.1e}")


def main():
    o = arguments()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print_versions("peft", "transformers", "torch")
    report = Report()
    for name in MODELS:
        for mesh in ("dp=1", "dp=2,tp=2"):
            compare(o, report, name, mesh)
    for name in MODELS:
        for kind, options in (GPT2_KINDS if name == "gpt2" else KINDS).items():
            compare_read(o, report, name, kind, options)
    report.end()


if __name__ == "__main__":
    main()

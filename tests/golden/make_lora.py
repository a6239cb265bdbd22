#!/usr/bin/env python3
"""Make lora.safetensors: small decoders with adapters, by the libraries peft and transformers in float64.

    pip install torch transformers peft
    python3 tests/golden/make_lora.py

A Llama, whose projections are layers of their own, and a GPT-2, in which queries, keys and values are one layer. Their
adapters begin with random matrices, not with B = 0. Tensors of a case, under the names of Trireme's model: NAME.ids and
NAME.targets [B, T], NAME.weights.* in float32, and in float64 NAME.logits [B, T, V], NAME.loss, and NAME.grads.* of the
adapters. The options are in tests/golden/lora_test.cpp, too.
"""


import peft
import torch
import transformers

import make_goldens

LAYERS, HEADS, WIDTH, HIDDEN, TOKENS, VOCAB, BATCH = 2, 2, 12, 6, 12, 11, 2
RANK, ALPHA = 3, 7


def llama():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=1, max_position_embeddings=TOKENS, rms_norm_eps=1e-2,
        tie_word_embeddings=True, attn_implementation="eager")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return transformers.LlamaForCausalLM(config), targets


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=TOKENS, n_inner=HIDDEN,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
    return transformers.GPT2LMHeadModel(config), ["c_attn", "c_proj", "c_fc"]


def llama_names(i, get):
    """Trireme's parameters of block i of a Llama; get(LAYER) is a weight, or one of its adapter's matrices."""
    attn, mlp = f"layers.{i}.self_attn.", f"layers.{i}.mlp."
    parts = {f"attn.{ours}": get(attn + theirs) for ours, theirs in
             (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("proj", "o_proj"))}
    parts["mlp.gate_up"] = torch.stack([get(mlp + "gate_proj"), get(mlp + "up_proj")])
    parts["mlp.down"] = get(mlp + "down_proj")
    return {f"blocks.{i}.{name}": value for name, value in parts.items()}


def llama_tensors(of):
    """of(NAME) is a tensor of the model -> weights of Trireme's base model."""
    tensors = {"wte.weight": of("embed_tokens.weight"), "norm.weight": of("norm.weight")}
    for i in range(LAYERS):
        tensors[f"blocks.{i}.norm1.weight"] = of(f"layers.{i}.input_layernorm.weight")
        tensors[f"blocks.{i}.norm2.weight"] = of(f"layers.{i}.post_attention_layernorm.weight")
        weights = llama_names(i, lambda layer: of(layer + ".base_layer.weight"))
        tensors |= {name + ".weight": value for name, value in weights.items()}
    return tensors


def gpt2_names(i, get):
    layers = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
    return {f"blocks.{i}.{ours}": get(f"h.{i}.{theirs}") for ours, theirs in layers.items()}


def gpt2_tensors(of):
    tensors = {"wte.weight": of("wte.weight"), "wpe.weight": of("wpe.weight")}
    norms = [("norm", "ln_f")]
    for i in range(LAYERS):
        norms += [(f"blocks.{i}.norm1", f"h.{i}.ln_1"), (f"blocks.{i}.norm2", f"h.{i}.ln_2")]
        for ours, weight in gpt2_names(i, lambda layer: of(layer + ".base_layer.weight").T).items():
            tensors[ours + ".weight"] = heads(ours, weight)
        for ours, bias in gpt2_names(i, lambda layer: of(layer + ".base_layer.bias")).items():
            tensors[ours + ".bias"] = heads(ours, bias)
    for ours, theirs in norms:
        tensors |= {f"{ours}.{part}": of(f"{theirs}.{part}") for part in ("weight", "bias")}
    return tensors


def heads(name, tensor):
    """The rows of queries, keys and values are one dim there, and [3, D] here."""
    return tensor.unflatten(0, (3, -1)) if name.endswith("qkv") else tensor


def adapters(names, of):
    """of(LAYER, MATRIX) -> the adapters under Trireme's names."""
    tensors = {}
    for i in range(LAYERS):
        for ours, theirs in (("a", "A"), ("b", "B")):
            matrices = names(i, lambda layer: of(layer, f"lora_{theirs}.default"))
            tensors |= {f"{name}.lora_{ours}": heads(name, value) if ours == "b" else value
                        for name, value in matrices.items()}
    return tensors


def make(name, build, prefix, names, base):
    torch.manual_seed(71)
    model, targets = build()
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=targets,
        fan_in_fan_out=name == "gpt2", task_type="CAUSAL_LM"))
    for key, parameter in model.named_parameters():
        one = 1.0 if "norm" in key or ".ln_" in key and key.endswith("weight") else 0.0
        parameter.data = one + 0.35 * torch.randn(parameter.shape)
    stored = dict(model.named_parameters())
    weights = base(lambda key: stored[prefix + key].data) | adapters(
        names, lambda layer, matrix: stored[f"{prefix}{layer}.{matrix}.weight"].data)
    model = model.double().train()
    ids, labels = (torch.randint(VOCAB, (BATCH, TOKENS)) for _ in range(2))
    logits = model(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))
    loss.backward()
    parameters = dict(model.named_parameters())
    grads = adapters(names, lambda layer, matrix: parameters[f"{prefix}{layer}.{matrix}.weight"].grad)
    found = {"ids": ids.int(), "targets": labels.int(), "logits": logits.detach(), "loss": loss.detach().view(1)}
    found |= {"weights." + key: value for key, value in weights.items()}
    found |= {"grads." + key: value for key, value in grads.items()}
    return {f"{name}.{key}": value.contiguous().numpy() for key, value in found.items()}


def main():
    torch.set_num_threads(1)
    tensors = make("llama", llama, "base_model.model.model.", llama_names, llama_tensors)
    tensors |= make("gpt2", gpt2, "base_model.model.transformer.", gpt2_names, gpt2_tensors)
    make_goldens.save("lora", tensors, {
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__})


if __name__ == "__main__":
    main()

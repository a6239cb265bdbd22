"""Small random models of every architecture that models/hugging_face knows, made with `transformers`.

make_hugging_face.py writes the goldens from tiny ones, and scripts/peer_hf.py compares programs on larger ones.
"""

import torch
import transformers as hf

TINY = {"vocab": 29, "width": 16, "hidden": 12, "layers": 2, "heads": 4, "kv_heads": 2, "context": 16}
SMALL = {"vocab": 301, "width": 64, "hidden": 88, "layers": 4, "heads": 8, "kv_heads": 4, "context": 256}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "original_max_position_embeddings": 8,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "rope_theta": 5e5,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e4}


def configs(size):
    """Name: (config, model class)."""
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "attn_implementation": "eager"}

    def decoder(**more):
        return {
            "vocab_size": size["vocab"],
            "hidden_size": size["width"],
            "intermediate_size": size["hidden"],
            "num_hidden_layers": size["layers"],
            "num_attention_heads": size["heads"],
            "num_key_value_heads": size["kv_heads"],
            "max_position_embeddings": size["context"],
            "rms_norm_eps": 1e-5,
            **tokens,
            **more,
        }

    def gpt2(**more):
        return hf.GPT2Config(
            vocab_size=size["vocab"],
            n_embd=size["width"],
            n_layer=size["layers"],
            n_head=size["heads"],
            n_positions=size["context"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **tokens,
            **more,
        )

    narrow = size["width"] // size["heads"] - 2  # heads whose width is not a part of the model's
    kinds = ["sliding_attention", "full_attention"] * (size["layers"] // 2)
    made = {
        "gpt2": (gpt2(), hf.GPT2LMHeadModel),
        "gpt2_untied": (
            gpt2(tie_word_embeddings=False, n_inner=size["hidden"], activation_function="gelu"),
            hf.GPT2LMHeadModel,
        ),
        "llama": (hf.LlamaConfig(**decoder(rope_parameters=dict(LLAMA3))), hf.LlamaForCausalLM),
        "llama_yarn": (
            hf.LlamaConfig(**decoder(rope_parameters=dict(YARN), tie_word_embeddings=True)),
            hf.LlamaForCausalLM,
        ),
        "mistral": (hf.MistralConfig(**decoder(sliding_window=5, head_dim=narrow)), hf.MistralForCausalLM),
        "qwen2": (hf.Qwen2Config(**decoder(tie_word_embeddings=True)), hf.Qwen2ForCausalLM),
        "qwen3": (hf.Qwen3Config(**decoder(head_dim=narrow)), hf.Qwen3ForCausalLM),
        "mixtral": (hf.MixtralConfig(**decoder(num_local_experts=4)), hf.MixtralForCausalLM),
        "qwen3_moe": (
            hf.Qwen3MoeConfig(
                **decoder(
                    moe_intermediate_size=size["hidden"], num_experts=4, num_experts_per_tok=3, norm_topk_prob=True
                )
            ),
            hf.Qwen3MoeForCausalLM,
        ),
        "qwen3_moe_raw": (
            hf.Qwen3MoeConfig(
                **decoder(
                    moe_intermediate_size=size["hidden"], num_experts=4, num_experts_per_tok=2, norm_topk_prob=False
                )
            ),
            hf.Qwen3MoeForCausalLM,
        ),
        "gemma": (hf.GemmaConfig(**decoder(head_dim=narrow)), hf.GemmaForCausalLM),
        "gemma2": (
            hf.Gemma2Config(
                **decoder(
                    head_dim=narrow,
                    sliding_window=5,
                    query_pre_attn_scalar=7,
                    attn_logit_softcapping=1.5,
                    final_logit_softcapping=2.5,
                )
            ),
            hf.Gemma2ForCausalLM,
        ),
        "gemma3": (
            hf.Gemma3TextConfig(
                **decoder(head_dim=narrow, sliding_window=5, query_pre_attn_scalar=7, layer_types=kinds)
            ),
            hf.Gemma3ForCausalLM,
        ),
    }
    return made


def model_of(name, size, seed=0):
    """Random weights, also where a new model has ones or zeros, which would hide mistakes."""
    config, cls = configs(size)[name]
    torch.manual_seed(seed)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(size, rows=2, length=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    length = length or size["context"]
    ids = torch.randint(0, size["vocab"], (rows, length + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

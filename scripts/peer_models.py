"""Small models of every architecture, trained here for a few steps, whose exports other programs then run:
scripts/peer_gguf.py and scripts/peer_vllm.py.
"""

from peer_common import ROOT, run

TEXT = ROOT / "docs" / "training.md"
PROMPT = "The flag `--"
LENGTH = 200

SIZES = ["--layers", "2", "--heads", "4", "--width", "64", "--context", "256", "--ffn-width", "96"]
ROTARY = ["--norm", "rms", "--positions", "rope", "--bias", "off"]
LLAMA = [*ROTARY, "--activation", "swiglu", "--kv-heads", "2", "--tied", "off"]
EXPERTS = ["--experts", "4", "--top-k", "2", "--router-norm", "after"]
GEMMA = [*ROTARY, "--activation", "geglu", "--kv-heads", "2", "--head-width", "32", "--norm-eps", "1e-6",
         "--zero-centred-norms", "on", "--scaled-embeddings", "on"]
MODELS = {
    "gpt2": ["--activation", "gelu-tanh"],
    "llama": LLAMA,
    "llama3": [*LLAMA, "--rope-base", "500000", "--rope-scaling", "llama3:8,64", "--head-width", "32", "--tied", "on"],
    "yarn": [*LLAMA, "--rope-scaling", "yarn:4,64"],
    "linear": [*LLAMA, "--rope-scaling", "linear:4"],
    "mistral": [*LLAMA, "--head-width", "32", "--window", "48"],
    "mixtral": [*LLAMA, *EXPERTS],
    "qwen2": [*LLAMA, "--qkv-bias", "on"],
    "qwen3": [*LLAMA, "--qk-norm", "on", "--head-width", "32"],
    "qwen3moe": [*LLAMA, "--qk-norm", "on", "--head-width", "32", *EXPERTS, "--expert-ffn-width", "64"],
    "gemma": GEMMA,
    "gemma2": [*GEMMA, "--post-norms", "on", "--window", "24", "--full-every", "2", "--attention-softcap", "50",
               "--logit-softcap", "30"],
    "gemma3": [*GEMMA, "--post-norms", "on", "--qk-norm", "on", "--window", "24", "--full-every", "6", "--rope-base",
               "1000000", "--window-rope-base", "10000", "--layers", "7"],
}
# Tokenizers besides bytes: what prepare_data learns.
TOKENIZERS = {"gpt2": "bpe", "llama": "bpe"}


def train(o, name, *flags):
    """The run folder of a model that was trained for some steps; `flags` override those of the model."""
    data = ["--data", TEXT, "--tokenizer", "byte"]
    if TOKENIZERS.get(name) == "bpe":
        shards = o.work / f"{name}-shards"
        run(o, "prepare_data", "--data", TEXT, "--train-bpe", "--vocab", "512", "--out", shards)
        data = ["--data", shards]
    run(o, "train_gpt", *data, *SIZES, *MODELS[name], *flags, "--micro-batch", "8", "--steps", "150", "--lr", "1e-2",
        "--eval-every", "0", "--out", o.work / name)
    return o.work / name

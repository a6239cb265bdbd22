#include "train/options/other_names.h"

#include <algorithm>

namespace trireme {
namespace {

struct OtherNames {
  std::vector<std::string> ours;  ///< several: what the other name means depends on the program it comes from
  std::vector<std::string_view> theirs;
};

const std::vector<OtherNames>& table() {
  static const std::vector<OtherNames> names = {
      {{"lr"}, {"learning-rate", "max-lr", "peak-lr", "rate"}},
      {{"min-lr"}, {"min-learning-rate", "final-lr", "lr-min"}},
      {{"lr-schedule"}, {"scheduler", "lr-scheduler", "lr-scheduler-type", "lr-decay-style", "schedule"}},
      {{"warmup-steps"}, {"warmup", "warmup-iters", "num-warmup-steps", "lr-warmup-iters", "lr-warmup-steps"}},
      {{"warmup-lr"}, {"lr-warmup-init", "warmup-init-lr", "warmup-start-lr"}},
      {{"decay-steps"}, {"lr-decay-iters", "lr-decay-steps"}},
      {{"steps"},
       {"epochs", "num-epochs", "num-train-epochs", "max-steps", "max-iters", "train-iters", "iterations", "iters",
        "num-iterations", "training-steps", "num-steps"}},
      {{"global-batch", "micro-batch"}, {"batch-size", "batch", "bs", "train-batch-size"}},
      {{"global-batch"}, {"global-batch-size", "total-batch-size"}},
      {{"micro-batch"},
       {"micro-batch-size", "per-device-train-batch-size", "per-device-batch-size", "device-batch-size"}},
      {{"micro-batches"}, {"gradient-accumulation-steps", "grad-accum", "grad-accum-steps", "accumulation-steps"}},
      {{"clip"}, {"grad-clip", "clip-grad", "max-grad-norm", "gradient-clip", "gradient-clip-val", "clip-grad-norm"}},
      {{"weight-decay"}, {"wd", "adam-weight-decay"}},
      {{"beta1"}, {"adam-beta1"}},
      {{"beta2"}, {"adam-beta2"}},
      {{"eps"}, {"epsilon", "adam-eps", "adam-epsilon"}},
      {{"optimizer"}, {"optim", "optimiser"}},
      {{"layers"}, {"num-layers", "n-layer", "n-layers", "num-hidden-layers", "depth", "blocks"}},
      {{"heads"}, {"num-heads", "n-head", "n-heads", "num-attention-heads"}},
      {{"kv-heads"}, {"num-key-value-heads", "n-kv-heads", "num-kv-heads", "num-query-groups"}},
      {{"width"},
       {"hidden-size", "hidden-dim", "n-embd", "d-model", "dim", "model-dim", "embed-dim", "embedding-dim",
        "embedding-size"}},
      {{"ffn-width"}, {"ffn-hidden-size", "intermediate-size", "d-ff", "ff-dim", "mlp-width"}},
      {{"context"},
       {"seq-len", "seq-length", "sequence-length", "block-size", "max-seq-len", "max-length", "context-length", "ctx",
        "ctx-len", "n-ctx", "max-position-embeddings"}},
      {{"vocab"}, {"vocab-size", "vocabulary-size"}},
      {{"tied"}, {"tie-embeddings", "tie-word-embeddings", "share-embeddings", "tie-weights"}},
      {{"positions"}, {"rope", "rotary", "position-embedding-type", "position-encoding"}},
      {{"head-width"}, {"head-dim", "kv-channels", "head-size"}},
      {{"zero-centred-norms"}, {"apply-layernorm-1p", "layernorm-zero-centered-gamma", "zero-centered-norms"}},
      {{"post-norms"}, {"use-post-norm", "post-norm", "sandwich-norm"}},
      {{"scaled-embeddings"}, {"embedding-multiplier", "scale-embeddings", "embedding-scale"}},
      {{"query-pre-attn-scalar"}, {"attention-scale", "softmax-scale", "attention-multiplier"}},
      {{"window-rope-base"}, {"rope-local-base-freq"}},
      {{"freeze"}, {"freeze-layers", "frozen", "frozen-parameters"}},
      {{"lora-rank"}, {"lora-r", "adapter-rank", "lora"}},
      {{"lora-targets"}, {"target-modules", "lora-target-modules", "lora-modules"}},
      {{"qkv-bias"}, {"add-qkv-bias", "use-qkv-bias", "attention-bias"}},
      {{"rope-base"}, {"rope-theta", "rotary-base", "rope-freq-base"}},
      {{"rope-scaling"}, {"rope-scaling-type", "rope-freq-scale", "yarn"}},
      {{"norm-eps"}, {"rms-norm-eps", "layer-norm-eps", "norm-epsilon", "layer-norm-epsilon"}},
      {{"qk-norm"}, {"qk-layernorm", "use-qk-norm"}},
      {{"window"}, {"sliding-window", "window-size", "attention-window", "local-attention"}},
      {{"full-every"}, {"sliding-window-pattern"}},
      {{"attention-softcap"}, {"attn-logit-softcapping", "attn-softcap"}},
      {{"logit-softcap"}, {"final-logit-softcapping", "logits-softcap", "logit-softcapping"}},
      {{"activation"}, {"swiglu", "gelu", "hidden-act", "activation-function"}},
      {{"experts"}, {"num-experts", "n-experts", "num-local-experts"}},
      {{"expert-ffn-width"}, {"moe-intermediate-size", "moe-ffn-hidden-size"}},
      {{"top-k"}, {"num-experts-per-tok", "moe-router-topk", "topk"}},
      {{"top-p"}, {"nucleus", "topp"}},
      {{"aux-loss"}, {"moe-aux-loss-coeff", "aux-loss-coef", "router-aux-loss-coef"}},
      {{"mesh"},
       {"tp", "pp", "dp", "cp", "ep", "tensor-parallel-size", "tensor-model-parallel-size", "tensor-parallel",
        "pipeline-parallel-size", "pipeline-model-parallel-size", "data-parallel-size", "data-parallel",
        "context-parallel-size", "expert-model-parallel-size", "expert-parallel-size", "world-size", "nproc-per-node"}},
      {{"zero"}, {"zero-stage", "fsdp", "use-distributed-optimizer", "sharding-strategy"}},
      {{"recompute"},
       {"gradient-checkpointing", "activation-checkpointing", "recompute-activations", "recompute-granularity"}},
      {{"dtype"}, {"bf16", "fp16", "f16", "f32", "fp32", "precision", "mixed-precision", "torch-dtype"}},
      {{"device"}, {"gpu", "cuda", "accelerator"}},
      {{"threads"}, {"num-threads", "n-threads", "t"}},
      {{"workers"}, {"threads", "num-workers", "num-proc", "processes"}},
      {{"dedup"}, {"deduplicate", "dedupe"}},
      {{"attention"}, {"flash-attention", "use-flash-attn", "attn-implementation"}},
      {{"seed"}, {"random-seed", "manual-seed"}},
      {{"data"}, {"dataset", "data-path", "train-data", "train-data-path", "input", "input-bin", "text", "data-dir"}},
      {{"tokenizer"}, {"tokenizer-type", "tokenizer-path", "tokenizer-name", "tokeniser"}},
      {{"val-fraction"}, {"val-split", "validation-split", "validation-split-percentage", "split"}},
      {{"out"}, {"output-dir", "out-dir", "save", "save-dir", "checkpoint-dir", "ckpt-dir", "run-dir", "output", "o"}},
      {{"checkpoint-every"}, {"save-interval", "save-every", "save-steps", "checkpoint-interval", "checkpoint-freq"}},
      {{"keep"}, {"save-total-limit", "keep-last", "max-checkpoints"}},
      {{"resume"}, {"load", "resume-from", "resume-from-checkpoint", "load-checkpoint", "restore"}},
      {{"eval-every"}, {"eval-interval", "eval-steps", "val-every", "val-loss-every", "evaluation-interval"}},
      {{"eval-batches"}, {"eval-iters", "val-batches", "val-max-batches"}},
      {{"log-every"}, {"log-interval", "logging-steps", "print-every", "print-freq"}},
      {{"sample-every"}, {"sample-interval", "generate-every"}},
      {{"checkpoint"}, {"model-path", "ckpt", "ckpt-path", "checkpoint-path", "model-dir", "model", "load", "m"}},
      {{"length"}, {"max-new-tokens", "max-tokens", "num-tokens", "n-predict", "tokens", "n"}},
      {{"samples"}, {"num-samples", "num-return-sequences", "n-samples"}},
      {{"prompt"}, {"start", "input-text", "p"}},
      {{"prompt-file"}, {"file", "input-file", "f"}},
      {{"temperature"}, {"temp"}},
  };
  return names;
}

}  // namespace

std::vector<std::string> flags_called(std::string_view name, const std::vector<std::string>& known) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const OtherNames& row : table()) {
    if (std::find(row.theirs.begin(), row.theirs.end(), dashed) == row.theirs.end()) continue;
    std::vector<std::string> ours;
    for (const std::string& flag : row.ours)
      if (std::find(known.begin(), known.end(), flag) != known.end()) ours.push_back(flag);
    if (!ours.empty()) return ours;
  }
  return {};
}

}  // namespace trireme

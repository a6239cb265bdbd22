// GPT: the decoder of GPT-2 (Radford et al. 2019), or the part of it that lives on one pipeline rank.
//
//   ids -> wte + wpe -> dropout -> blocks -> norm -> logits (tied to wte)
//   block: h = x + attn(norm1(x));  h + mlp(norm2(h))
//
// Llama (Touvron et al. 2023) is the same with other parts, each a choice of GptConfig: RMS norms, rotary instead of
// learned positions, fewer key-value heads, a gated MLP, a head of its own. With experts, mlp is a mixture of them
// (nn::Moe), as in the MoE GPTs after GShard and Switch Transformer.
//
// The blocks contain no code for ranks: nn::Attention, nn::Mlp, nn::Moe and nn::VocabEmbedding shard themselves, and the
// pipeline plan decides which blocks a stage builds. Only the model's two ends (batch, loss, logits) use the mesh. Names
// are global, so "blocks.7.mlp.up.weight" is the same tensor on any mesh.
// Read next: models/gpt.cpp, models/model.h.
#pragma once

#include <memory>
#include <vector>

#include "models/gpt_config.h"
#include "models/language_model.h"
#include "nn/attention.h"
#include "nn/vocab_embedding.h"

namespace trireme {

class GptBlock : public nn::Module {
 public:
  GptBlock(const nn::Build& b, const GptConfig& config, int index);
  Tensor forward(const Tensor& x) override;  // [B, T, D] -> [B, T, D]

 private:
  std::unique_ptr<nn::Module> norm1_;
  nn::Attention attn_;
  nn::Dropout attn_dropout_;
  std::unique_ptr<nn::Module> norm2_;
  std::unique_ptr<nn::Module> mlp_;  // Mlp, or Moe
  nn::Dropout mlp_dropout_;
};

/// A batch has "inputs" and, for the loss, "targets": data/batch.h, token_batch().
class Gpt : public LanguageModel {
 public:
  /// Builds this rank's part: the blocks of its pipeline stages (stage s lives on rank s % pp), the embedding of the
  /// first, the head of the last. `plan` has the blocks of every stage; empty: one stage per rank, split by cost.
  Gpt(const nn::Build& build, const GptConfig& config, pipeline::StagePlan plan = {});

  /// `scale` times the summed cross-entropy of this rank's targets [B, T/cp] i32 (negative: ignored). `hidden`: of
  /// hidden_shape().
  Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override;
  Tensor next_logits(const Tensor& hidden, std::int64_t position) override;
  /// Last stage: hidden_shape() -> this tp rank's logits [B, T/cp, V/tp].
  Tensor logits(const Tensor& hidden);
  /// Last stage: the logits of the real tokens, whole on every tp rank. -> [B, T, V] f32
  Tensor gathered_logits(const Tensor& hidden);

  /// [B, T/cp, D], or [B, T/(cp tp), D] under sequence parallelism, of sequences as long as the context.
  Shape hidden_shape(std::int64_t samples) const override { return hidden_shape(samples, config_.context); }
  Shape hidden_shape(std::int64_t samples, std::int64_t length) const override;
  std::int64_t padded_length(std::int64_t length) const override;
  std::int64_t context() const override { return config_.context; }

  std::string architecture() const override { return "gpt"; }
  std::string configuration() const override;
  std::vector<Setting> settings(const std::string& configuration, const std::string& path) const override;
  const GptConfig& config() const { return config_; }

 protected:
  Tensor front(const Batch& batch) override;      // ids [B, T/cp] -> hidden_shape()
  Batch local_part(const Batch& batch) override;  // [B, T] -> [B, T/cp]

 private:
  Tensor embed(const Tensor& ids);
  Tensor gathered(const Tensor& logits) const;  // [B, T, V/tp] -> [B, T, V] f32

  GptConfig config_;
  std::shared_ptr<nn::VocabEmbedding> embedding_;  // first stage
  UnitUse use_embedding_, use_head_;               // of the units with their tables
  ParameterPtr positions_;                         // first stage, unless rotary: [C, D]
  std::unique_ptr<nn::Dropout> dropout_;           // first stage
  std::unique_ptr<nn::Module> norm_;               // last stage
  /// Last stage: tied to embedding_ (one object when this is the first stage too), or of its own weights.
  std::shared_ptr<nn::VocabEmbedding> head_;
};

/// Number of logical parameters of the whole model, padding and copies not counted.
std::int64_t parameter_count(const GptConfig& config);
/// The number of parameters that compute one token: in a block with experts, top_k of the experts count.
std::int64_t active_parameter_count(const GptConfig& config);
/// The number of parameters of all experts, those that compute every token not counted.
std::int64_t expert_parameter_count(const GptConfig& config);
/// The cost of a forward per token, for each part of the model that a pipeline can cut off, in FLOPs of products. Of
/// the experts, those that compute the token count, with the router. Attention counts with all T keys: causal kernels
/// skip half of them, but take up to twice as long for a FLOP as products do.
pipeline::StageCosts stage_costs(const GptConfig& config);
/// FLOPs that one training step needs per token: 6 per active parameter of a product, and in each layer 12 D for each
/// of the (T + 1) / 2 keys that a query of a whole sequence sees on average. The usual count (Narayanan et al. 2021,
/// appendix) includes masked keys, all T. They need not be computed, so the time at peak for that count is not a lower
/// bound. What is computed a second time, by attention's backward or by recomputation, does not count.
double training_flops_per_token(const GptConfig& config);

}  // namespace trireme

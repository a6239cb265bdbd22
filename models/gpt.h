// GPT: the decoder of GPT-2 (Radford et al. 2019), or the part of it that lives on one pipeline rank.
//
//   ids -> wte + wpe -> dropout -> blocks -> norm -> logits (tied to wte)
//   block: h = x + attn(norm1(x));  h + mlp(norm2(h))
//   with post-norms: h = x + post_norm1(attn(norm1(x)));  h + post_norm2(mlp(norm2(h)))
//
// Llama (Touvron et al. 2023) is the same with other parts, each a choice of GptConfig: RMS norms, rotary instead of
// learned positions, fewer key-value heads, a gated MLP, a head of its own. Later decoders add norms of queries and
// keys, windows of attention and caps of scores and logits: nn/attention.h, nn/rotary.h. docs/architectures.md says
// which choices make which published model. With experts, mlp is a mixture of them (nn::Moe), as in the MoE GPTs after
// GShard and Switch Transformer, in Mixtral and Qwen3.
//
// The blocks contain no code for ranks: nn::Attention, nn::Mlp, nn::Moe and nn::VocabEmbedding shard themselves, and
// the pipeline plan decides which blocks a stage builds. Only the model's two ends (batch, loss, logits) use the mesh.
// Names are global, so "blocks.7.mlp.up.weight" is the same tensor on any mesh.
// Read next: models/gpt.cpp, models/model.h.
#pragma once

#include <memory>
#include <vector>

#include "models/gpt_config.h"
#include "models/language_model.h"
#include "nn/attention.h"
#include "nn/vocab_embedding.h"

namespace trireme {

/// One transformer block of a GPT.
class GptBlock : public nn::Module {
 public:
  GptBlock(const nn::Build& b, const GptConfig& config, int index);
  Tensor forward(const Tensor& x) override;  // [B, T, D] -> [B, T, D]

 private:
  Tensor add(const Tensor& residual, nn::Module& layer, nn::Module* post_norm, nn::Dropout& dropout,
             const Tensor& input);

  std::unique_ptr<nn::Module> norm1_;
  nn::Attention attn_;
  std::unique_ptr<nn::Module> post_norm1_;  // or null
  nn::Dropout attn_dropout_;
  std::unique_ptr<nn::Module> norm2_;
  std::unique_ptr<nn::Module> mlp_;         // Mlp, or Moe
  std::unique_ptr<nn::Module> post_norm2_;  // or null
  nn::Dropout mlp_dropout_;
};

/// A batch has "inputs" and, for the loss, "targets": data/batch.h, token_batch(). It may have "positions" [B, T] i32,
/// the position of each token: RunState::positions; and "documents" [B, T] i32, where the document of each token
/// begins: RunState::document_starts.
/// @snippet training_test.cpp gpt
class Gpt : public LanguageModel {
 public:
  /// Builds this rank's part: the blocks of its pipeline stages (stage s lives on rank s % pp), the embedding of the
  /// first, the head of the last. `plan` has the blocks of every stage; empty: one stage per rank, split by cost.
  Gpt(const nn::Build& build, const GptConfig& config, pipeline::StagePlan plan = {});

  using LanguageModel::loss;
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
  bool relative_positions() const override { return config_.positions == PositionEncoding::rope; }

  std::string architecture() const override { return "gpt"; }
  std::string configuration() const override;
  std::vector<Setting> settings(const std::string& configuration, const std::string& path) const override;
  const GptConfig& config() const { return config_; }

 protected:
  Tensor front(const Batch& batch) override;      // ids [B, T/cp] -> hidden_shape()
  Batch local_part(const Batch& batch) override;  // [B, T] -> [B, T/cp]

 private:
  Tensor embed(const Tensor& ids);
  void require_context(std::int64_t first, std::int64_t length);
  Tensor learned_positions(std::int64_t length, std::int64_t first);  // [T, D] or [B, T, D]
  Tensor capped(const Tensor& logits) const;
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
/// The number of parameters of all adapters; 0: the model has none.
std::int64_t adapter_parameter_count(const GptConfig& config);
/// The largest rank that an adapter of the model can use: a matrix [out, in] has at most the smaller of the two. 0: the
/// model has no adapters.
std::int64_t most_adapter_rank(const GptConfig& config);
/// The cost of a forward per token, for each part of the model that a pipeline can cut off, in FLOPs of products. Of
/// the experts, those that compute the token count, with the router. Attention counts with all T keys (with a window,
/// with the same part of them less): causal kernels skip half of them, but take up to twice as long for a FLOP as
/// products do.
pipeline::StageCosts stage_costs(const GptConfig& config);
/// FLOPs that one training step needs per token: 6 per active parameter of a product (4 of a frozen one, whose own
/// gradient is not computed), and in each layer 12 H Dh for each
/// of the keys that a query of a whole sequence sees on average, (T + 1) / 2 without a window. The usual count
/// (Narayanan et al. 2021, appendix) includes masked keys, all T; here, those outside a window do not count either.
/// They need not be computed, so the time at peak for that count is not a lower bound. What is computed a second time,
/// by attention's backward or by recomputation, does not count.
double training_flops_per_token(const GptConfig& config);

}  // namespace trireme

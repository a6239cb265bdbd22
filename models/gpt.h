// GPT: the decoder of GPT-2 (Radford et al. 2019), or the part of it that lives on one pipeline rank.
//
//   ids -> wte + wpe -> dropout -> blocks -> norm -> logits (tied to wte)
//   block: h = x + attn(norm1(x));  h + mlp(norm2(h))
//
// Llama (Touvron et al. 2023) is the same with other parts, each a choice of GptConfig: RMS norms, rotary instead of
// learned positions, fewer key-value heads, a gated MLP, a head of its own. With experts, mlp is a mixture of them
// (nn::Moe), as in the MoE GPTs after GShard and Switch Transformer.
//
// Nothing here mentions a mesh axis: nn::Attention, nn::Mlp, nn::Moe and nn::VocabEmbedding hold what is sharded, and
// the pipeline plan decides which blocks a stage builds. Names are global, so "blocks.7.mlp.up.weight" is the same tensor
// on any mesh.
#pragma once

#include <memory>
#include <vector>

#include "models/gpt_config.h"
#include "nn/attention.h"
#include "nn/module.h"
#include "nn/vocab_embedding.h"
#include "parallel/pipeline/stage_plan.h"

namespace trireme {

class GptBlock : public nn::Module {
 public:
  GptBlock(const nn::Build& b, const GptConfig& config, int index);
  int index() const { return index_; }       ///< in the whole model
  Tensor forward(const Tensor& x) override;  // [B, T, D] -> [B, T, D]

 private:
  int index_;
  std::unique_ptr<nn::Module> norm1_;
  nn::Attention attn_;
  nn::Dropout attn_dropout_;
  std::unique_ptr<nn::Module> norm2_;
  std::unique_ptr<nn::Module> mlp_;  // Mlp, or Moe
  nn::Dropout mlp_dropout_;
};

class Gpt {
 public:
  /// Builds this rank's part: the blocks of its pipeline stages (stage s lives on rank s % pp), the embedding of the
  /// first, the head of the last. `plan` has the blocks of every stage; left out, a stage per rank, split by cost.
  Gpt(const nn::Build& build, const GptConfig& config, pipeline::StagePlan plan = {});

  /// First stage: embeds ids [B, T] i32 (`input` is ignored); others: continue from `input` [B, T, D]. -> [B, T, D]
  /// Everybody's `ids` and `targets` are whole sequences, or with run().cache the next tokens of them; what passes
  /// between stages is hidden_shape().
  Tensor hidden(int stage, const Tensor& input, const Tensor& ids);
  /// Last stage: [B, T, D] -> this tp rank's logits [B, T, V/tp].
  Tensor logits(const Tensor& hidden);
  /// Last stage: `scale` times the summed cross-entropy of the targets [B, T] i32 (negative: ignored), the same on
  /// every tp rank.
  Tensor loss(const Tensor& hidden, const Tensor& targets, double scale);
  /// Last stage: the logits of the real tokens, whole on every tp rank. -> [B, T, V] f32
  Tensor gathered_logits(const Tensor& hidden);
  /// Last stage: those after position `position` only. -> [B, 1, V] f32
  Tensor gathered_logits_at(const Tensor& hidden, std::int64_t position);

  /// What hidden() gives on each rank for sequences of `length` tokens: [B, T, D], or [B, T/tp, D] under sequence
  /// parallelism.
  Shape hidden_shape(std::int64_t batch, std::int64_t length) const;
  /// `length` rounded up so that it divides over the ranks that share a sequence.
  std::int64_t padded_length(std::int64_t length) const;

  const nn::ParameterList& parameters() const { return build_.parameters(); }
  const nn::BufferList& buffers() const { return build_.buffers(); }
  nn::RoutingLog& routing() { return build_.routing(); }
  nn::Units& units() { return build_.units(); }
  nn::RunState& run() { return *build_.run(); }
  const GptConfig& config() const { return config_; }
  const DeviceMesh& mesh() const { return build_.mesh(); }
  DType dtype() const { return build_.dtype(); }
  Device device() const { return build_.device(); }
  int stages() const { return static_cast<int>(plan_.size()); }    ///< of the whole model
  int chunks() const { return stages() / mesh().size(Axis::pp); }  ///< stages on each rank
  bool is_last_stage(int stage) const { return stage == stages() - 1; }

 private:
  Tensor embed(const Tensor& ids);
  Tensor recomputed(GptBlock& block, const Tensor& x);
  Tensor gathered(const Tensor& logits) const;  // [B, T, V/tp] -> [B, T, V] f32

  nn::Build build_;
  GptConfig config_;
  pipeline::StagePlan plan_;
  std::shared_ptr<nn::VocabEmbedding> embedding_;  // first stage
  nn::UnitUse use_embedding_, use_head_;           // of the units with their tables
  nn::ParameterPtr positions_;                     // first stage, unless rotary: [C, D]
  std::unique_ptr<nn::Dropout> dropout_;           // first stage
  std::vector<std::unique_ptr<GptBlock>> blocks_;
  std::unique_ptr<nn::Module> norm_;  // last stage
  /// Last stage: tied to embedding_ (one object when this is the first stage too), or of its own weights.
  std::shared_ptr<nn::VocabEmbedding> head_;
};

/// Number of logical parameters of the whole model, padding and copies not counted.
std::int64_t parameter_count(const GptConfig& config);
/// Those of them that compute one token: of the experts of a block that has them, top_k.
std::int64_t active_parameter_count(const GptConfig& config);
/// What a forward costs per token, on the parts of the model that a pipeline cuts, in FLOPs of products: of experts,
/// those that compute the token, with the router. Attention counts with all T keys: causal kernels skip half of them,
/// but take up to twice as long for a FLOP as products do.
pipeline::StageCosts stage_costs(const GptConfig& config);
/// FLOPs that one training step has to do per token: 6 per active parameter of a product, and those of attention on the
/// (T + 1) / 2 keys that a query of a whole sequence sees on average, 12 D for each in a layer. The usual count
/// (Narayanan et al. 2021, appendix) has all T keys, masked ones, too: nobody has to do those, so its time at peak is
/// no limit. What is computed twice, by attention's backward or by recomputation, does not count.
double training_flops_per_token(const GptConfig& config);

}  // namespace trireme

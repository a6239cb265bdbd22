// Small decoders of several kinds with random weights, and texts for them: for tests of generation.
// Read next: tests/models/next_logits_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "tests/support/gpt_run.h"

namespace trireme::testing::decoders {

using Text = std::vector<std::int32_t>;

inline constexpr std::int64_t context = 16;

struct Kind {
  std::string name;
  GptConfig config;
  nn::Parallelism parallelism = {};
};

inline Kind gpt2() { return {"GPT-2", small_config(0.5)}; }  // with dropout, which evaluation must ignore

inline Kind llama_kind() {
  GptConfig config = small_config();
  config.kv_heads = 2;
  config.norm = Norm::rms;
  config.positions = PositionEncoding::rope;
  config.activation = Activation::swiglu;
  config.tied = false;
  config.bias = false;
  return {"Llama", config};
}

inline Kind experts() {
  GptConfig config = small_config();
  config.experts = {.count = 4, .top_k = 2, .capacity_factor = 1.0, .shared = 1};
  config.moe_every = 2;
  return {"experts", config};
}

inline Kind documents() {
  Kind kind = llama_kind();
  kind.config.document_separator = 3;
  return {"documents", kind.config};
}

/// All later parts at once; the window is shorter than the texts.
inline Kind later() {
  Kind kind = llama_kind();
  GptConfig& c = kind.config;
  c.rope_scaling = "yarn:4,8";
  c.rope_interleaved = true;
  c.qk_norm = true;
  c.window = 5;
  c.full_every = 2;
  c.attention_softcap = 2;
  c.logit_softcap = 3;
  c.activation = Activation::geglu;
  c.window_rope_base = 100;
  c.post_norms = true;
  c.scaled_embeddings = true;
  c.head_width = 6;
  return {"later parts", c};
}

inline Kind restarted() {
  Kind kind = later();
  kind.config.document_separator = 3;
  kind.config.restart_positions = true;
  kind.config.positions = PositionEncoding::learned;
  kind.config.rope_scaling = "none";
  kind.config.window_rope_base = std::nullopt;
  return {"restarted positions", kind.config};
}

inline Kind cut_by_positions(Kind kind) {
  kind.name += ", sequence parallel";
  kind.parallelism.sequence = true;
  return kind;
}

/// Random tokens, many of which are separators.
inline Text text_of(std::int64_t length) {
  Text ids;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::uint32_t word = random_word(5, 1, static_cast<std::uint64_t>(i));
    ids.push_back(word % 6 == 0 ? 3 : static_cast<std::int32_t>(word / 6 % test_vocab));
  }
  return ids;
}

/// A model with random values in every parameter, so that all of them matter.
inline Gpt model_on(const MeshPtr& mesh, const Kind& kind, DType dtype, int chunks = 1) {
  const auto layers = static_cast<int>(kind.config.layers);
  Gpt model(nn::Build(mesh, dtype, 7, kind.parallelism), kind.config,
            pipeline::stage_plan(layers, mesh->size(Axis::pp) * chunks));
  randomise(model.parameters(), 0.2);
  return model;
}

}  // namespace trireme::testing::decoders

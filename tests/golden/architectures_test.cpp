// Small decoders of published architectures against PyTorch (make_architectures.py), in f64 and f32 and on meshes:
// logits, loss and every gradient.
#include "tests/golden/decoder_case.h"

using namespace trireme;
using namespace trireme::testing;

namespace architectures_test {
namespace {

/// DEFAULTS in make_architectures.py.
GptConfig base() {
  GptConfig c = small_decoder();
  c.norm_eps = 1e-2;
  return c;
}

/// The options are those of CASES in make_architectures.py.
std::vector<DecoderCase> cases() {
  std::vector<DecoderCase> all;
  const auto add = [&](const std::string& name, const std::function<void(GptConfig&)>& change) {
    all.push_back({name, base()});
    change(all.back().config);
  };
  add("qwen2", [](GptConfig& c) {
    c.qkv_bias = true;
    c.rope_base = 1e6;
  });
  add("qwen3", [](GptConfig& c) {
    c.head_width = 8;
    c.qk_norm = true;
  });
  add("gemma", [](GptConfig& c) {
    c.head_width = 8;
    c.zero_centred_norms = true;
    c.scaled_embeddings = true;
    c.activation = Activation::geglu;
  });
  add("gemma2", [](GptConfig& c) {
    c.head_width = 4;
    c.kv_heads = 2;
    c.zero_centred_norms = true;
    c.scaled_embeddings = true;
    c.activation = Activation::geglu;
    c.query_pre_attn_scalar = 9;
    c.post_norms = true;
    c.attention_softcap = 1.5;
    c.logit_softcap = 2.0;
    c.window = 4;
    c.full_every = 2;
  });
  add("gemma3", [](GptConfig& c) {
    c.head_width = 8;
    c.zero_centred_norms = true;
    c.scaled_embeddings = true;
    c.activation = Activation::geglu;
    c.query_pre_attn_scalar = 20;
    c.post_norms = true;
    c.qk_norm = true;
    c.window = 4;
    c.full_every = 2;
    c.rope_base = 1e6;
    c.window_rope_base = 1e2;
    c.rope_scaling = "linear:8";
  });
  add("narrow", [](GptConfig& c) {
    c.head_width = 4;
    c.kv_heads = 2;
    c.positions = PositionEncoding::learned;
  });
  return all;
}

/// The options are those of MIXTURES in make_architectures.py.
std::vector<DecoderCase> mixtures() {
  GptConfig c = base();
  c.experts = {.count = 4, .top_k = 2, .aux_loss = 0, .z_loss = 0, .norm = nn::RouterNorm::after};
  c.expert_ffn_width = 6;
  c.ffn_width = std::nullopt;
  DecoderCase mixtral{"mixtral", c};
  c.experts.norm = nn::RouterNorm::before;
  c.head_width = 8;
  c.qk_norm = true;
  c.kv_heads = 2;
  return {mixtral, {"qwen3_moe", c}};
}

}  // namespace

TEST_CASE("decoders of published architectures have PyTorch's logits, loss and gradients, on every mesh") {
  const GoldenFile file("architectures");
  for (const DecoderCase& x : cases()) {
    check_decoder(file, x, "dp=1", DType::f64, false);
    for (const std::string& mesh : Meshes{"dp=1", "dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2,cp=2"})
      check_decoder(file, x, mesh, DType::f32, false);
    for (const std::string& mesh : Meshes{"tp=2", "tp=2,cp=2"}) check_decoder(file, x, mesh, DType::f32, true);
  }
}

TEST_CASE("mixtures of published architectures have PyTorch's logits, loss and gradients, on every mesh") {
  const GoldenFile file("mixtures");
  for (const DecoderCase& x : mixtures()) {
    check_decoder(file, x, "dp=1", DType::f64, false);
    for (const std::string& mesh :
         Meshes{"dp=1", "dp=2", "dp=2,ep=2", "tp=2", "pp=2", "cp=2", "cp=2,ep=2", "dp=2,tp=2,pp=2,cp=2,ep=4"})
      check_decoder(file, x, mesh, DType::f32, false);
    for (const std::string& mesh : Meshes{"tp=2", "dp=2,tp=2,cp=2,ep=2"})
      check_decoder(file, x, mesh, DType::f32, true);
  }
}

}  // namespace architectures_test

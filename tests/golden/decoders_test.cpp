// Decoders with the parts of later models against PyTorch (make_decoders.py), in f64 and f32 and on meshes: logits,
// loss and every gradient.
#include "tests/golden/decoder_case.h"

using namespace trireme;
using namespace trireme::testing;

namespace decoders_test {
namespace {

/// The options are those of CASES in make_decoders.py.
std::vector<DecoderCase> cases() {
  std::vector<DecoderCase> all;
  const auto add = [&](const std::string& name, const std::function<void(GptConfig&)>& change) {
    all.push_back({name, small_decoder()});
    change(all.back().config);
  };
  add("llama3", [](GptConfig& c) {
    c.rope_base = 5e5;
    c.rope_scaling = "llama3:4,8";
    c.qk_norm = true;
    c.norm_eps = 1e-2;
    c.window = 3;
  });
  add("yarn", [](GptConfig& c) {
    c.rope_scaling = "yarn:4,64,0.1,8";
    c.rope_interleaved = true;
    c.activation = Activation::relu2;
    c.norm = Norm::layer;
    c.bias = true;
    c.norm_eps = 1e-1;
    c.logit_softcap = 1.5;
  });
  add("gemma", [](GptConfig& c) {
    c.rope_scaling = "linear:2.5";
    c.activation = Activation::geglu;
    c.attention_softcap = 0.7;
    c.logit_softcap = 2.0;
    c.kv_heads = 2;
    c.window = 4;
    c.full_every = 2;
  });
  add("packed", [](GptConfig& c) {
    c.kv_heads = 2;
    c.positions = PositionEncoding::learned;
    c.norm = Norm::layer;
    c.bias = true;
    c.activation = Activation::relu2;
    c.attention_softcap = 1.1;
    c.window = 2;
    c.norm_eps = 1e-3;
  });
  add("restarted", [](GptConfig& c) {
    c.document_separator = 3;
    c.restart_positions = true;
    c.bias = true;
    c.qk_norm = true;
  });
  add("placed", [](GptConfig& c) {
    c.positions = PositionEncoding::learned;
    c.qk_norm = true;
    c.bias = true;
    c.norm = Norm::layer;
  });
  return all;
}

}  // namespace

TEST_CASE("decoders with the parts of later models have PyTorch's logits, loss and gradients, on every mesh") {
  const GoldenFile file("decoders");
  for (const DecoderCase& x : cases()) {
    check_decoder(file, x, "dp=1", DType::f64, false);
    for (const std::string& mesh : Meshes{"dp=1", "tp=2", "pp=2", "cp=2", "tp=2,pp=2,cp=2"})
      check_decoder(file, x, mesh, DType::f32, false);
    for (const std::string& mesh : Meshes{"tp=2", "tp=2,cp=2"}) check_decoder(file, x, mesh, DType::f32, true);
  }
}

}  // namespace decoders_test

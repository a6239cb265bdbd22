// Small decoders with adapters against the library peft (make_lora.py), in f64 and f32 and on meshes: logits, loss and
// the gradients of all adapters.
#include "nn/lora.h"
#include "tests/golden/decoder_case.h"

using namespace trireme;
using namespace trireme::testing;

namespace lora_golden_test {
namespace {

/// The options are those of llama() and gpt2() in make_lora.py.
std::vector<DecoderCase> cases() {
  const nn::LoraOptions lora = {.rank = 3, .alpha = 7};
  GptConfig gpt2 = {.layers = 2, .heads = 2, .width = 12, .context = 12, .vocab = 11};
  gpt2.activation = Activation::gelu_tanh;
  gpt2.ffn_width = 6;
  gpt2.lora = lora;
  GptConfig llama = small_decoder();
  llama.norm_eps = 1e-2;
  llama.lora = lora;
  return {{"llama", llama}, {"gpt2", gpt2}};
}

}  // namespace

TEST_CASE("adapters have the logits, the loss and the gradients of peft, on every mesh") {
  const GoldenFile file("lora");
  for (const DecoderCase& x : cases()) {
    // The Llama of transformers computes norms and rotary angles in f32.
    if (x.name == "gpt2") check_decoder(file, x, "dp=1", DType::f64, false);
    for (const std::string& mesh : Meshes{"dp=1", "dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2,cp=2"})
      check_decoder(file, x, mesh, DType::f32, false);
    for (const std::string& mesh : Meshes{"tp=2", "tp=2,cp=2"}) check_decoder(file, x, mesh, DType::f32, true);
  }
}

TEST_CASE("with adapters nothing else is trained; the targets choose the layers") {
  run_mesh("dp=1", [](const MeshPtr& mesh) {
    GptConfig c = cases()[0].config;
    c.lora.targets = "*.attn.q,blocks.1.*.down";
    const Gpt model(nn::Build(mesh, DType::f32, 1), c);
    std::vector<std::string> names;
    for (const ParameterPtr& p : trained(model.parameters())) names.push_back(p->name);
    CHECK(names == std::vector<std::string>{"blocks.0.attn.q.lora_a", "blocks.0.attn.q.lora_b",
                                            "blocks.1.attn.q.lora_a", "blocks.1.attn.q.lora_b",
                                            "blocks.1.mlp.down.lora_a", "blocks.1.mlp.down.lora_b"});
    c.lora.targets = "*.q_proj";
    CHECK_THROWS_WITH_AS(Gpt(nn::Build(mesh, DType::f32, 1), c),
                         doctest::Contains("no linear layer of a block has a name like '*.q_proj'"), Error);
  });
}

}  // namespace lora_golden_test

// Generation on the emulated GPU with a KV cache: few queries, many keys, and an offset of positions.
#include "cuda/runtime/emulated.h"
#include "tests/support/elements.h"
#include "tests/support/gpt_run.h"
#include "train/gpt/next_logits.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

GptConfig config() {
  GptConfig c{.layers = 2, .heads = 4, .width = 32, .context = 12, .vocab = test_vocab};
  c.kv_heads = 2;
  c.positions = PositionEncoding::rope;
  c.document_separator = 3;
  return c;
}

/// Logits after the first 4 tokens of a text, after the first 5, and so on; with a KV cache if `keep`.
std::vector<double> logits(const std::string& mesh_text, Device device, DType dtype, bool keep) {
  const std::vector<std::int32_t> text = {7, 9, 3, 20, 41, 5, 3, 60, 2, 11, 3, 33};
  std::vector<double> all;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, dtype, 7, {}, device), config());
    const NoGrad guard;
    for (const ParameterPtr& p : model.parameters()) copy(p->local * 5.0, p->local);
    NextLogits next(model, config().context, keep);
    for (std::size_t count = 4; count <= text.size(); ++count) {
      const Tensor here = next(std::span(text).first(count));  // [1, 1, V]
      if (mesh->rank() != 0) continue;
      for (const float logit : here.span<float>()) all.push_back(static_cast<double>(logit));
    }
  });
  return all;
}

}  // namespace

TEST_CASE("device: logits with keys and values kept are the whole text's") {
  const std::vector<double> exact = logits("dp=1", Device::cpu, DType::f64, false);
  const double whole = largest_difference(logits("dp=1", Device::cpu, DType::bf16, false), exact);
  const cuda::ScopedEmulatedDevice device;
  for (const std::string& mesh : Meshes{"dp=1", "tp=2"}) {
    CHECK(largest_difference(logits(mesh, Device::cuda, DType::f32, true), exact) < 1e-5);
    const double kept = largest_difference(logits(mesh, Device::cuda, DType::bf16, true), exact);
    CHECK_MESSAGE(kept < 2 * whole, mesh << ": " << kept << ", on the CPU " << whole);
  }
}

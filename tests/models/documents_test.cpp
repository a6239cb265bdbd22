// A document in a packed sequence is computed as if the others were not there.
#include "nn/positions.h"
#include "tests/support/gpt_run.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr std::int32_t separator = 3;
constexpr std::int64_t length = 16, boundary = 7;  // the second document begins at position 7: inside a chunk

/// A sequence of two documents; `first` changes the tokens of the first.
Batch packed(std::int32_t first) {
  Tensor tokens = Tensor::empty({1, length}, DType::i32);
  for (std::int64_t t = 0; t < length; ++t) {
    const auto index = static_cast<std::int32_t>(t);
    tokens.data<std::int32_t>()[t] = t < boundary ? 10 + (index * first) % 50 : 20 + index;
  }
  tokens.data<std::int32_t>()[boundary - 1] = separator;
  return token_batch(tokens, {}, {0});
}

/// How many positions change with the first document, before the boundary and from it on, on all ranks together.
struct Changed {
  int before = 0, after = 0;
};

Changed changed(const std::string& mesh_text, nn::ContextParallel method, bool documents) {
  std::mutex mutex;
  Changed total;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    GptConfig config = small_config();
    if (documents) config.document_separator = separator;
    Gpt model(nn::Build(mesh, DType::f32, 7, {.context = method}), config);
    const auto hidden = [&](std::int32_t first) {
      const NoGrad guard;
      return clone(model.hidden(0, {}, model.enter(packed(first))));  // [1, T/cp, D]
    };
    const Tensor one = hidden(1), other = hidden(2);
    const nn::PositionRuns runs = nn::attention_positions(*mesh, length);
    const Tensor positions = nn::position_ids(runs);
    for (std::int64_t i = 0; i < one.size(1); ++i) {
      if (same_bits(view::slice(one, 1, i, 1), view::slice(other, 1, i, 1))) continue;
      const std::scoped_lock lock(mutex);
      ++(positions.data<std::int32_t>()[i] < boundary ? total.before : total.after);
    }
  });
  return total;
}

}  // namespace

TEST_CASE("what one document says changes nothing in the next, and without the mask everything") {
  for (const nn::ContextParallel method : {nn::ContextParallel::ring, nn::ContextParallel::ulysses}) {
    for (const std::string& mesh : Meshes{"cp=1", "cp=2", "cp=4"}) {
      const Changed apart = changed(mesh, method, true), together = changed(mesh, method, false);
      CHECK_MESSAGE(apart.before == boundary - 1, mesh);  // position 0 sees only the first token, which is the same
      CHECK_MESSAGE(apart.after == 0, mesh);
      CHECK_MESSAGE(together.after == length - boundary, mesh);
    }
  }
}

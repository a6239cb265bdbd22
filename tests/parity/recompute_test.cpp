// Recomputed activations have the same bits as stored ones, and storing fewer takes less memory.
#include <cstring>
#include <map>

#include "parallel/pipeline/schedules.h"
#include "tests/parity/training.h"

using namespace trireme;
using namespace trireme::testing;

namespace recompute_test {
namespace {

struct Outcome {
  std::map<std::pair<int, std::string>, std::vector<float>> gradients;  // by rank and parameter
  std::int64_t peak = 0;                                                // bytes of activations, rank 0
};

Outcome run(GptOptions o, const std::string& recompute) {
  o.precision.recompute = recompute;
  Outcome outcome;
  std::mutex mutex;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    gradients_of_step(trainer, options, mesh);
    const std::scoped_lock lock(mutex);
    for (const ParameterPtr& p : trainer.model().parameters()) {
      const float* data = p->grad().data<float>();
      outcome.gradients[{mesh.rank(), p->name}].assign(data, data + p->grad().count());
    }
    if (mesh.rank() == 0) outcome.peak = MemoryPool::current()->use(MemoryCategory::activations).peak;
  });
  return outcome;
}

void check_same_bits(const GptOptions& o, const std::string& what) {
  const Outcome kept = run(o, "none");
  for (const char* recompute : {"selective", "full", "every:2", "every:3"}) {
    const Outcome again = run(o, recompute);
    CHECK(again.gradients.size() == kept.gradients.size());
    for (const auto& [key, gradient] : kept.gradients) {
      const std::vector<float>& other = again.gradients.at(key);
      CHECK_MESSAGE(std::memcmp(gradient.data(), other.data(), gradient.size() * sizeof(float)) == 0, what, " ",
                    recompute, " ", key.second, " on rank ", key.first);
    }
  }
}

}  // namespace

TEST_CASE("recomputation gives the same bits as none, with dropout, on any mesh and schedule") {
  for (const char* mesh : {"dp=1", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    for (const std::string& pipeline : pipeline::schedule_examples()) {
      GptOptions o = training_options(mesh, 2);
      o.mesh.pipeline = pipeline;
      o.model.config.dropout = 0.1;
      check_same_bits(o, fmt::format("{} {}", mesh, pipeline));
    }
  }
}

TEST_CASE("recomputation of a Llama gives the same bits, the stream whole or cut by positions") {
  for (const bool sequence : {false, true}) {
    GptOptions o = training_options("tp=4,pp=2", 2);
    o.mesh.sequence_parallel = sequence;
    o.model.config.activation = Activation::swiglu;
    o.model.config.norm = Norm::rms;
    o.model.config.positions = PositionEncoding::rope;
    o.model.config.tied = false;
    o.model.config.kv_heads = 2;
    o.model.config.dropout = 0.1;
    check_same_bits(o, fmt::format("llama, sequence parallel {}", sequence));
  }
}

TEST_CASE("sequence parallelism keeps fewer activations; selective recomputation then keeps no gathered stream") {
  GptOptions o = training_options("tp=4");
  o.model.config.layers = 8;
  const auto peaks = [&](bool sequence) {
    o.mesh.sequence_parallel = sequence;
    return std::pair{run(o, "none").peak, run(o, "selective").peak};
  };
  const auto [none, selective] = peaks(false);
  const auto [none_cut, selective_cut] = peaks(true);
  // Activations per token and block, in units of D: 4 + 12/tp, under sequence parallelism 2 + 2/tp + 12/tp. With
  // selective recomputation: 2 + 8/tp, under sequence parallelism 2/tp + 8/tp.
  CHECK(static_cast<double>(none_cut) < 0.9 * static_cast<double>(none));
  CHECK(static_cast<double>(selective_cut) < 0.8 * static_cast<double>(selective));
}

TEST_CASE("recomputation gives the same bits in bf16") {
  GptOptions o = training_options("tp=2", 2);
  o.precision.dtype = DType::bf16;
  check_same_bits(o, "bf16");
}

TEST_CASE("the more is computed again, the fewer bytes of activations are alive") {
  GptOptions o = training_options("dp=1");
  o.model.config.layers = 8;
  const std::int64_t none = run(o, "none").peak, selective = run(o, "selective").peak, half = run(o, "every:2").peak,
                     full = run(o, "full").peak;
  CHECK(static_cast<double>(selective) < 0.75 * static_cast<double>(none));
  CHECK(static_cast<double>(half) < 0.75 * static_cast<double>(none));
  CHECK(static_cast<double>(full) < 0.4 * static_cast<double>(none));
}

}  // namespace recompute_test

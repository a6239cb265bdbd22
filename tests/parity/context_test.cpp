// Context parallelism, ring and Ulysses: any mesh with cp equals one rank. A missing sum over cp is found.
#include "core/kernels.h"
#include "tests/parity/compare.h"
#include "tests/parity/faulty_group.h"

using namespace trireme;
using namespace trireme::testing;
using nn::ContextParallel;

namespace context_test {
namespace {

const Meshes meshes = {"cp=2", "cp=4", "dp=2,cp=2", "cp=2,tp=2", "pp=2,cp=2", "dp=1,tp=2,pp=2,cp=2"};

void check_both(const std::string& what, const std::string& mesh, const std::function<void(GptOptions&)>& change) {
  for (const ContextParallel method : {ContextParallel::ring, ContextParallel::ulysses}) {
    GptOptions o = training_options(mesh, 2);
    o.mesh.context_parallel = method;
    change(o);
    check_parity(o, fmt::format("{} on {}, {}", what, mesh, method == ContextParallel::ring ? "ring" : "ulysses"));
  }
}

}  // namespace

TEST_CASE("a sequence cut over cp equals one rank, with dropout by global position") {
  for (const std::string& mesh : meshes) check_both("gpt2", mesh, [](GptOptions& o) { o.model.config.dropout = 0.1; });
  check_parity(training_options("cp=8"), "more ranks than heads, by the ring");
}

TEST_CASE("documents in a sequence stay apart on every mesh") {
  const auto mask = [](GptOptions& o) { o.model.config.document_separator = 0; };
  for (const std::string& mesh : meshes) check_both("documents", mesh, mask);
  for (const std::string& mesh : Meshes{"dp=2", "tp=2", "pp=2"}) {
    GptOptions o = training_options(mesh, 4);
    mask(o);
    check_parity(o, "documents on " + mesh);
  }
}

TEST_CASE("rotary positions and grouped heads under cp, with sequence parallelism and without") {
  for (const std::string& mesh : Meshes{"cp=2", "dp=2,cp=2", "cp=2,tp=2", "pp=2,cp=2"}) {
    for (const bool sequence : {true, false}) {
      const bool split = mesh.find("tp") != std::string::npos;
      if (!sequence && !split) continue;
      check_both(fmt::format("llama, sequence parallel {}", sequence), mesh, [&](GptOptions& o) {
        make_llama(o.model.config);
        o.model.config.kv_heads = split ? 4 : 2;  // that Ulysses can split
        o.model.config.dropout = 0.1;
        o.mesh.sequence_parallel = sequence;
      });
    }
  }
  for (const std::string& mesh : Meshes{"cp=4", "cp=2,tp=2", "cp=2,tp=4"}) {  // fewer key-value heads than ranks
    GptOptions o = training_options(mesh);
    make_llama(o.model.config);
    o.model.config.kv_heads = 1;
    check_parity(o, "one key-value head on " + mesh);
  }
}

TEST_CASE("a forgotten sum over cp shows in every gradient") {
  const Fault forget = [](Tensor& x, const ProcessGroup&, const std::function<void()>& sum) {
    if (x.dtype() != DType::f32) sum();
  };
  const ParityReport report = compare_with_one_rank(
      training_options("cp=2"), [&](auto world) { return std::make_shared<FaultyGroup>(world, "data", forget); });
  for (const ParityReport::Row& row : report.rows) CHECK_MESSAGE(row.gradient > 0.1, row.name);
}

}  // namespace context_test

// Sequence parallelism and the parts of a Llama: any mesh with tp equals one rank. The comparison also finds the likely
// mistake here: missing sums over tp.
#include <cmath>

#include "core/kernels.h"
#include "tests/parity/compare.h"
#include "tests/parity/faulty_group.h"
#include "tests/support/largest.h"

using namespace trireme;
using namespace trireme::testing;

namespace llama_test {
namespace {

const Meshes meshes = {"tp=2", "tp=4", "tp=2,pp=2", "dp=2,tp=2,pp=2"};

/// On every mesh, with sequence parallelism and without.
void check_on_meshes(const std::string& what, const std::function<void(GptConfig&)>& change) {
  for (const std::string& mesh : meshes) {
    for (const bool sequence : {true, false}) {
      GptOptions o = training_options(mesh, 2);
      change(o.model.config);
      o.mesh.sequence_parallel = sequence;
      check_parity(o, fmt::format("{} on {}, sequence parallel {}", what, mesh, sequence));
    }
  }
}

/// The largest difference of a gradient: of parameters that every tp rank holds whole under sequence parallelism, and
/// of the others.
std::pair<double, double> worst_gradients(const ParityReport& report) {
  double held_whole = 0, others = 0;
  for (const ParityReport::Row& row : report.rows) {
    const bool whole = row.name.find("norm") != std::string::npos || row.name.starts_with("wpe") ||
                       row.name.ends_with("proj.bias") || row.name.ends_with("down.bias");
    double& worst = whole ? held_whole : others;
    keep_largest(worst, row.gradient);
  }
  return {held_whole, others};
}

/// Skips the sums over tp of f32 gradient buckets, which GradSync::finish() makes. Sums in layers have 3 dims, not 1.
const Fault forget_gradients = [](Tensor& x, const ProcessGroup&, const std::function<void()>& sum) {
  if (x.dims() != 1 || x.dtype() != DType::f32) sum();
};

std::shared_ptr<ProcessGroup> forgetful(std::shared_ptr<ProcessGroup> world) {
  return std::make_shared<FaultyGroup>(std::move(world), "tp", forget_gradients);
}

}  // namespace

TEST_CASE("the residual stream cut by positions equals one rank") {
  check_on_meshes("gpt2", [](GptConfig&) {});
}

TEST_CASE("dropout by global position equals one rank, cut or whole") {
  check_on_meshes("dropout", [](GptConfig& c) { c.dropout = 0.1; });
}

TEST_CASE("each of Llama's parts equals one rank") {
  check_on_meshes("untied", [](GptConfig& c) { c.tied = false; });
  check_on_meshes("rope", [](GptConfig& c) { c.positions = PositionEncoding::rope; });
  check_on_meshes("rms norm, swiglu, ragged", [](GptConfig& c) {
    c.norm = Norm::rms;
    c.activation = Activation::swiglu;
    c.ffn_width = 52;
  });
}

TEST_CASE("key-value heads shared by tp ranks equal one rank") {
  for (const std::int64_t kv_heads : {1, 2})
    check_on_meshes(fmt::format("{} kv heads", kv_heads), [&](GptConfig& c) { c.kv_heads = kv_heads; });
}

TEST_CASE("a whole Llama equals one rank, with shared heads, dropout and biases too") {
  check_on_meshes("llama", make_llama);
  for (const std::int64_t kv_heads : {1, 2}) {
    check_on_meshes(fmt::format("llama with {} kv heads", kv_heads), [&](GptConfig& c) {
      make_llama(c);
      c.bias = true;
      c.dropout = 0.1;
      c.kv_heads = kv_heads;
    });
  }
}

TEST_CASE("each part of later decoders equals one rank" * doctest::test_suite("thorough")) {
  check_on_meshes("biases of queries, keys and values", [](GptConfig& c) {
    make_llama(c);
    c.qkv_bias = true;
    c.kv_heads = 2;
  });
  check_on_meshes("wide heads, packed", [](GptConfig& c) { c.head_width = 20; });
  check_on_meshes("narrow heads that ranks share", [](GptConfig& c) {
    make_llama(c);
    c.head_width = 6;
    c.kv_heads = 1;
  });
  check_on_meshes("norms of queries and keys", [](GptConfig& c) { c.qk_norm = true; });
  for (const std::int64_t kv_heads : {1, 2})
    check_on_meshes(fmt::format("norms, {} kv heads, rope", kv_heads), [&](GptConfig& c) {
      make_llama(c);
      c.qk_norm = true;
      c.bias = true;
      c.kv_heads = kv_heads;
      c.rope_scaling = "llama3:4,8";
    });
  check_on_meshes("windows and caps", [](GptConfig& c) {
    c.window = 3;
    c.window_every = 2;
    c.attention_softcap = 2;
    c.logit_softcap = 3;
    c.activation = Activation::relu2;
  });
  check_on_meshes("Gemma", [](GptConfig& c) {
    make_llama(c);
    c.zero_centred_norms = true;
    c.post_norms = true;
    c.scaled_embeddings = true;
    c.query_pre_attn_scalar = 5;
    c.qk_norm = true;
    c.window = 5;
    c.full_every = 2;
    c.window_rope_base = 100;
    c.dropout = 0.1;
  });
  check_on_meshes("layer norms centred at zero, before and after", [](GptConfig& c) {
    c.zero_centred_norms = true;
    c.post_norms = true;
    c.scaled_embeddings = true;
  });
  check_on_meshes("restarted positions", [](GptConfig& c) {
    c.document_separator = 0;
    c.restart_positions = true;
    c.activation = Activation::geglu;
    c.norm_eps = 0.1;
  });
}

TEST_CASE("a forgotten sum over tp shows: of the norms of queries and keys") {
  GptOptions o = training_options("tp=2");
  o.model.config.qk_norm = true;
  o.mesh.sequence_parallel = false;
  for (const ParityReport::Row& row : compare_with_one_rank(o, forgetful).rows) {
    const bool shared = row.name.ends_with("q_norm.weight") || row.name.ends_with("k_norm.weight");
    CHECK_MESSAGE((shared ? row.gradient > 0.1 : row.gradient < parity_tolerance), row.name, " ", row.gradient);
  }
}

TEST_CASE("meshes of three and six tp ranks") {
  for (const std::string& mesh : Meshes{"tp=3", "tp=6", "dp=2,tp=3"}) {
    GptOptions o = training_options(mesh);
    o.model.config.heads = 6;
    o.model.config.context = 12;
    check_parity(o, mesh);
    make_llama(o.model.config);
    o.model.config.kv_heads = 3;
    o.model.config.ffn_width = 60;
    check_parity(o, mesh + " llama");
  }
}

TEST_CASE("a forgotten sum over tp shows: of norms, row-parallel biases and positions under sequence parallelism") {
  GptOptions o = training_options("tp=2");
  const auto [with, others] = worst_gradients(compare_with_one_rank(o, forgetful));
  CHECK(with > 0.1);
  CHECK(others < parity_tolerance);
  o.mesh.sequence_parallel = false;  // then there are no such sums
  CHECK(compare_with_one_rank(o, forgetful).largest() < parity_tolerance);
}

TEST_CASE("a NaN shows, in a loss alone and where one rank has one too") {
  const Fault nan_losses = [](Tensor& x, const ProcessGroup&, const std::function<void()>& sum) {
    sum();
    if (x.dtype() == DType::f64 && x.count() == 1) x.data<double>()[0] = NAN;
  };
  const ParityReport report = compare_with_one_rank(training_options("dp=2"), [&](std::shared_ptr<ProcessGroup> world) {
    return std::make_shared<FaultyGroup>(std::move(world), "d", nan_losses);
  });
  CHECK(report.loss == INFINITY);
  CHECK(report.largest() == INFINITY);

  ParityReport infinite;  // what a NaN is reported as
  infinite.gradient_norm = INFINITY;
  CHECK(rounding_ratio(infinite, infinite, DType::f16) == INFINITY);
  CHECK(largest_excess(infinite, {}, 1e-5) == INFINITY);
  CHECK(largest_excess(infinite, infinite, 1e-5) == 0);  // one rank leaves the finite numbers of f16 as well
}

TEST_CASE("a forgotten sum over tp shows: of key-value heads that ranks share") {
  GptOptions o = training_options("tp=4");
  o.model.config.kv_heads = 2;
  o.mesh.sequence_parallel = false;
  for (const ParityReport::Row& row : compare_with_one_rank(o, forgetful).rows) {
    const bool shared = row.name.find("attn.k.") != std::string::npos || row.name.find("attn.v.") != std::string::npos;
    CHECK_MESSAGE((shared ? row.gradient > 0.1 : row.gradient < parity_tolerance), row.name, " ", row.gradient);
  }
}

}  // namespace llama_test

// Any mesh equals one rank: loss, every gradient before clipping, the gradient norm, and every weight after SGD and
// AdamW steps with clipping. The comparison itself is tested too: sums that are wrong in known ways must show in the
// right column.
#include <algorithm>

#include "core/kernels.h"
#include "tests/parity/compare.h"
#include "tests/parity/faulty_group.h"
#include "tests/support/largest.h"

using namespace trireme;
using namespace trireme::testing;

namespace parity_test {
namespace {

constexpr double tolerance = parity_tolerance;

GptOptions options(const std::string& mesh, std::int64_t micro_batches = 1) {
  return training_options(mesh, micro_batches);
}

ParityReport compare(
    const GptOptions& o, const WrapWorld& wrap = [](auto world) { return world; }) {
  return compare_with_one_rank(o, wrap);
}

void check_equal(const GptOptions& o, const std::string& what) {
  const ParityReport report = compare(o);
  CHECK_MESSAGE(report.largest() <= tolerance, what, "\n", parity_table(report, 5));
  CHECK(report.rows.size() == (o.model.config.bias ? 52 : 27));
}

double worst_gradient(const ParityReport& report) {
  double worst = 0;
  for (const ParityReport::Row& row : report.rows) keep_largest(worst, row.gradient);
  return worst;
}

const ParityReport::Row& row_of(const ParityReport& report, const std::string& name) {
  const auto found =
      std::find_if(report.rows.begin(), report.rows.end(), [&](const auto& row) { return row.name == name; });
  REQUIRE(found != report.rows.end());
  return *found;
}

}  // namespace

TEST_CASE("every optimizer, and an average of the weights: equal to one rank, or explained by rounding" *
          doctest::test_suite("thorough")) {
  for (const std::string optimizer : {"lion", "muon", "adafactor", "adamw"}) {
    GptOptions o = options("dp=2,tp=2");
    o.mesh.zero = 1;
    o.optimizer.optimizer = optimizer;
    if (optimizer == "adamw") o.optimizer.ema_decay = 0.5;
    const ParityReport report = compare(o);
    CHECK(report.second == (optimizer == "adamw" ? "ema" : optimizer));
    CHECK(worst_gradient(report) < tolerance);
    resolve(o, 0);
    const auto reference = parity_reference(o, gpt_parity(o.model.config));
    const double excess = largest_excess(report, rounding_reach(o, reference), tolerance);
    CHECK_MESSAGE(excess <= 1, optimizer, "\n", parity_table(report, 5));
    if (optimizer == "adamw") CHECK(report.largest() <= tolerance);
  }
}

TEST_CASE("meshes of 2, 3, 4, 6 and 8 ranks equal one rank") {
  for (const std::string& mesh :
       Meshes{"dp=1", "dp=2", "dp=4", "dp=8", "tp=2", "tp=4", "pp=2", "pp=3", "pp=4", "dp=2,tp=2", "dp=2,pp=2",
              "tp=2,pp=2", "dp=2,tp=2,pp=2", "dp=2,pp=4", "tp=4,pp=2"}) {
    check_equal(options(mesh), mesh);
  }
  for (const std::string& mesh : Meshes{"tp=3", "tp=6", "dp=2,tp=3"}) {
    GptOptions o = options(mesh);
    o.model.config.heads = 6;
    o.mesh.sequence_parallel = false;  // the context of 16 does not divide
    check_equal(o, mesh);
  }
}

TEST_CASE("pipelines with several micro-batches, under both schedules") {
  for (const std::string& mesh : Meshes{"pp=2", "pp=4", "dp=2,tp=2,pp=2"}) {
    for (const std::string& schedule : {std::string("gpipe"), std::string("1f1b")}) {
      GptOptions o = options(mesh, 4);
      o.mesh.pipeline = schedule;
      check_equal(o, mesh + " " + schedule);
    }
  }
}

TEST_CASE("a batch cut into 1, 2, 4 or 8 micro-batches equals the whole batch at once") {
  for (const std::string& mesh : Meshes{"dp=1", "tp=2", "pp=2"}) {
    for (const std::int64_t micro_batches : {1, 2, 4, 8}) check_equal(options(mesh, micro_batches), mesh);
  }
  for (const std::int64_t micro_batches : {1, 2, 4}) check_equal(options("dp=2", micro_batches), "dp=2");
}

TEST_CASE("with dropout, without biases, and with the tanh form of gelu") {
  for (const std::string& mesh : Meshes{"dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    GptOptions o = options(mesh, 2);
    o.model.config.dropout = 0.1;
    check_equal(o, mesh + " with dropout");
    o = options(mesh, 2);
    o.model.config.bias = false;
    o.model.config.activation = Activation::gelu_tanh;
    check_equal(o, mesh + " without biases");
  }
}

TEST_CASE("bf16 equals one rank to the rounding of its activations") {
  // An activation's gradient has about 8 roundings of 2^-9 in each of 4 blocks, forward and backward. They add up to
  // sqrt(64) roundings if they are independent; the factor of 2 is for the worst tensor. A wrong sum is off by half of
  // its value or more.
  constexpr double rounding = 2 * 8 * 0x1p-9;
  for (const std::string& mesh : Meshes{"tp=2", "tp=4", "dp=2,tp=2,pp=2", "dp=2", "pp=2"}) {
    GptOptions o = options(mesh, 2);
    o.precision.dtype = DType::bf16;
    const ParityReport report = compare(o);
    CHECK_MESSAGE(report.largest() <= rounding, mesh, "\n", parity_table(report, 5));
  }
}

TEST_CASE("gradients of bf16 weights are summed in f32, over micro-batches and over dp") {
  // Without tp every sample is computed in the same way, so in the first step only sums over samples differ. The
  // gradients of biases and positions are rounded to bf16 once per micro-batch, in the backward of their broadcast.
  for (const std::string& mesh : Meshes{"dp=1", "dp=2", "dp=8", "pp=2", "dp=2,pp=4"}) {
    GptOptions o = options(mesh);
    o.batch.micro_batches.reset();
    o.batch.micro_batch = 1;
    o.precision.dtype = DType::bf16;
    for (const ParityReport::Row& row : compare(o).rows) {
      const bool broadcast =
          row.name == "wpe.weight" || (row.name.ends_with(".bias") && row.name.find("norm") == std::string::npos);
      CHECK_MESSAGE(row.gradient <= (broadcast ? 2 * 0x1p-9 : tolerance), mesh, ": ", row.name);
    }
  }
}

TEST_CASE("the table lists the worst parameters, or all") {
  const ParityReport report = compare(options("tp=2"));
  const std::string table = parity_table(report, 2);
  CHECK(std::count(table.begin(), table.end(), '\n') == 5);  // heading, two rows, loss, norm
  CHECK(parity_table(report, -1).find("blocks.3.mlp.down.bias") != std::string::npos);
}

TEST_CASE("a mean over dp where a sum is due shows in every gradient") {
  const Fault mean = [](Tensor& x, const ProcessGroup& group, const std::function<void()>& sum) {
    sum();
    kernels(x.device()).axpby(0.0, x, 1.0 / group.size(), x);
  };
  const ParityReport report =
      compare(options("dp=2"), [&](auto world) { return std::make_shared<FaultyGroup>(world, "dp", mean); });
  for (const ParityReport::Row& row : report.rows)
    CHECK_MESSAGE(row.gradient == doctest::Approx(0.5).epsilon(0.01), row.name);
  CHECK(report.gradient_norm > 0.4);
}

TEST_CASE("a forgotten sum shows: over dp, over tp, of the tied embedding, of the norm over stages") {
  const auto forget_in = [](const std::string& where, DType dtype) {
    const Fault forget = [dtype](Tensor& x, const ProcessGroup&, const std::function<void()>& sum) {
      if (x.dtype() != dtype) sum();
    };
    return [=](std::shared_ptr<ProcessGroup> world) {
      return std::make_shared<FaultyGroup>(std::move(world), where, forget);
    };
  };
  CHECK(worst_gradient(compare(options("dp=2"), forget_in("dp", DType::f32))) > 0.1);
  CHECK(worst_gradient(compare(options("tp=2"), forget_in("tp", DType::f32))) > 0.1);
  CHECK(worst_gradient(compare(options("pp=2"), forget_in("nowhere", DType::f32))) < tolerance);

  const ParityReport tied = compare(options("pp=2"), forget_in("first and last stage", DType::f32));
  CHECK(row_of(tied, "wte.weight").gradient > 0.1);
  CHECK(row_of(tied, "wpe.weight").gradient < tolerance);

  const ParityReport norm = compare(options("pp=2"), forget_in("pp", DType::i64));
  CHECK(norm.gradient_norm > 0.01);
  CHECK(worst_gradient(norm) < tolerance);
  CHECK(row_of(norm, "blocks.0.mlp.up.weight").weight_sgd > tolerance);  // clipped by a wrong norm
}

TEST_CASE("a doubled sum shows as twice the gradient, which AdamW's weights would hide") {
  const Fault twice = [](Tensor& x, const ProcessGroup&, const std::function<void()>& sum) {
    sum();
    kernels(x.device()).axpby(0.0, x, 2.0, x);
  };
  const ParityReport report =
      compare(options("dp=2"), [&](auto world) { return std::make_shared<FaultyGroup>(world, "dp", twice); });
  CHECK(row_of(report, "blocks.1.mlp.up.weight").gradient == doctest::Approx(1.0).epsilon(0.01));
}

}  // namespace parity_test

// ZeRO with everything else: any stage on any mesh equals one rank, under every schedule, with accumulation,
// recomputation, f16 and --verify.
#include <cmath>

#include "parallel/comm/verifying_group.h"
#include "tests/parity/compare.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace zero_parity_test {
namespace {

GptOptions with_zero(const std::string& mesh, std::int64_t stage, std::int64_t micro_batches = 1) {
  GptOptions o = training_options(mesh, micro_batches);
  o.mesh.zero = stage;
  return o;
}

void check_equal(const GptOptions& o, const std::string& what, bool verify = false) {
  const ParityReport report = compare_with_one_rank(o, [&](auto world) { return verify ? verifying(world) : world; });
  CHECK_MESSAGE(report.largest() <= parity_tolerance, what, "\n", parity_table(report, 5));
}

}  // namespace

TEST_CASE("ZeRO 1 to 3 equal one rank on meshes of 2, 3, 4 and 8 ranks, with 1, 2 and 4 micro-batches" *
          doctest::test_suite("thorough")) {
  for (const std::int64_t stage : {1, 2, 3}) {
    for (const char* mesh : {"dp=2", "dp=2,tp=2", "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
      for (const std::int64_t micro_batches : {1, 2, 4})
        check_equal(with_zero(mesh, stage, micro_batches), fmt::format("{} zero {}", mesh, stage));
    }
    GptOptions uneven = with_zero("dp=3", stage, 2);
    uneven.batch.global_batch = 12;
    check_equal(uneven, fmt::format("dp=3 zero {}", stage));
    check_equal(with_zero("tp=2", stage), fmt::format("tp=2 zero {}: nothing to share", stage));
  }
}

TEST_CASE("ZeRO 1 to 3 under gpipe, with recomputed blocks, other prefetch depths, resident weights, hybrid shards" *
          doctest::test_suite("thorough")) {
  for (const std::int64_t stage : {1, 2, 3}) {
    GptOptions o = with_zero("dp=2,pp=2", stage, 4);
    o.mesh.pipeline = "gpipe";
    check_equal(o, fmt::format("gpipe zero {}", stage));
    o = with_zero("dp=4", stage, 2);
    o.mesh.dp_shard = 2;
    check_equal(o, fmt::format("--dp-shard 2 zero {}", stage));
    for (const char* recompute : {"selective", "full", "every:2"}) {
      o = with_zero("dp=2", stage, 2);
      o.precision.recompute = recompute;
      check_equal(o, fmt::format("--recompute {} zero {}", recompute, stage));
    }
  }
  for (const std::int64_t prefetch : {0, 2, 9}) {
    GptOptions o = with_zero("dp=2,pp=2", 3, 2);
    o.mesh.zero_prefetch = prefetch;
    check_equal(o, fmt::format("--zero-prefetch {}", prefetch));
  }
  GptOptions o = with_zero("dp=2", 3, 2);
  o.mesh.zero_resident = 2000;
  check_equal(o, "--zero-resident 2000");
}

TEST_CASE("a verified run with ZeRO finds nothing") {
  for (const std::int64_t stage : {1, 2, 3}) check_equal(with_zero("dp=2,tp=2,pp=2", stage, 2), "verified", true);
}

TEST_CASE("trap 20: infinity in one rank's shard: all ranks skip; weights, moments and step count stay") {
  for (const std::int64_t stage : {1, 2, 3}) {
    for (int bad_rank = 0; bad_rank < 4; ++bad_rank) {
      GptOptions o = with_zero("dp=2,pp=2", stage, 2);
      o.mesh.zero_resident = stage == 3 ? std::optional<std::int64_t>(0) : std::nullopt;
      o.precision.dtype = DType::f16;
      o.precision.scaling.hysteresis = 1;
      on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& ranks) {
        const auto everything = [&] {
          std::vector<Tensor> all;
          for (const StateTensor& weight : trainer.optimizer().weights()) all.push_back(clone(weight.value));
          for (const StateTensor& state : trainer.optimizer().state()) all.push_back(clone(state.value));
          return all;
        };
        gradients_of_step(trainer, options, ranks);
        REQUIRE(trainer.update(1e-3, trainer.gradient_norm()));
        const std::vector<Tensor> before = everything();
        gradients_of_step(trainer, options, ranks, 8);
        if (ranks.rank() == bad_rank) {
          for (const StateTensor& piece : trainer.gradient_pieces()) {
            if (!piece.parameter->copy_of_earlier_stage && piece.value.count() > 0)
              piece.value.data<float>()[0] = INFINITY;
          }
        }
        CHECK_FALSE(trainer.update(1e-3, trainer.gradient_norm()));
        CHECK(trainer.optimizer().steps() == 1);
        const std::vector<Tensor> after = everything();
        REQUIRE(after.size() == before.size());
        for (std::size_t i = 0; i < after.size(); ++i) CHECK(same_bits(after[i], before[i]));
        gradients_of_step(trainer, options, ranks, 8);  // the next step is made again
        CHECK(trainer.update(1e-3, trainer.gradient_norm()));
      });
    }
  }
}

TEST_CASE("ZeRO 1 to 3 under interleaved and zero-bubble schedules" * doctest::test_suite("thorough")) {
  for (const std::int64_t stage : {1, 2, 3}) {
    for (const char* pipeline : {"interleaved:2", "zero-bubble"}) {
      for (const char* mesh : {"dp=2", "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
        for (const std::int64_t micro_batches : {1, 2, 4}) {
          GptOptions o = with_zero(mesh, stage, micro_batches);
          o.mesh.pipeline = pipeline;
          check_equal(o, fmt::format("{} {} zero {} micro-batches {}", mesh, pipeline, stage, micro_batches));
        }
      }
    }
  }
}

}  // namespace zero_parity_test

// --reduction fast: sums in any order leave all copies of a parameter with the same bits, and the numbers of one rank.
#include <atomic>

#include "parallel/comm/verifying_group.h"
#include "tests/parity/compare.h"
#include "tests/support/any_order_group.h"

using namespace trireme;
using namespace trireme::testing;

namespace sum_order_test {
namespace {

GptOptions options_of(const std::string& mesh, std::int64_t zero, bool sequence_parallel) {
  GptOptions o = training_options(mesh, 2);
  o.model.config = {.layers = 2, .heads = 6, .width = 48, .context = 12, .vocab = 65};
  o.batch.global_batch = 12;
  o.mesh.zero = zero;
  o.mesh.sequence_parallel = sequence_parallel;
  return o;
}

/// Compares the numbers with those of one rank, and, after each of three steps, all copies with each other bit by bit.
void check_copies(GptOptions o) {
  CAPTURE(o.mesh.axes);
  CAPTURE(o.mesh.zero);
  std::atomic<int> sums{0};
  const auto wrap = [&](std::shared_ptr<ProcessGroup> world) {
    return verifying(std::make_shared<AnyOrderGroup>(std::move(world), sums));
  };
  const ParityReport report = compare_with_one_rank(o, wrap);
  CHECK_MESSAGE(report.largest() <= parity_tolerance, parity_table(report, 5));
  CHECK(sums > 0);
  resolve(o, 0);
  CHECK_NOTHROW(run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                                 [&](const std::shared_ptr<ProcessGroup>& world) {
                                   const auto mesh = std::make_shared<const DeviceMesh>(wrap(world), o.mesh.shape);
                                   Trainer trainer(make_gpt(o, o.model.config, mesh), o);
                                   for (int step = 0; step < 3; ++step) {
                                     gradients_of_step(trainer, o, *mesh, 12 * step);
                                     trainer.update(1e-3, trainer.gradient_norm());  // compares the copies
                                   }
                                 }));
}

}  // namespace

TEST_CASE("sums in any order keep copies equal: dp and tp of three ranks, with every stage of ZeRO") {
  for (const std::int64_t zero : {0, 1, 2, 3})
    for (const bool sequence_parallel : {false, true}) check_copies(options_of("dp=3,tp=3", zero, sequence_parallel));
}

TEST_CASE("sums in any order keep copies equal: hybrid shards, stages, context, shared heads and experts") {
  GptOptions o = options_of("dp=6,tp=2", 2, true);
  o.mesh.dp_shard = 2;
  check_copies(o);
  o.mesh.dp_shard = 3;
  o.mesh.zero = 3;
  o.mesh.sequence_parallel = false;
  check_copies(o);
  o = options_of("dp=3,tp=2,pp=2", 1, false);
  check_copies(o);
  o = options_of("dp=1,tp=2,cp=3", 0, true);
  check_copies(o);
  o = options_of("dp=3,tp=3", 0, true);
  o.model.config.kv_heads = 1;
  check_copies(o);
  o = options_of("dp=6,tp=2,ep=2", 2, true);
  o.model.config.experts = {.count = 4, .top_k = 2};
  check_copies(o);
}

}  // namespace sum_order_test

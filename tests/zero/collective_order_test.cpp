// The order of collectives depends only on the program, not on timing. Every rank records its collectives while
// operations end early or late at random. All ranks of a group must call the same sequence, and the sequence of a rank
// over all of its groups must not depend on the delays. Otherwise ranks deadlock under --verify, and may deadlock under
// NCCL.
#include <map>

#include "parallel/comm/collective.h"
#include "parallel/comm/verifying_group.h"
#include "parallel/pipeline/schedules.h"
#include "tests/parity/training.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// What one rank called, in order: "group: operation".
using Calls = std::vector<std::string>;

/// An operation whose done() returns false `refusals` times, then waits and returns true. So the test decides when a
/// rank sees that an operation has ended, not the machine.
class DelayedWork : public Work::State {
 public:
  DelayedWork(Work inner, int refusals) : inner_(std::move(inner)), refusals_(refusals) {}
  void wait() override { inner_.wait(); }
  bool done() override {
    if (refusals_-- > 0) return false;
    inner_.wait();
    return true;
  }

 private:
  Work inner_;
  int refusals_;
};

/// Passes everything on to `inner`, records collectives in `calls`, and delays done() of every operation.
class RecordingGroup : public comm::CollectiveGroup {
 public:
  RecordingGroup(std::shared_ptr<ProcessGroup> inner, std::shared_ptr<Calls> calls,
                 std::shared_ptr<std::uint64_t> draws)
      : CollectiveGroup(inner->name(), inner->rank(), inner->members()),
        inner_(std::move(inner)),
        calls_(std::move(calls)),
        draws_(std::move(draws)) {}

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return std::make_shared<RecordingGroup>(inner_->subgroup(world_ranks, name), calls_, draws_);
  }
  Work send(Tensor x, int to, int tag) override { return delayed(inner_->send(std::move(x), to, tag)); }
  Work send_final(Tensor x, int to, int tag) override { return delayed(inner_->send_final(std::move(x), to, tag)); }
  Work recv(Tensor y, int from, int tag) override { return delayed(inner_->recv(std::move(y), from, tag)); }

 protected:
  Work submit(comm::Collective c, Launch launch) override {
    calls_->push_back(fmt::format("{}: {}", name(), to_string(c.signature(size()))));
    return delayed(comm::dispatch(*inner_, c, launch));
  }

 private:
  Work delayed(Work work) {
    const auto refusals = static_cast<int>(random_word(3, 4, (*draws_)++) % 6);
    return Work(std::make_shared<DelayedWork>(std::move(work), refusals));
  }

  std::shared_ptr<ProcessGroup> inner_;
  std::shared_ptr<Calls> calls_;
  std::shared_ptr<std::uint64_t> draws_;  // of this rank
};

GptOptions options_of(const std::string& mesh, std::int64_t zero, std::int64_t dp_shard, std::int64_t micro_batches) {
  GptOptions o = training_options(mesh, micro_batches);
  o.model.config = {.layers = 4, .heads = 2, .width = 16, .context = 8, .vocab = 65};
  o.mesh.zero = zero;
  if (zero == 3) o.mesh.zero_resident = 100;
  if (dp_shard > 0) o.mesh.dp_shard = dp_shard;
  o.batch.global_batch = 12;
  return o;
}

/// Runs two steps on every rank. `seed` decides the delays, which are different on each rank.
std::vector<Calls> calls_of(GptOptions o, std::uint64_t seed) {
  resolve(o, 0);
  validate(o);
  set_threads(1);
  std::vector<std::shared_ptr<Calls>> calls(static_cast<std::size_t>(o.mesh.shape.ranks()));
  for (auto& of_rank : calls) of_rank = std::make_shared<Calls>();
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     const auto rank = static_cast<std::size_t>(world->rank());
                     const auto draws = std::make_shared<std::uint64_t>((seed << 40U) + (rank << 32U));
                     const auto recorded = std::make_shared<RecordingGroup>(world, calls[rank], draws);
                     const auto mesh = std::make_shared<const DeviceMesh>(recorded, o.mesh.shape);
                     Trainer trainer(make_gpt(o, o.model.config, mesh), o, 512);  // several buckets in each unit
                     for (int step = 0; step < 2; ++step) {
                       gradients_of_step(trainer, o, *mesh, 12 * step);
                       trainer.update(1e-3, trainer.gradient_norm());
                     }
                   });
  std::vector<Calls> result;
  for (const auto& of_rank : calls) result.push_back(*of_rank);
  return result;
}

/// One rank's calls by group, in order.
std::map<std::string, Calls> by_group(const Calls& calls) {
  std::map<std::string, Calls> groups;
  for (const std::string& call : calls) groups[call.substr(0, call.find(": "))].push_back(call);
  return groups;
}

void check_order(const GptOptions& o, const std::string& what) {
  const std::vector<Calls> first = calls_of(o, 1);
  std::map<std::string, Calls> of_groups;
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    CHECK(first[rank].size() > 10);
    for (const auto& [group, calls] : by_group(first[rank])) {
      const auto [found, is_new] = of_groups.emplace(group, calls);
      CHECK_MESSAGE((is_new || found->second == calls), what, " rank ", rank, " in ", group);
    }
  }
  for (const std::uint64_t seed : {2, 3}) {
    const std::vector<Calls> other = calls_of(o, seed);
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
      const auto [a, b] = std::mismatch(first[rank].begin(), first[rank].end(), other[rank].begin(), other[rank].end());
      const bool same = a == first[rank].end() && b == other[rank].end();
      CHECK_MESSAGE(same, what, " rank ", rank, " call ", a - first[rank].begin(), ": ",
                    a == first[rank].end() ? "nothing" : *a, " or ", b == other[rank].end() ? "nothing" : *b);
    }
  }
}

}  // namespace

TEST_CASE("the order of collectives does not depend on when operations end: ZeRO 0 to 3, hybrid shards, accumulation") {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    for (const std::int64_t dp_shard : {0, 1, 2}) {
      if (zero == 0 && dp_shard > 0) continue;
      if (sanitized && (zero != 2 || dp_shard == 1)) continue;
      for (const std::int64_t micro_batches : {1, 3})
        check_order(options_of("dp=4", zero, dp_shard, micro_batches),
                    fmt::format("zero {} shards over {} micro-batches {}", zero, dp_shard, micro_batches));
    }
  }
}

TEST_CASE("the order of collectives does not depend on when operations end: every schedule" *
          doctest::test_suite("thorough")) {
  for (const std::string& pipeline : pipeline::schedule_examples()) {
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      for (const std::int64_t dp_shard : {0, 1}) {
        if (zero == 0 && dp_shard > 0) continue;
        if (sanitized && (zero != 2 || dp_shard == 0)) continue;
        for (const std::int64_t micro_batches : {1, 3}) {
          GptOptions o = options_of("dp=2,pp=2", zero, dp_shard, micro_batches);
          o.mesh.pipeline = pipeline;
          check_order(
              o, fmt::format("{} zero {} shards over {} micro-batches {}", pipeline, zero, dp_shard, micro_batches));
        }
      }
    }
  }
}

TEST_CASE("the order of collectives does not depend on when operations end: experts, tp, cp, recomputation" *
          doctest::test_suite("thorough")) {
  for (const char* mesh : {"dp=4,ep=2", "dp=2,tp=2", "dp=2,cp=2"}) {
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      if (sanitized && zero != 3) continue;
      GptOptions o = options_of(mesh, zero, zero == 0 ? 0 : 2, 3);
      if (std::string_view(mesh) == "dp=4,ep=2") {
        o.model.config.experts.count = 4;
        o.model.config.experts.top_k = 2;
      }
      o.precision.recompute = "every:2";
      check_order(o, fmt::format("{} zero {}", mesh, zero));
    }
  }
}

TEST_CASE("a verified run with hybrid shards ends: its ranks agree on the order across groups") {
  for (const std::int64_t zero : {1, 2, 3}) {
    GptOptions o = options_of("dp=4", zero, 2, 3);
    resolve(o, 0);
    validate(o);
    set_threads(1);
    run_thread_ranks(4, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
      const auto mesh = std::make_shared<const DeviceMesh>(verifying(world), o.mesh.shape);
      Trainer trainer(make_gpt(o, o.model.config, mesh), o, 512);
      for (int step = 0; step < 3; ++step) {
        gradients_of_step(trainer, o, *mesh, 12 * step);
        CHECK(trainer.update(1e-3, trainer.gradient_norm()));
      }
    });
  }
}

// Draws cases of each kind, and makes them smaller. Read next: check/explore/space.h, check/explore/check_cases.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "check/explore/kinds.h"
#include "check/explore/neutral.h"
#include "check/explore/sizes.h"
#include "check/explore/space.h"
#include "core/error.h"
#include "parallel/pipeline/schedules.h"
#include "train/options/options.h"

namespace trireme::explore {
namespace {

const Space& space_of(CaseKind kind) {
  static const Space gradients(parity_program()), runs(train_program());
  return kind == CaseKind::gradients ? gradients : runs;
}

std::string objection(CaseKind kind, Arguments flags) {
  for (const char* flag : {"fault", "device"}) flags.erase(flag);  // not a flag of the program; not available here
  if (flags.contains("ranks")) {                                   // processes would need mpirun
    flags["ranks"] = "auto";
    flags.erase("reduction");
  }
  for (const char* flag : {"data", "profile"}) flags.erase(flag);
  return space_of(kind).program().objection(flags);
}

/// Sometimes ranks are processes, which take a second to start, or run on an emulated GPU, which is slow. Both are
/// rare. Only processes can let MPI add.
void choose_machine(Arguments& flags, RandomChoices& random) {
  if (ranks_of(flags) <= 4 && random.chance(0.02)) {
    flags["ranks"] = "mpi";
    if (random.chance(0.5)) flags["reduction"] = "fast";
  }
  if (ranks_of(flags) > 1 && random.chance(0.1)) {
    flags["collectives"] = random.pick(comm::algorithms()).first;
    if (!objection(CaseKind::run, flags).empty()) flags["collectives"] = "ring";  // which serves any number of ranks
  }
  if (ranks_of(flags) <= 4 && random.chance(0.005)) {
    flags["device"] = "cuda";
    for (const char* flag : {"gemm", "attention"}) flags.erase(flag);  // drawn for the CPU
  }
}

Arguments draw_run(RandomChoices& random, int least_steps, int most_steps, const std::set<std::string>& excluded = {}) {
  Arguments flags = space_of(CaseKind::run).draw(random, excluded);
  flags["steps"] = std::to_string(random.between(least_steps, most_steps));
  const bool masked = flags.contains("document-mask") && flags["document-mask"] == "on";
  const bool packed = flags.contains("packing") && flags["packing"] != "cut";
  if ((masked || packed) && !flags.contains("document-separator"))
    flags["document-separator"] = "0";  // the character tokenizer has no end-of-text token
  return flags;
}

/// Another mesh for the same model and batch.
Arguments draw_other_mesh(const Arguments& flags, RandomChoices& random) {
  const std::int64_t batch = global_batch(flags);
  for (int tries = 0; tries < 200; ++tries) {
    std::map<std::string, int> axes;
    for (const char* axis : {"dp", "tp", "pp", "cp"}) axes[axis] = random.pick(std::vector<int>{1, 1, 1, 2, 2, 3, 4});
    if (flags.contains("experts")) axes["ep"] = random.pick(std::vector<int>{1, 2, axes["dp"] * axes["cp"]});
    std::vector<std::int64_t> micro;
    for (std::int64_t m = 1; m * axes["dp"] <= batch; ++m)
      if (batch % (m * axes["dp"]) == 0) micro.push_back(m);
    if (micro.empty()) continue;
    const Arguments change = {{"mesh", axes_text(axes)},
                              {"micro-batch", std::to_string(random.pick(micro))},
                              {"global-batch", std::to_string(batch)},
                              {"stage-layers", "auto"},
                              {"pipeline", random.pick(pipeline::schedule_examples())}};
    Arguments more = change;
    if (!flags.contains("dp-shard") && !flags.contains("zero-prefetch") && !flags.contains("zero-resident") &&
        !flags.contains("check-state"))
      more["zero"] = random.pick(std::vector<std::string>{"0", "1", "2", "3"});
    for (const Arguments& candidate : {more, change})
      if (ranks_of(candidate) <= 8 && objection(CaseKind::resume, with(flags, candidate)).empty()) return candidate;
  }
  return {};
}

Case with_neutral_changes(Case c, RandomChoices& random) {
  c.change = draw_neutral_changes(c.flags, random, [&](const Arguments& changes) {
    return is_possible({c.kind, c.flags, changes});
  });
  return c;
}

Case draw_resume(RandomChoices& random) {
  Case c{CaseKind::resume, draw_run(random, 3, 6), {}};
  c.flags["checkpoint-every"] = std::to_string(random.between(1, std::atoi(c.flags["steps"].c_str()) - 1));
  // With --global-batch, the case may change the mesh: other meshes may split the batch differently.
  const bool global = random.chance(0.7);
  if (!global) return with_neutral_changes(std::move(c), random);
  const std::int64_t batch = global_batch(c.flags);
  c.flags["global-batch"] = std::to_string(batch);
  c.flags.erase("micro-batches");
  c.change = draw_other_mesh(c.flags, random);
  return c;
}

Case draw_faults(RandomChoices& random) {
  const bool nan = random.chance(0.6);
  Case c{CaseKind::faults, {}, {}};
  if (nan) {
    c.flags = draw_run(random, 3, 5, {"dtype", "loss-scale", "loss-scale-window", "loss-scale-hysteresis"});
    c.flags["fault"] = fmt::format("nan@step={},rank={}", random.between(1, 3),
                                   random.below(static_cast<std::size_t>(ranks_of(c.flags))));
    return c;
  }
  c.flags = draw_run(random, 10, 10, {"dtype", "loss-scale", "loss-scale-window", "loss-scale-hysteresis"});
  for (const auto& [flag, value] :
       Arguments{{"spike-threshold", "20"}, {"spike-window", "5"}, {"checkpoint-every", "2"}})
    c.flags[flag] = value;
  c.flags["fault"] = fmt::format("spike@step={},factor=1000", random.between(7, 9));
  return c;
}

bool has_zero(const Arguments& flags) { return flags.contains("zero") && flags.at("zero") != "0"; }

/// Whether all ranks of a stage hold the same weights, but for those of tp.
bool has_copies(const Arguments& flags) {
  std::map<std::string, int> axes = parse_axes(flags.at("mesh"));
  return std::max(1, axes["dp"]) * std::max(1, axes["cp"]) > 1;
}

/// A flipped bit of a weight or its master on one rank, which a comparison of replicas or a checksum can find; or a
/// collective that only one rank calls.
Case draw_verify(RandomChoices& random) {
  while (true) {
    Case c{CaseKind::verify, draw_run(random, 3, 3), {}};
    std::map<std::string, int> axes = parse_axes(c.flags["mesh"]);
    const auto size = [&](const char* axis) { return std::max(1, axes[axis]); };
    const bool zero = has_zero(c.flags);
    if (ranks_of(c.flags) == 1) continue;
    std::size_t rank = random.below(static_cast<std::size_t>(ranks_of(c.flags)));
    if (random.chance(0.3)) {
      c.flags["verify"] = "on";
      c.flags["fault"] = fmt::format("desync@step=2,rank={}", rank);
      c.flags["timeout"] = "5";  // seconds that a group may wait for the other ranks
      return c;
    }
    if (!has_copies(c.flags) && !zero) continue;
    // With ZeRO, a rank's copy of another rank's shard is overwritten in every step. The flipped element is the first
    // one, so the flip must happen on the first rank of a stage.
    if (zero) rank -= rank % static_cast<std::size_t>(size("dp") * size("cp") * size("tp"));
    if (zero || random.chance(0.5)) {
      c.flags["check-replicas"] = "1";
    } else {
      c.flags["verify"] = "on";
    }
    // The update may round low bits away before they are compared; such a flip does no harm.
    c.flags["fault"] = fmt::format("flip@step=2,rank={},bit={}", rank, random.between(12, 22));
    return c;
  }
}

}  // namespace

bool can_find_fault(const Arguments& flags) {
  const auto given = [&](const char* flag, const char* value) {
    return flags.contains(flag) && flags.at(flag) == value;
  };
  if (ranks_of(flags) == 1) return false;
  if (flags.contains("fault") && flags.at("fault").starts_with("desync")) return given("verify", "on");
  if (has_zero(flags)) return given("check-replicas", "1");
  return has_copies(flags) && (given("check-replicas", "1") || given("verify", "on"));
}

Case draw_case(CaseKind kind, RandomChoices& random) {
  Case c{kind, {}, {}};
  switch (kind) {
    case CaseKind::gradients:
      c.flags = space_of(kind).draw(random);
      choose_machine(c.flags, random);
      break;
    case CaseKind::run:
      c.flags = draw_run(random, 2, 5);
      choose_machine(c.flags, random);
      break;
    case CaseKind::resume:
      c = draw_resume(random);
      break;
    case CaseKind::bits:
      c.flags = draw_run(random, 3, 5);
      c = with_neutral_changes(std::move(c), random);
      break;
    case CaseKind::faults:
      c = draw_faults(random);
      break;
    case CaseKind::verify:
      c = draw_verify(random);
      break;
  }
  return is_possible(c) ? c : draw_case(kind, random);
}

bool is_possible(const Case& c) {
  return !amplifies_rounding(c) && objection(c.kind, c.flags).empty() &&
         objection(c.kind, with(c.flags, c.change)).empty();
}

bool amplifies_rounding(const Case& c) {
  const bool compared_to_rounding = c.kind == CaseKind::run || c.kind == CaseKind::resume || c.kind == CaseKind::faults;
  if (!compared_to_rounding) return false;
  const auto value = [&](const char* flag, double otherwise) {
    return c.flags.contains(flag) ? std::strtod(c.flags.at(flag).c_str(), nullptr) : otherwise;
  };
  const std::string optimizer = c.flags.contains("optimizer") ? c.flags.at("optimizer") : "adamw";
  // A sign, which rounding can turn; of a vector, at Adafactor's first step.
  if (optimizer == "lion" || optimizer == "adafactor") return true;
  if (optimizer != "adamw") return false;
  const OptimizerOptions defaults;
  const double beta1 = value("beta1", defaults.beta1), beta2 = value("beta2", defaults.second_beta());
  return beta1 * beta1 >= beta2;
}

std::vector<Case> smaller_cases(const Case& c) {
  std::vector<Case> cases;
  const auto offer = [&](Case candidate) {
    if (candidate != c && is_possible(candidate)) cases.push_back(std::move(candidate));
  };
  for (const auto& [flag, value] : c.change) {
    Case fewer = c;
    fewer.change.erase(flag);
    offer(std::move(fewer));
  }
  for (Arguments& flags : smaller(c.flags)) offer({c.kind, std::move(flags), c.change});
  for (Arguments& change : smaller(c.change)) offer({c.kind, c.flags, std::move(change)});
  return cases;
}

}  // namespace trireme::explore

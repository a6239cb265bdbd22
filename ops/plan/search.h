// Finds the fastest settings for a number of devices, among all combinations of mesh, micro-batch, ZeRO stage,
// recomputation and schedule that are possible and fit.
//
// Few are simulated. Many need too much memory for their weights alone. The others have lower bounds of memory and time
// (ops/plan/bounds.h). They are simulated in the order of these bounds, until the next bound is above the times of the
// best: a branch and bound. It assumes three things. More recomputation takes longer, and so do the ZeRO stages 2 and 3,
// which communicate more: both are tried only where less does not fit. And a larger cp is no less work: it is tried only
// where the work of a smaller one was not too slow already. Over more than a thousand data-parallel ranks ZeRO shards in
// groups (--dp-shard), and over all only where that does not fit.
// Read next: ops/plan/search.cpp, examples/plan.cpp.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/plan/predict.h"

namespace trireme::plan {

/// What to choose from.
struct Space {
  std::vector<MeshShape> meshes;
  std::vector<std::int64_t> micro_batches;
  std::vector<std::int64_t> zero;      ///< stages; the first of them where there is only one data-parallel rank
  std::vector<std::string> recompute;  ///< those that recompute less, first
  std::vector<std::string> pipelines;  ///< the first of them where there is one stage
};

/// All meshes of `ranks` ranks, with `ep` up to `experts`.
std::vector<MeshShape> meshes(int ranks, int experts);

/// Settings that differ only in the ZeRO stage and recomputation.
struct Alternative {
  TrainOptions options;
  std::size_t recomputes;  ///< place in Space::recompute
};
using Alternatives = std::vector<Alternative>;

/// `space` around `given`; not all of them are possible.
std::vector<Alternatives> combinations(const TrainOptions& given, const Space& space);

/// Settings that fit.
struct Choice {
  TrainOptions options;
  Prediction prediction;
};
/// Settings that were simulated.
struct Tried {
  TrainOptions options;
  double seconds = 0;       ///< of a step
  std::int64_t memory = 0;  ///< of the rank that needs most, in bytes
};
struct Search {
  std::vector<Choice> choices;                                   ///< the fastest, first; as many as were asked for
  std::int64_t possible = 0, predicted = 0;                      ///< how many were
  std::vector<std::pair<TrainOptions, std::string>> impossible;  ///< and why
  /// If SearchLimits::front: the fastest of all that fit; the fastest that need at most 70 % of its memory, of the most
  /// promising twelve; and so on. And the others that were simulated.
  std::vector<Tried> front, others;
  /// If none fits: the one that needs least memory, and how many bytes.
  std::optional<std::pair<TrainOptions, std::int64_t>> smallest;
};

struct SearchLimits {
  double memory = 0;                             ///< of a device, in bytes
  std::size_t shown = 1;                         ///< how many choices to find
  int threads = 1;                               ///< that search
  bool front = false;                            ///< whether to find what is fastest with less memory, too
  bool smallest = true;                          ///< whether to find what needs least memory, if nothing fits
  int enough = std::numeric_limits<int>::max();  ///< simulations, once as many as `shown` fit
  /// Told after each simulation, by one thread at a time: how many there were, and the seconds of the fastest that fits;
  /// 0: none yet.
  std::function<void(std::int64_t simulated, double fastest)> progress = {};
};

/// `make_ready`: fills in what can be inferred, and throws ExitCode::usage for options that are impossible. `model`: that
/// of `program`.
Search search(const std::vector<Alternatives>& wanted,
              const std::function<TrainOptions(const TrainOptions&)>& make_ready, const DryProgram& program,
              const ModelFacts& model, const MachineModel& machine, const SearchLimits& limits);

}  // namespace trireme::plan

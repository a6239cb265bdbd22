#include "ops/plan/search.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "core/error.h"
#include "ops/plan/at_once.h"
#include "ops/plan/bounds.h"

namespace trireme::plan {
namespace {

bool divides(int part, int whole) { return whole % part == 0; }

/// Over how many of so many data-parallel ranks ZeRO had best shard. Over thousands it saves hardly any memory; latencies
/// add up, and weights have fewer rows than there are ranks.
int group_of_shards(int data) {
  constexpr int many = 1024, enough = 512;
  if (data <= many) return data;
  int group = enough;
  while (!divides(group, data)) --group;
  return group;
}

/// Calls f(). If it finds the options impossible, returns the reason; else an empty text.
template <class F>
std::string reason_against(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    return error.reason();
  }
  return "";
}

}  // namespace

std::vector<MeshShape> meshes(int ranks, int experts) {
  std::vector<MeshShape> all;
  for (int pp = 1; pp <= ranks; ++pp)
    for (int tp = 1; divides(pp, ranks) && tp <= ranks / pp; ++tp)
      for (int cp = 1; divides(pp * tp, ranks) && cp <= ranks / pp / tp; ++cp) {
        if (!divides(pp * tp * cp, ranks)) continue;
        const int dp = ranks / (pp * tp * cp);
        for (int ep = 1; ep <= std::clamp(experts, 1, dp * cp); ++ep)
          if (divides(ep, dp * cp) && divides(ep, std::max(experts, 1))) all.push_back({{pp, dp, cp, tp, ep}});
      }
  return all;
}

std::vector<Alternatives> combinations(const TrainOptions& given, const Space& space) {
  std::vector<Alternatives> all;
  const auto some = [](const auto& values, bool all_of_them) {
    return std::span(values).first(all_of_them ? values.size() : 1);
  };
  for (const MeshShape& mesh : space.meshes)
    for (const std::string& pipeline : some(space.pipelines, mesh.size(Axis::pp) > 1))
      for (const std::int64_t micro_batch : space.micro_batches) {
        TrainOptions o = given;
        o.mesh.axes = to_string(mesh);
        o.mesh.pipeline = pipeline;
        o.batch.micro_batch = micro_batch;
        all.emplace_back();
        for (std::size_t i = 0; i < space.recompute.size(); ++i)
          for (const std::int64_t zero : some(space.zero, mesh.size(Axis::data) > 1)) {
            o.mesh.zero = zero;
            o.precision.recompute = space.recompute[i];
            const int data = mesh.size(Axis::data), group = group_of_shards(data);
            o.mesh.dp_shard = zero > 0 && group < data && !given.mesh.dp_shard ? group : given.mesh.dp_shard;
            all.back().push_back({o, i});
            if (o.mesh.dp_shard == given.mesh.dp_shard) continue;
            o.mesh.dp_shard.reset();  // over all of them, where less memory is needed
            all.back().push_back({o, i});
          }
      }
  return all;
}

namespace {

class Searching {
 public:
  Searching(const DryProgram& program, const ModelFacts& model, const MachineModel& machine, const SearchLimits& limits)
      : program_(program),
        model_(model),
        machine_(machine),
        limits_(limits),
        bounds_(program, model, machine),
        budget_(limits.memory),
        most_(limits.enough) {}

  Search run(const std::vector<Alternatives>& possible, Search found) {
    found_ = std::move(found);
    find_fastest(possible, limits_.shown);
    for (auto& [place, choice] : best_) found_.choices.push_back({*choice.options, std::move(choice.prediction)});
    if (found_.choices.empty() && limits_.smallest) find_smallest(possible);
    if (limits_.front) find_front(possible);
    return std::move(found_);
  }

 private:
  /// The fastest of those that need at most `budget_`, in best_.
  void find_fastest(const std::vector<Alternatives>& possible, std::size_t count) {
    best_.clear();
    count_ = count;
    simulated_ = 0;
    std::map<int, std::vector<std::size_t>> by_cp;
    for (std::size_t which = 0; which < possible.size(); ++which)
      if (!possible[which].empty()) by_cp[possible[which].front().options.mesh.shape.size(Axis::cp)].push_back(which);
    for (const auto& [cp, some] : by_cp) find_fastest_of(some, possible);
  }

  void find_fastest_of(const std::vector<std::size_t>& some, const std::vector<Alternatives>& possible) {
    std::vector<std::pair<double, std::size_t>> order;  // bound, which
    for_each_at_once(some.size(), limits_.threads, [&](std::size_t i) {
      for (const Alternative& alternative : possible[some[i]])
        if (const std::optional<double> bound = bound_if_it_may_fit(alternative.options)) {
          const std::scoped_lock lock(mutex_);
          order.emplace_back(*bound, some[i]);
          break;
        }
    });
    std::sort(order.begin(), order.end());
    rank_threads_ = order.size() == 1 ? limits_.threads : 1;
    for_each_at_once(order.size(), limits_.threads, [&](std::size_t i) {
      if (!is_too_slow(order[i].first)) try_all(possible[order[i].second], order[i].second);
    });
  }

  /// With less and less memory, until nothing fits.
  void find_front(const std::vector<Alternatives>& possible) {
    constexpr double less = 0.7;
    most_ = 12;
    std::set<const TrainOptions*> front;
    for (is_first_ = false; !best_.empty(); find_fastest(possible, 1)) {
      const TrainOptions* fastest = best_.begin()->second.options;
      front.insert(fastest);
      budget_ = less * static_cast<double>(tried_.at(fastest).memory);
    }
    budget_ = limits_.memory;
    for (auto& [options, tried] : tried_)
      if (fits(tried.memory)) (front.contains(options) ? found_.front : found_.others).push_back(tried);
    std::ranges::sort(found_.front, {}, &Tried::seconds);
  }

  /// Nothing fits: what needs least. Of those with the smallest micro-batch that recompute most, it simulates those first
  /// whose bounds are the lowest.
  void find_smallest(const std::vector<Alternatives>& possible) {
    std::int64_t micro_batch = std::numeric_limits<std::int64_t>::max();
    std::size_t recomputes = 0;
    for (const Alternatives& alternatives : possible)
      for (const Alternative& alternative : alternatives) {
        micro_batch = std::min(micro_batch, alternative.options.batch_sizes().micro_batch);
        recomputes = std::max(recomputes, alternative.recomputes);
      }
    std::vector<std::tuple<std::int64_t, std::size_t, const TrainOptions*>> order;  // bound, which
    for_each_at_once(possible.size(), limits_.threads, [&](std::size_t which) {
      for (const Alternative& alternative : possible[which]) {
        const TrainOptions& options = alternative.options;
        if (options.batch_sizes().micro_batch > micro_batch || alternative.recomputes < recomputes) continue;
        std::int64_t bytes = 0;
        const std::string reason = reason_against([&] { bytes = bounds_.quick(options).memory; });
        const std::scoped_lock lock(mutex_);
        if (reason.empty())
          order.emplace_back(bytes, which, &options);
        else
          found_.impossible.emplace_back(options, reason);
      }
    });
    std::ranges::stable_sort(order, {}, [](const auto& e) { return std::pair(std::get<0>(e), std::get<1>(e)); });
    for (const auto& [bound, which, options] : order) {
      if (found_.smallest && bound >= found_.smallest->second) break;
      const std::int64_t need = plan::predict(*options, program_, machine_, limits_.threads).most_memory().peak;
      ++found_.predicted;
      if (!found_.smallest || need < found_.smallest->second) found_.smallest = {*options, need};
    }
  }

  bool fits(std::int64_t bytes) const { return static_cast<double>(bytes) <= budget_; }

  bool is_too_slow(double bound) {
    const std::scoped_lock lock(mutex_);
    return best_.size() == count_ && (bound > best_.rbegin()->first.first || simulated_ >= most_);
  }

  /// The least time of a step; nothing if it certainly does not fit, or is too slow.
  std::optional<double> bound_if_it_may_fit(const TrainOptions& options) {
    if (!fits(least_memory(options, model_)) || is_too_slow(work_with_less_cp(options))) return std::nullopt;
    LowerBound bound;
    const std::string reason = reason_against([&] { bound = bounds_.quick(options); });
    const std::scoped_lock lock(mutex_);
    if (!reason.empty()) {
      if (is_first_) found_.impossible.emplace_back(options, reason);
      return std::nullopt;
    }
    work_[but_for_cp(options)] = bound.work;
    return fits(bound.memory) ? std::optional(bound.seconds) : std::nullopt;
  }

  /// The time that the same settings with a smaller cp need for their work alone; 0 if there were none. A larger cp
  /// cannot be faster.
  double work_with_less_cp(const TrainOptions& options) {
    const std::scoped_lock lock(mutex_);
    const auto found = work_.find(but_for_cp(options));
    return found == work_.end() ? 0 : found->second;
  }
  using ButForCp = std::tuple<int, int, std::int64_t, std::string>;  // tp, ep, micro-batch, recomputation
  static ButForCp but_for_cp(const TrainOptions& options) {
    const MeshShape& mesh = options.mesh.shape;
    return {mesh.size(Axis::tp), mesh.size(Axis::ep), *options.batch.micro_batch, options.precision.recompute};
  }

  void try_all(const Alternatives& alternatives, std::size_t which) {
    std::vector<const Alternative*> fitting;
    for (const Alternative& alternative : alternatives) {
      const auto is_certainly_faster = [&](const Alternative* other) {
        const std::int64_t zero = other->options.mesh.zero, own = alternative.options.mesh.zero;
        return other->recomputes <= alternative.recomputes && (zero == own || (1 <= zero && zero <= own));
      };
      if (std::ranges::any_of(fitting, is_certainly_faster)) continue;
      const std::optional<double> bound = bound_if_it_may_fit(alternative.options);
      if (!bound || is_too_slow(*bound)) continue;
      const LowerBound close = bounds_.close(alternative.options);
      if (!fits(close.memory) || is_too_slow(close.seconds)) continue;
      if (try_one(alternative.options, which)) fitting.push_back(&alternative);
    }
  }

  /// Whether it fits.
  bool try_one(const TrainOptions& options, std::size_t which) {
    Prediction prediction;
    if (is_first_ || !is_tried(options)) {
      prediction = plan::predict(options, program_, machine_, rank_threads_);
      const std::scoped_lock lock(mutex_);
      ++found_.predicted;
      ++simulated_;
      tried_[&options] = {options, prediction.seconds, prediction.most_memory().peak};
    }
    const std::scoped_lock lock(mutex_);
    const Tried& tried = tried_.at(&options);
    const bool does_fit = fits(tried.memory);
    if (does_fit) {
      best_.emplace(std::pair(tried.seconds, which), Fitting{&options, std::move(prediction)});
      if (best_.size() > count_) best_.erase(std::prev(best_.end()));
    }
    if (limits_.progress) limits_.progress(found_.predicted, best_.empty() ? 0 : best_.begin()->first.first);
    return does_fit;
  }
  bool is_tried(const TrainOptions& options) {
    const std::scoped_lock lock(mutex_);
    return tried_.contains(&options);
  }

  struct Fitting {
    const TrainOptions* options;
    Prediction prediction;  // empty if they were tried before
  };

  const DryProgram& program_;
  const ModelFacts& model_;
  const MachineModel& machine_;
  const SearchLimits& limits_;
  Bounds bounds_;
  double budget_;             // bytes of a device
  std::size_t count_ = 0;     // of the fastest to find
  bool is_first_ = true;      // with the whole memory of a device
  int simulated_ = 0, most_;  // by find_fastest(), if it has found any
  int rank_threads_ = 1;      // for the ranks of one setting
  std::mutex mutex_;
  Search found_;
  std::multimap<std::pair<double, std::size_t>, Fitting> best_;  // by seconds, and as wanted
  std::map<ButForCp, double> work_;                              // of the largest cp so far
  std::map<const TrainOptions*, Tried> tried_;                   // those that were simulated
};

}  // namespace

Search search(const std::vector<Alternatives>& wanted,
              const std::function<TrainOptions(const TrainOptions&)>& make_ready, const DryProgram& program,
              const ModelFacts& model, const MachineModel& machine, const SearchLimits& limits) {
  Search found;
  std::vector<Alternatives> possible;
  for (const Alternatives& alternatives : wanted) {
    possible.emplace_back();
    bool none_is_possible = false;  // if the first, without ZeRO and recomputation, is not, the others are not
    std::string reason;
    for (const auto& [options, recomputes] : alternatives) {
      if (!none_is_possible)
        reason = reason_against([&] { possible.back().push_back({make_ready(options), recomputes}); });
      if (!reason.empty()) found.impossible.emplace_back(options, reason);
      none_is_possible = !reason.empty() && possible.back().empty();
    }
    found.possible += static_cast<std::int64_t>(possible.back().size());
  }
  return Searching(program, model, machine, limits).run(possible, std::move(found));
}

}  // namespace trireme::plan

#include "check/explore/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "check/parity/rounding.h"
#include "parallel/checkpoint/compare.h"
#include "train/runs/saved_run.h"

namespace trireme::explore {
namespace {

/// True for quantities that are sums of rounded terms. All others are exact.
bool is_inexact(const std::string& key) {
  static const std::set<std::string> keys = {"loss", "grad_norm", "val_loss", "aux_loss", "z_loss", "expert_imbalance"};
  return keys.contains(key);
}

std::string differing_checkpoints(const TrainingResult& a, const TrainingResult& b) {
  checkpoint::Checkpoint first(find_saved_run(a.out)), second(find_saved_run(b.out));
  const std::vector<checkpoint::Difference> differences = checkpoint::compare(first, second);
  if (differences.empty()) return {};
  const checkpoint::Difference& d = differences.front();
  return fmt::format("{} of the saved tensors differ, the first {}: {}", differences.size(), d.name,
                     d.what.empty() ? fmt::format("{} elements, by at most {:.3g}", d.elements, d.largest) : d.what);
}

/// Calls f(step, key, a, b) for quantities that both runs have. A quantity that only one run has is ignored: that run
/// logged it more often.
template <class F>
void for_each_pair(const TrainingResult& a, const TrainingResult& b, std::int64_t first_step, const F& f) {
  for (const auto& [step, record] : a.records) {
    const auto other = b.records.find(step);
    if (step < first_step || other == b.records.end()) continue;
    for (const auto& item : record.items())
      if (other->second.contains(item.key())) f(step, item.key(), item.value(), other->second[item.key()]);
  }
  for (const auto& [step, text] : a.samples) {
    const auto other = b.samples.find(step);
    if (step >= first_step && other != b.samples.end())
      f(step, "sample", nlohmann::json(text), nlohmann::json(other->second));
  }
}

std::int64_t last_step(const TrainingResult& run) { return run.records.empty() ? 0 : run.records.rbegin()->first; }

/// As text, even if a sample of bytes is not valid UTF-8.
std::string shown(const nlohmann::json& value) {
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string differing_bits(const TrainingResult& a, const TrainingResult& b, std::int64_t first_step) {
  std::string found;
  for_each_pair(a, b, first_step, [&](std::int64_t step, const std::string& key, const auto& x, const auto& y) {
    if (found.empty() && x != y) found = fmt::format("{} of step {}: {} and {}", key, step, shown(x), shown(y));
  });
  if (found.empty() && last_step(a) != last_step(b))
    found = fmt::format("the last step: {} and {}", last_step(a), last_step(b));
  return found.empty() ? differing_checkpoints(a, b) : found;
}

std::vector<Gap> gaps(const TrainingResult& a, const TrainingResult& b, std::int64_t first_step) {
  std::vector<Gap> found;
  for (const auto& [step, record] : a.records) {  // runs with the same logging have the same keys
    const auto other = b.records.find(step);
    if (step < first_step || other == b.records.end()) continue;
    for (const nlohmann::json* one : {&record, &other->second})
      for (const auto& item : one->items())
        if (!record.contains(item.key()) || !other->second.contains(item.key()))
          found.push_back(
              {step, item.key(), one == &record ? "there" : "missing", one == &record ? "missing" : "there", INFINITY});
  }
  for_each_pair(a, b, first_step, [&](std::int64_t step, const std::string& key, const auto& x, const auto& y) {
    if (x == y) return;
    double relative = INFINITY;
    if (is_inexact(key) && x.is_number() && y.is_number()) {
      const double p = x.template get<double>(), q = y.template get<double>();
      relative = std::abs(p - q) / std::max(std::abs(p), std::abs(q));
    }
    found.push_back({step, key, shown(x), shown(y), relative});
  });
  if (last_step(a) != last_step(b))
    found.push_back({0, "last step", std::to_string(last_step(a)), std::to_string(last_step(b)), INFINITY});
  return found;
}

std::string unexplained(const std::vector<Gap>& gaps, double accepted, const Disturbances& disturbed) {
  constexpr int disturbances = 24;
  std::vector<Gap> open;
  for (const Gap& gap : gaps)
    if (!(gap.relative <= accepted)) open.push_back(gap);
  for (int number = 0; number < disturbances && !open.empty(); ++number) {
    const bool only_texts = std::all_of(open.begin(), open.end(), [](const Gap& gap) { return gap.key == "sample"; });
    const std::vector<Gap> reached = disturbed(number, only_texts ? most_rounding_ratio : 1.0);
    // A disturbed quantity may return close to its old value by chance, so its gaps in earlier steps count too.
    std::erase_if(open, [&](const Gap& gap) {
      return std::any_of(reached.begin(), reached.end(), [&](const Gap& r) {
        return r.key == gap.key && r.step <= gap.step && gap.relative <= most_rounding_ratio * r.relative;
      });
    });
  }
  if (open.empty()) return {};
  const Gap& gap = open.front();
  return fmt::format("{} of step {}: {} and {}{}", gap.key, gap.step, gap.a, gap.b,
                     std::isfinite(gap.relative)
                         ? fmt::format(", a relative difference of {:.2g} that rounding does not explain", gap.relative)
                         : "");
}

}  // namespace trireme::explore

#include "train/terminal/eta.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace trireme {
namespace {

constexpr std::size_t most_steps = 100;

/// How often something happens after `step` if it happens every `every` steps, and after the last.
std::int64_t times_due(std::int64_t step, std::int64_t steps, std::int64_t every) {
  if (every <= 0) return 1;
  return steps / every - step / every + (steps % every == 0 ? 0 : 1);
}

}  // namespace

void Eta::Mean::add(double x) {
  constexpr int weight = 4;  // how many values the mean remembers, roughly
  count = std::min(count + 1, weight);
  value += (x - value) / count;
}

void Eta::stepped(double seconds) {
  steps_.push_back(seconds);
  if (steps_.size() > most_steps) steps_.pop_front();
}

double Eta::step_seconds() const {
  if (steps_.empty()) return 0;
  std::vector<double> sorted(steps_.begin(), steps_.end());
  std::sort(sorted.begin(), sorted.end());
  const auto cut = static_cast<std::ptrdiff_t>(sorted.size() / 10);
  return std::accumulate(sorted.begin() + cut, sorted.end() - cut, 0.0) /
         static_cast<double>(static_cast<std::ptrdiff_t>(sorted.size()) - 2 * cut);
}

double Eta::seconds_left(std::int64_t step) const {
  if (step >= schedule_.steps || steps_.empty()) return 0;
  const auto due = [&](std::int64_t every, const Mean& mean) {
    return static_cast<double>(times_due(step, schedule_.steps, every)) * mean.value;
  };
  return static_cast<double>(schedule_.steps - step) * step_seconds() + due(schedule_.eval_every, evaluation_) +
         due(schedule_.sample_every, sample_) + due(schedule_.save_every, save_);
}

}  // namespace trireme

#include "ops/terminal/eta.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace trireme {
namespace {

constexpr std::size_t most_steps = 100;

}  // namespace

void Eta::Mean::add(std::int64_t at, double x) {
  constexpr int weight = 4;  // how many values the mean remembers, roughly
  count = std::min(count + 1, weight);
  value += (x - value) / count;
  step = at;
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

/// Seconds for what happens every `every` steps, and after the last.
double Eta::due(std::int64_t step, std::int64_t every, const Mean& mean) const {
  const std::int64_t steps = schedule_.steps;
  std::int64_t times = step < steps ? 1 : 0;  // after the last step
  if (every > 0) times = steps / every - step / every + (step < steps && steps % every != 0 ? 1 : 0);
  const bool due_now = step == steps || (every > 0 && step % every == 0);
  return static_cast<double>(times + (due_now && mean.step < step ? 1 : 0)) * mean.value;
}

double Eta::seconds_left(std::int64_t step) const {
  if (steps_.empty()) return 0;
  step = std::min(step, schedule_.steps);
  const std::int64_t steps = schedule_.steps, every = schedule_.save_every;
  double saves = save_.step < steps ? save_.value : 0;  // the last; for those before it, training stands still shortly
  if (every > 0) {
    const std::int64_t all = (steps - 1) / every, made = std::min(step, steps - 1) / every;
    saves += static_cast<double>(all - made) * stall_.value;
  }
  return static_cast<double>(steps - step) * step_seconds() + due(step, schedule_.eval_every, evaluation_) +
         due(step, schedule_.sample_every, sample_) + saves;
}

}  // namespace trireme

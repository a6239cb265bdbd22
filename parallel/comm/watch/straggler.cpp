#include "parallel/comm/watch/straggler.h"

#include <algorithm>
#include <limits>

namespace trireme::watch {
namespace {

constexpr std::array<Phase, 4> compared = {Phase::data, Phase::forward, Phase::backward, Phase::optimizer};

double second_least(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + 1, values.end());
  return values[1];
}

/// For an even count, the greater of the two middle values, so that a warning is missed rather than false.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double at(const PhaseSeconds& seconds, Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }

}  // namespace

std::vector<Straggler> StragglerDetector::add(std::int64_t step, const std::vector<PhaseSeconds>& seconds,
                                              const std::vector<int>& work) {
  steps_.push_back(step);
  seconds_.push_back(seconds);
  if (steps_.size() < window) return {};

  const std::size_t ranks = seconds.size();
  std::vector<PhaseSeconds> typical(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (const Phase phase : compared) {
      std::vector<double> values;
      for (const auto& one : seconds_) values.push_back(at(one[rank], phase));
      typical[rank][static_cast<std::size_t>(phase)] = second_least(values);
    }

  std::vector<Straggler> found;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::size_t> peers;
    for (std::size_t other = 0; other < ranks; ++other)
      if (other != rank && work[rank] >= 0 && work[other] == work[rank]) peers.push_back(other);
    if (peers.empty()) continue;
    const auto of_peers = [&](Phase phase) {
      std::vector<double> values;
      for (const std::size_t peer : peers) values.push_back(at(typical[peer], phase));
      return median(values);
    };
    double whole = 0;
    for (const Phase phase : compared) whole += of_peers(phase);
    for (const Phase phase : compared) {
      const Key key(static_cast<int>(rank), phase);
      const double own = at(typical[rank], phase), others = of_peers(phase);
      if (own <= factor * others || own - others < std::max(least_share * whole, least_seconds)) {
        slow_[key] = 0;
        continue;
      }
      if (slow_[key]++ == 0) since_[key] = steps_.front();
      if (slow_[key] < windows || std::exchange(named_[key], true)) continue;
      found.push_back({key.first, phase, own, others, since_[key], step, static_cast<int>(peers.size())});
    }
  }
  steps_.clear();
  seconds_.clear();
  return found;
}

std::string to_string(const Straggler& s, const std::string& place) {
  const std::string ratio = s.ratio() < 100 ? fmt::format("{:.1f}x", s.ratio()) : "over 100x";
  return fmt::format(
      "{} takes {} the {} in {}: {:.1f} ms against {:.1f} ms a step, in steps {} to {}; the others wait for it; "
      "look at its machine, or at what else runs there",
      place, ratio, s.peers == 1 ? "time of its peer" : fmt::format("median of its {} peers", s.peers), name(s.phase),
      1e3 * s.seconds, 1e3 * s.median, s.first_step, s.last_step);
}

std::vector<std::string> StragglerWatch::look() {
  std::vector<std::string> lines;
  // The newest step that all ranks show. Ranks are only a few steps apart, fewer than a page holds.
  std::int64_t newest = std::numeric_limits<std::int64_t>::max();
  for (int rank = 0; rank < pages_->ranks(); ++rank) {
    if (!pages_->visible(rank)) continue;
    std::int64_t last = -1;
    for (const auto& entry : pages_->page(rank).times)
      if (const auto times = entry.read()) last = std::max(last, times->step);
    newest = std::min(newest, last);
  }
  if (next_ < 0 || newest - next_ >= RankPage::steps) next_ = newest;
  for (; next_ >= 0 && next_ <= newest; ++next_) {
    const auto ranks = static_cast<std::size_t>(pages_->ranks());
    std::vector<PhaseSeconds> seconds(ranks);
    std::vector<int> work(ranks, -1);
    bool complete = true;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (!pages_->visible(static_cast<int>(rank))) continue;
      const RankPage& page = pages_->page(static_cast<int>(rank));
      const auto times = page.times[static_cast<std::size_t>(next_) % RankPage::steps].read();
      complete = complete && times && times->step == next_;
      if (times) std::copy(times->seconds.begin(), times->seconds.end(), seconds[rank].begin());
      work[rank] = page.work;
    }
    if (!complete) continue;
    for (const Straggler& one : detector_.add(next_, seconds, work))
      lines.push_back(to_string(one, pages_->place(one.rank)));
  }
  return lines;
}

}  // namespace trireme::watch

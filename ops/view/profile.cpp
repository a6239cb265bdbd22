#include "ops/view/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace trireme::run_view {

double RankStep::waiting() const {
  return std::accumulate(waits.begin(), waits.end(), 0.0,
                         [](double sum, const Exchange& wait) { return sum + wait.seconds(); });
}

double RankStep::waiting_within(const Span& span) const {
  double seconds = 0;
  for (auto wait = std::ranges::lower_bound(waits, span.begin, {}, &Exchange::end);
       wait != waits.end() && wait->begin < span.end; ++wait)
    seconds += std::min(wait->end, span.end) - std::max(wait->begin, span.begin);
  return seconds;
}

// Backwards from the rank that ends last. Where a rank waited for another, the chain goes on there.
std::vector<PathPiece> critical_path(const Step& step) {
  std::vector<PathPiece> path;
  if (step.ranks.empty()) return path;
  const auto longest = std::ranges::max_element(step.ranks, {}, &RankStep::end);
  auto rank = static_cast<int>(longest - step.ranks.begin());
  double time = longest->end;
  std::size_t most = 0;
  for (const RankStep& one : step.ranks) most += one.waits.size();
  for (std::size_t i = 0; i <= most; ++i) {
    const RankStep& here = step.ranks[static_cast<std::size_t>(rank)];
    auto wait = std::ranges::lower_bound(here.waits, time, {}, &Exchange::begin);
    while (wait != here.waits.begin() && ((wait - 1)->last < 0 || (wait - 1)->ready > time)) --wait;
    if (wait == here.waits.begin()) break;
    --wait;
    path.push_back({rank, wait->ready, time});
    rank = wait->last;
    time = wait->ready;
  }
  path.push_back({rank, step.ranks[static_cast<std::size_t>(rank)].begin, time});
  std::ranges::reverse(path);
  return path;
}

Place place_of(int rank, const MeshShape& mesh) {
  Place place;
  place.tp = rank % mesh.size(Axis::tp);
  const int above = rank / mesh.size(Axis::tp);
  const int data = above % mesh.size(Axis::data);
  place.pp = above / mesh.size(Axis::data);
  place.cp = data % mesh.size(Axis::cp);
  place.dp = data / mesh.size(Axis::cp);
  place.ep = data % mesh.size(Axis::ep);
  place.edp = data / mesh.size(Axis::ep);
  return place;
}

std::string where(int rank, const Profile& profile) {
  const Place place = place_of(rank, profile.mesh);
  std::string text = fmt::format("Rank {} (dp={},tp={},pp={}", rank, place.dp, place.tp, place.pp);
  if (profile.mesh.size(Axis::cp) > 1) text += fmt::format(",cp={}", place.cp);
  if (profile.mesh.size(Axis::ep) > 1) text += fmt::format(",ep={}", place.ep);
  text += ')';
  const auto index = static_cast<std::size_t>(rank);
  const bool several = std::ranges::any_of(profile.hosts, [&](const auto& host) { return host != profile.hosts[0]; });
  return several && index < profile.hosts.size() ? text + " on " + profile.hosts[index] : text;
}

}  // namespace trireme::run_view

#include "parallel/comm/hosts/host_signs.h"

#include <algorithm>

namespace trireme::hosts {
namespace {

const RankNews* news_of(const HostSigns& signs, int rank) {
  const auto found = signs.ranks.find(rank);
  return found == signs.ranks.end() ? nullptr : &found->second;
}

/// "rank 1 (dp=1,tp=0) step 12".
std::string place(const HostSigns& signs, int rank) {
  const RankNews* news = news_of(signs, rank);
  if (news == nullptr || news->place.view().empty()) return fmt::format("rank {}", rank);
  return fmt::format("{}{}", news->place.view(), news->step < 0 ? "" : fmt::format(" step {}", news->step));
}

/// What the flight record says about the ranks on other hosts.
std::string record_of(const std::vector<Host>& hosts, const std::vector<HostSigns>& signs) {
  std::string text = "\nranks on other hosts, as they said last\n";
  for (std::size_t host = 1; host < hosts.size(); ++host)
    for (const int rank : hosts[host].ranks) {
      const RankNews* news = news_of(signs[host], rank);
      text += fmt::format("{} on {}, heard of {:.1f} s ago: {}\n", place(signs[host], rank), hosts[host].name,
                          signs[host].since_answer, news == nullptr ? "it has said nothing" : news->doing.view());
    }
  return text;
}

std::string why(const HostFinding& finding, const Host& host, const HostSigns& signs) {
  const RankNews* news = news_of(signs, finding.rank);
  switch (finding.fault) {
    case HostFault::gone:
      return fmt::format(
          "host {} is gone: for {:.1f} s neither its ranks nor its system have answered over the "
          "network; its ranks: {}; look at that host and its network",
          host.name, signs.since_answer, ranks_text(host, signs));
    case HostFault::stopped:
      return fmt::format(
          "host {} is there, but its process of rank {} has not answered for {:.1f} s: it is stopped or "
          "gone, or gets no processor; look at it",
          host.name, finding.rank, signs.since_answer);
    case HostFault::hung:
      break;
  }
  return fmt::format("no sign of life for {:.1f} s, says its host {}; it was {}; find what keeps it", news->silence,
                     host.name, news->doing.view());
}

}  // namespace

std::optional<HostFinding> find_lost_host(const std::vector<Host>& hosts, const std::vector<HostSigns>& signs,
                                          double timeout, bool waiting) {
  for (std::size_t i = 1; i < hosts.size(); ++i) {
    const HostSigns& host = signs[i];
    if (!host.linked) continue;
    const int at = static_cast<int>(i);
    if (host.since_answer >= gone_after * timeout && host.since_network >= 0.5 * host.since_answer)
      return HostFinding{HostFault::gone, at, hosts[i].ranks.front()};
    if (host.since_answer >= stopped_after * timeout)
      return HostFinding{HostFault::stopped, at, hosts[i].ranks.front()};
    if (!waiting) continue;
    for (const auto& [rank, news] : host.ranks)
      if (news.waits == 0 && news.silence >= hung_after * timeout) return HostFinding{HostFault::hung, at, rank};
  }
  return std::nullopt;
}

watch::LostRank lost_on_host(const HostFinding& finding, const std::vector<Host>& hosts,
                             const std::vector<HostSigns>& signs, double timeout, const std::string& record) {
  const auto host = static_cast<std::size_t>(finding.host);
  return {ExitCode::retryable,
          fmt::format("{}, or raise the deadline (--timeout, {:g} s)", why(finding, hosts[host], signs[host]), timeout),
          place(signs[host], finding.rank), record + record_of(hosts, signs)};
}

watch::LostRank lost_first_host(const std::vector<Host>& hosts, int self, double silence, double timeout) {
  return {
      ExitCode::retryable,
      fmt::format("host {} of rank 0 has not asked host {} for {:.1f} s: one of the two is gone or cut off; look at "
                  "both and their network, or raise the deadline (--timeout, {:g} s)",
                  hosts.front().name, hosts[static_cast<std::size_t>(self)].name, silence, timeout),
      "rank 0", ""};
}

std::string ranks_text(const Host& host, const HostSigns& signs) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < host.ranks.size() && i < most; ++i)
    text += (text.empty() ? "" : ", ") + place(signs, host.ranks[i]);
  if (host.ranks.size() > most) text += fmt::format(" and {} more", host.ranks.size() - most);
  return text;
}

void SlowLinks::add(int host, double seconds) {
  Seen& seen = hosts_[static_cast<std::size_t>(host)];
  seen.window_least = seen.count == 0 ? seconds : std::min(seen.window_least, seconds);
  if (++seen.count < window) return;
  seen.least = seen.window_least;
  seen.count = 0;
  seen.complete = true;
}

std::vector<SlowLinks::Slow> SlowLinks::look() {
  std::vector<Slow> found;
  for (std::size_t host = 1; host < hosts_.size(); ++host) {
    Seen& seen = hosts_[host];
    if (!seen.complete) continue;
    std::vector<double> others;
    for (std::size_t other = 1; other < hosts_.size(); ++other)
      if (other != host && hosts_[other].least > 0) others.push_back(hosts_[other].least);
    if (others.empty()) continue;
    seen.complete = false;
    const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    const bool slow = seen.least > factor * *middle && seen.least - *middle > least_seconds;
    seen.slow = slow ? seen.slow + 1 : 0;
    if (seen.slow < windows || std::exchange(seen.named, true)) continue;
    found.push_back({static_cast<int>(host), seen.least, *middle});
  }
  return found;
}

std::string to_string(const SlowLinks::Slow& slow, const std::vector<Host>& hosts,
                      const std::vector<HostSigns>& signs) {
  const auto at = static_cast<std::size_t>(slow.host);
  return fmt::format(
      "a round trip from host {} to host {} takes {:.1f} ms, to the other hosts {:.1f} ms; its ranks, for "
      "which all wait: {}; look at its network",
      hosts.front().name, hosts[at].name, 1e3 * slow.seconds, 1e3 * slow.median, ranks_text(hosts[at], signs[at]));
}

}  // namespace trireme::hosts

#include "parallel/comm/watch/report.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <ranges>

#include "parallel/comm/watch/beacon.h"

namespace trireme::watch {
namespace {

std::string seconds_ago(std::int64_t then) {
  return fmt::format("{:.1f} s ago", 1e-9 * static_cast<double>(nanoseconds_now() - then));
}

std::string phase_name(int phase) { return phase < 0 ? "no phase" : std::string(name(static_cast<Phase>(phase))); }

/// "step 12", or "before the first step".
std::string step_name(std::int64_t step) { return step < 0 ? "before the first step" : fmt::format("step {}", step); }

struct FindingText {
  ExitCode code;
  std::string what, place;
};

/// "in forward at blocks.2.mlp".
std::string activity(const RankPage& page) {
  const auto site = page.site.read();
  const int phase = page.phase;
  return fmt::format("{}at {}", phase < 0 ? "" : fmt::format("in {} ", phase_name(phase)),
                     site ? site->view() : std::string_view("an unknown place"));
}

std::optional<Record> last_record(const RankPage& page) {
  const std::vector<Record> history = page.history();
  return history.empty() ? std::nullopt : std::optional(history.back());
}

std::string last_operation(const RankPage& page) {
  const auto last = last_record(page);
  if (!last) return "it has begun no operation";
  return fmt::format(
      "its last operation is {}, {}", to_string(*last),
      last->ended == 0 ? "begun " + seconds_ago(last->begun) + " and not ended" : "ended " + seconds_ago(last->ended));
}

/// The number of the rank's last begun collective in that group.
std::uint64_t last_number(const RankPage& page, std::string_view group) {
  std::uint64_t number = 0;
  for (const Record& r : page.history())
    if (r.group.view() == group) number = std::max(number, r.sequence);
  return number;
}

std::string list(const RankPages& pages, const std::vector<int>& ranks) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < most; ++i) text += (text.empty() ? "" : ", ") + pages.place(ranks[i]);
  if (ranks.size() > most) text += fmt::format(" and {} more", ranks.size() - most);
  return text;
}

std::string why(const RankPages& pages, const Observer& observer, const Finding& finding) {
  const int rank = finding.faulty.ranks.front();
  const RankSigns& signs = observer.signs()[static_cast<std::size_t>(rank)];
  const VitalSigns& vitals = observer.vitals(rank);
  if (finding.faulty.fault == WaitFault::died) {
    const std::string signal =
        vitals.signal == 0 ? "" : fmt::format(", ended by signal {} ({})", vitals.signal, strsignal(vitals.signal));
    return fmt::format("its process {} is gone{}", pages.page(rank).process.load(), signal);
  }
  const double silence =
      std::max(std::max(signs.since_sign_of_life, signs.since_ran), signs.blocked ? 0.0 : signs.since_heartbeat);
  const char* const state = vitals.state == 'T'   ? "; its process is stopped by a signal (state T)"
                            : vitals.state == 't' ? "; its process is held by a debugger (state t)"
                            : vitals.state == 'S' ? "; its thread sleeps (state S)"
                            : vitals.state == 'R' ? "; its thread computes, without getting anywhere (state R)"
                                                  : "";
  return fmt::format("no sign of life for {:.1f} s{}", silence, state);
}

/// "rank 0 (dp=0,tp=0,pp=0) waits for it in all_reduce(sum of 64 f32) #119 of group 'dp', of which the lost rank has
/// begun #118; so do 2 other ranks".
std::string who_waits(const RankPages& pages, const Observer& observer, const Finding& finding) {
  const int lost = finding.faulty.ranks.front();
  int waiter = finding.waiter == lost ? -1 : finding.waiter, others = 0;
  for (int rank = 0; rank < pages.ranks(); ++rank) {
    const std::vector<int>& list = observer.signs()[static_cast<std::size_t>(rank)].waits_for;
    if (std::find(list.begin(), list.end(), lost) == list.end()) continue;
    const auto& first = waiter < 0 ? list : observer.signs()[static_cast<std::size_t>(waiter)].waits_for;
    if (waiter < 0 || std::find(first.begin(), first.end(), lost) == first.end()) waiter = rank;
    ++others;
  }
  if (waiter < 0) return "nobody waits for it yet";
  const auto waiting = pages.page(waiter).waiting.read();
  const auto record = waiting ? pages.page(waiter).record(waiting->record) : std::nullopt;
  std::string text = fmt::format("{} waits for it", pages.place(waiter));
  if (record) {
    text += " in " + to_string(*record);
    if (record->what == Record::What::collective)
      text +=
          fmt::format(", of which the lost rank has begun #{}", last_number(pages.page(lost), record->group.view()));
  }
  if (others > 1) text += others == 2 ? "; so does 1 other rank" : fmt::format("; so do {} other ranks", others - 1);
  return text;
}

FindingText one_lost(const Finding& finding, const RankPages& pages, const Observer& observer) {
  const int rank = finding.faulty.ranks.front();
  const std::vector<int> others(finding.faulty.ranks.begin() + 1, finding.faulty.ranks.end());
  const RankPage& page = pages.page(rank);
  const std::int64_t step = page.step;
  std::string text = fmt::format("{}; it was {}; {}; {}", why(pages, observer, finding), activity(page),
                                 last_operation(page), who_waits(pages, observer, finding));
  if (!others.empty()) text += "; lost as well: " + list(pages, others);
  text += finding.faulty.fault == WaitFault::died
              ? "; start again from the newest checkpoint"
              : fmt::format("; find what keeps it, or raise the deadline of the world's group (--timeout, {:g} s)",
                            finding.timeout);
  return {ExitCode::retryable, text, pages.place(rank) + (step < 0 ? "" : fmt::format(" step {}", step))};
}

/// Whom it was seen to wait for, as observed: its page may have changed since.
std::string wait_text(const RankPages& pages, const Observer& observer, int rank) {
  const RankPage& page = pages.page(rank);
  const RankSigns& signs = observer.signs()[static_cast<std::size_t>(rank)];
  const auto waiting = page.waiting.read();
  const auto record = waiting ? page.record(waiting->record) : std::nullopt;
  const std::string where =
      record ? fmt::format("in {} at {}", to_string(*record), record->site.view()) : activity(page);
  std::string whom = list(pages, signs.waits_for);
  if (signs.more) whom += fmt::format("{}ranks above {}", whom.empty() ? "" : " and ", Waiting::most_ranks - 1);
  return fmt::format("{} {} waits for {}", pages.place(rank), where, whom.empty() ? "a thread of its own" : whom);
}

FindingText all_waiting(const Finding& finding, const RankPages& pages, const Observer& observer) {
  const FaultyRanks& faulty = finding.faulty;
  std::string waits;
  constexpr std::size_t most = 6;
  std::vector<int> ranks = faulty.fault == WaitFault::deadlocked ? faulty.ranks : std::vector{finding.waiter};
  std::erase_if(ranks, [&](int rank) {  // ranks that have ended wait for nobody
    const RankSigns& signs = observer.signs()[static_cast<std::size_t>(rank)];
    return rank != finding.waiter && signs.waits_for.empty() && !signs.more;
  });
  for (std::size_t i = 0; i < ranks.size() && i < most; ++i)
    waits += (waits.empty() ? "" : "; ") + wait_text(pages, observer, ranks[i]);
  const std::int64_t step = pages.page(finding.waiter).step;
  const std::string place = pages.place(finding.waiter) + (step < 0 ? "" : fmt::format(" step {}", step));
  switch (faulty.fault) {
    case WaitFault::deadlocked:
      return {
          ExitCode::desync,
          fmt::format("ranks wait for one another in different operations, for {:g} s: {}; every rank must call the "
                      "same operations in the same order",
                      finding.timeout, waits),
          place};
    case WaitFault::unseen:
      return {
          ExitCode::retryable,
          fmt::format("{}, for {:g} s ({:g} x the deadline); these are on other nodes, where they cannot be seen from "
                      "here: {}; look at those nodes, or raise the deadline (--timeout)",
                      waits, patience_with_unseen * finding.timeout, patience_with_unseen,
                      faulty.ranks.empty() ? "some with higher numbers" : list(pages, faulty.ranks)),
          place};
    default:
      return {
          ExitCode::retryable,
          fmt::format("{}; all are there, but for {:g} s ({:g} x the deadline) nothing has moved; look at the network "
                      "between them, or raise the deadline (--timeout)",
                      waits, patience_with_unseen * finding.timeout, patience_with_unseen),
          place};
  }
}

// The flight recorder.

std::string state_of(const RankPage& page) {
  const auto waiting = page.waiting.read();
  switch (page.state.load()) {
    case RankState::absent:
      return "not begun";
    case RankState::failed:
      return "failed";
    case RankState::ended:
      return "ended";
    case RankState::running:
      break;
  }
  if (!waiting || waiting->record == 0) return "works";
  const auto record = page.record(waiting->record);
  std::string ranks;
  for (const int rank : waiting->list()) ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", rank);
  return fmt::format("{} for rank {}{}", waiting->blocked ? "waits" : "works, its communication thread waits", ranks,
                     record ? ", since " + seconds_ago(record->begun) : "");
}

std::string rank_table(const RankPages& pages, const std::vector<int>& lost) {
  std::string text;
  for (int rank = 0; rank < pages.ranks(); ++rank) {
    if (!pages.visible(rank)) {
      text += fmt::format("rank {}: on another node, cannot be seen from here\n", rank);
      continue;
    }
    const RankPage& page = pages.page(rank);
    const bool is_lost = std::find(lost.begin(), lost.end(), rank) != lost.end();
    text += fmt::format("{}{}: {}; {}, {}; {}\n", is_lost ? "LOST " : "", pages.place(rank), state_of(page),
                        step_name(page.step), activity(page), last_operation(page));
  }
  return text;
}

/// "2.10 ms in forward blocks.2.mlp", "UNDER WAY 31.2 s in backward sums of gradients".
std::string cell(const Record& r) {
  const double seconds = 1e-9 * static_cast<double>((r.ended == 0 ? nanoseconds_now() : r.ended) - r.begun);
  const std::string time = seconds < 1 ? fmt::format("{:.2f} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds);
  return fmt::format("{}{} in {} {}", r.ended == 0 ? "UNDER WAY " : "", time, phase_name(r.phase), r.site.view());
}

using ByRank = std::map<int, Record>;
using ByNumber = std::map<std::uint64_t, ByRank>;

/// True if every member did the same operation at the same place and has finished it.
bool completed_alike(const ByRank& by_rank, std::size_t members) {
  const Record& first = by_rank.begin()->second;
  return by_rank.size() == members && std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& one) {
           const Record& r = one.second;
           return r.ended != 0 && r.signature == first.signature && r.site.view() == first.site.view();
         });
}

// Newest first. An operation that was the same on all ranks is one line, with each rank's milliseconds. Otherwise each
// rank has its own line.
std::string group_history(const std::string& group, const ByNumber& numbers, const std::vector<int>& members) {
  std::string text = fmt::format("\ngroup '{}', newest first, ranks", group);
  for (const int rank : members) text += fmt::format(" {}", rank);
  text += '\n';
  for (const auto& [number, by_rank] : std::views::reverse(numbers)) {
    const Record& first = by_rank.begin()->second;
    if (completed_alike(by_rank, members.size())) {
      text += fmt::format("#{} {} {} in {} {}, ms:", number, step_name(first.step), comm::to_string(first.signature),
                          phase_name(first.phase), first.site.view());
      for (const auto& one : by_rank)
        text += fmt::format(" {:.2f}", 1e-6 * static_cast<double>(one.second.ended - one.second.begun));
      text += '\n';
      continue;
    }
    text += fmt::format("#{}\n", number);
    for (const int rank : members) {
      const auto found = by_rank.find(rank);
      text += found == by_rank.end()
                  ? fmt::format("    rank {:<4} -\n", rank)
                  : fmt::format("    rank {:<4} {} {}, {}\n", rank, comm::to_string(found->second.signature),
                                step_name(found->second.step), cell(found->second));
    }
  }
  return text;
}

std::string messages(const RankPages& pages) {
  std::string text;
  for (int rank = 0; rank < pages.ranks(); ++rank) {
    if (!pages.visible(rank)) continue;
    for (const Record& r : pages.page(rank).history())
      if (r.what != Record::What::collective)
        text += fmt::format("    rank {:<4} {} {} {}\n", rank, step_name(r.step), to_string(r), cell(r));
  }
  return text.empty() ? "" : "\nmessages and groups made, by rank, oldest first\n" + text;
}

}  // namespace

LostRank lost_rank(const Finding& finding, const RankPages& pages, const Observer& observer) {
  const WaitFault fault = finding.faulty.fault;
  const bool one = fault == WaitFault::died || fault == WaitFault::stopped;
  const FindingText said = one ? one_lost(finding, pages, observer) : all_waiting(finding, pages, observer);
  return {said.code, said.what, said.place, flight_record(pages, one ? finding.faulty.ranks : std::vector<int>())};
}

std::string doing(const RankPages& pages, int rank) {
  return fmt::format("{}; {}", activity(pages.page(rank)), last_operation(pages.page(rank)));
}

std::string flight_record(const RankPages& pages, const std::vector<int>& lost) {
  std::map<std::string, ByNumber> groups;
  std::map<std::string, std::map<int, bool>> members;
  for (int rank = 0; rank < pages.ranks(); ++rank) {
    if (!pages.visible(rank)) continue;
    for (const Record& r : pages.page(rank).history()) {
      if (r.what != Record::What::collective) continue;
      groups[std::string(r.group.view())][r.sequence][rank] = r;
      members[std::string(r.group.view())][rank] = true;
    }
  }
  std::string text = "ranks\n" + rank_table(pages, lost);
  text +=
      fmt::format("\nthe last {} operations of each rank: how long each took there; -: not begun, or too long ago\n",
                  RankPage::records);
  for (const auto& [group, numbers] : groups) {
    std::vector<int> ranks;
    for (const auto& member : members[group]) ranks.push_back(member.first);
    text += group_history(group, numbers, ranks);
  }
  return text + messages(pages);
}

}  // namespace trireme::watch

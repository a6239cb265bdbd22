#include "parallel/comm/watch/observer.h"

#include <algorithm>

namespace trireme::watch {
namespace {

/// A number for an operation: equal on all ranks that are in it.
std::uint64_t operation_number(const std::optional<Record>& record) {
  if (!record) return 0;
  const std::uint64_t group = std::hash<std::string_view>()(record->group.view());
  return (group ^ record->sequence * 0x9e3779b97f4a7c15U) | 1U;
}

}  // namespace

Observer::Observer(std::shared_ptr<const RankPages> pages, Ask ask)
    : pages_(std::move(pages)),
      ask_(std::move(ask)),
      seen_(static_cast<std::size_t>(pages_->ranks())),
      signs_(seen_.size()) {}

void Observer::look(double seconds) {
  seconds = std::clamp(seconds, 0.0, longest_gap);
  bool another_ended = false;
  for (int rank = 0; rank < pages_->ranks(); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const bool had_ended = signs_[i].ended;
    signs_[i].visible = pages_->visible(rank);
    if (signs_[i].visible) look_at(pages_->page(rank), seen_[i], signs_[i], seconds);
    another_ended = another_ended || signs_[i].ended != had_ended;
  }
  // The last operation of the rank that ended may have released ranks whose pages were read before. So ranks must show
  // again that they wait.
  if (!another_ended) return;
  for (Seen& seen : seen_) seen.refreshed = 0;
  for (RankSigns& signs : signs_) signs.confirmed = false;
}

void Observer::look_at(const RankPage& page, Seen& seen, RankSigns& signs, double seconds) const {
  // Read its waits before its heartbeats; the rank writes them in the opposite order. So a rank whose wait has just
  // ended shows a new heartbeat.
  bool arrived = false;
  if (const auto waiting = page.waiting.read()) {
    std::vector<int> ranks = waiting->record == 0 ? std::vector<int>() : waiting->list();
    arrived = ranks != signs.waits_for;
    signs.blocked = waiting->blocked;
    signs.waits_for = std::move(ranks);
    signs.more = waiting->more;
    signs.operation = operation_number(page.record(waiting->record));
  }
  const std::uint64_t beats = page.beats, ticks = page.watchdog_ticks;
  const auto count = [seconds](double& silence, bool life) { silence = life ? 0 : silence + seconds; };
  count(signs.since_heartbeat, beats != std::exchange(seen.beats, beats));
  count(signs.since_sign_of_life, signs.since_heartbeat == 0 || arrived);
  count(signs.since_ran, ticks != std::exchange(seen.watchdog_ticks, ticks));
  // A process that seldom gets a processor may still show a wait that has ended.
  seen.refreshed = signs.since_sign_of_life == 0 ? 0 : seen.refreshed + (signs.since_ran == 0 ? 1 : 0);
  signs.confirmed = seen.refreshed >= 3;
  if (signs.since_sign_of_life < ask_after && signs.since_ran < ask_after)
    seen.asked = false;
  else if (lives(page, seen, signs)) {
    signs.since_ran = 0;
    // A waiting rank also runs, to check whether the others have come, so for it running is no sign of life. But if all
    // have come, it only needs a processor.
    if (!signs.blocked || signs.waits_for.empty()) signs.since_sign_of_life = 0;
  }
  const RankState state = page.state;  // read after asking the system: an ending process sets it before it goes
  signs.ended = state == RankState::ended;
  signs.failed = state == RankState::failed;
  if (state == RankState::absent) signs.since_sign_of_life = signs.since_heartbeat = signs.since_ran = 0;
}

bool Observer::lives(const RankPage& page, Seen& seen, RankSigns& signs) const {
  const std::uint64_t before = seen.vitals.processor_time;
  seen.vitals = ask_({page.process, page.thread, page.process_space});
  signs.gone = seen.vitals.gone();
  if (signs.gone) return false;
  const bool had_time = std::exchange(seen.asked, true) && seen.vitals.processor_time != before;
  return had_time || seen.vitals.state == 'R' || seen.vitals.state == 'D' ||
         (seen.vitals.state == 'S' && !signs.blocked && waits_for_disk(page.process));
}

}  // namespace trireme::watch

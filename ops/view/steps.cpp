#include "ops/view/steps.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "core/error.h"
#include "train/program/units.h"

namespace trireme::run_view {
namespace {

/// One rank's events of one step, with times since the step began.
using Events = std::vector<TraceEvent>;

/// The events from the begin to the end of the rank's `number`-th step.
Events events_of_step(const TraceFile::Rank& rank, const TraceEvent& step) {
  const auto first = std::ranges::lower_bound(rank.events, step.begin, {}, &TraceEvent::begin);
  Events events;
  for (auto event = first; event != rank.events.end() && event->begin < step.end; ++event)
    if (event->end <= step.end + 1e-9 && event->category != "step") events.push_back(*event);
  return events;
}

void count_from(double begin, Events& events) {
  for (TraceEvent& event : events) {
    event.begin -= begin;
    event.end -= begin;
  }
}

void copy_span(const Span& from, Span& to) { to = from; }

/// The number behind `word` in "forward stage 0 micro-batch 1"; -1: none.
int number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  int number = -1;
  if (at != std::string_view::npos) {
    const std::string_view digits = text.substr(at + word.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
  }
  return number;
}

void add_part(RankStep& rank, const TraceEvent& event) {
  Part part;
  copy_span(event, part);
  if (event.category == "phase") {
    if (event.name != "optimizer") return;
    part.kind = "update";
  } else {
    part.kind = event.name.substr(0, event.name.find(' '));
    if (part.kind != "forward" && !part.kind.starts_with("backward")) return;  // a message
    part.stage = number_after(event.name, " stage ");
    part.micro_batch = number_after(event.name, " micro-batch ");
  }
  rank.parts.push_back(std::move(part));
}

void add_module(RankStep& rank, const TraceEvent& event, std::vector<double>& ends) {
  while (!ends.empty() && ends.back() <= event.begin) ends.pop_back();
  Module module;
  copy_span(event, module);
  module.depth = static_cast<int>(ends.size());
  ends.push_back(event.end);
  rank.modules.push_back(std::move(module));
}

Exchange exchange_of(const TraceEvent& event) {
  Exchange exchange;
  copy_span(event, exchange);
  exchange.ready = exchange.begin;
  if (event.transfer) {
    exchange.group = event.transfer->group;
    exchange.site = event.transfer->site;
    exchange.bytes = event.transfer->bytes;
  }
  return exchange;
}

/// What the ranks of a step have exchanged: collectives by group and number, messages by their order in a channel.
class Exchanges {
 public:
  void add(int rank, const TraceEvent& event) {
    if (!event.transfer) return;
    const ProfileTransfer& t = *event.transfer;
    if (event.category == "collective") {
      Arrival& last = last_.try_emplace({t.group, t.number}, Arrival{rank, event.begin}).first->second;
      if (event.begin > last.time) last = {rank, event.begin};
    } else if (event.name == "send") {
      sends_[{t.group, rank, t.peer, t.tag}].push_back({event.end, t.bytes});
    } else {
      receives_[{t.group, t.peer, rank, t.tag}].push_back(event.end);
    }
  }

  std::vector<Message> messages() const {
    std::vector<Message> messages;
    for (const auto& [channel, sent] : sends_) {
      const auto found = receives_.find(channel);
      if (found == receives_.end() || found->second.size() != sent.size()) continue;
      for (std::size_t i = 0; i < sent.size(); ++i)
        messages.push_back({std::get<1>(channel), std::get<2>(channel), sent[i].time, found->second[i], sent[i].bytes});
    }
    std::ranges::stable_sort(messages, {}, &Message::sent);
    return messages;
  }

  /// For which rank `rank` waited from wait.begin on, in the exchange `event`.
  void explain(Exchange& wait, int rank, const TraceEvent& event, std::map<std::string, std::size_t>& received) const {
    const ProfileTransfer& t = *event.transfer;
    Arrival last{rank, wait.begin};
    if (event.category == "collective") {
      last = last_.at({t.group, t.number});
    } else if (event.name == "recv") {
      const std::size_t number = received[fmt::format("{} {} {}", t.group, t.peer, t.tag)]++;
      const auto sent = sends_.find({t.group, t.peer, rank, t.tag});
      if (sent != sends_.end() && number < sent->second.size()) last = {t.peer, sent->second[number].time};
    }
    if (last.rank == rank || last.time <= wait.begin) return;
    wait.last = last.rank;
    wait.ready = std::min(last.time, wait.end);
  }

 private:
  struct Arrival {
    int rank = 0;
    double time = 0;
  };
  struct Sent {
    double time = 0;
    std::int64_t bytes = 0;
  };
  using Channel = std::tuple<std::string, int, int, int>;  // group, from, to, tag
  std::map<std::pair<std::string, std::uint64_t>, Arrival> last_;
  std::map<Channel, std::vector<Sent>> sends_;
  std::map<Channel, std::vector<double>> receives_;
};

/// The exchange that ends a wait: the longest inside it, or the last in the background that ends in it.
const TraceEvent* waited_for(const Events& events, std::size_t wait, const std::vector<const TraceEvent*>& background) {
  const TraceEvent* longest = nullptr;
  for (std::size_t i = wait + 1; i < events.size() && events[i].begin < events[wait].end; ++i)
    if (events[i].lane == 0 && events[i].transfer && (longest == nullptr || events[i].seconds() > longest->seconds()))
      longest = &events[i];
  if (longest != nullptr) return longest;
  constexpr double slack = 1e-4;  // the waiting thread may notice the end earlier than the other has noted it
  for (const TraceEvent* event : background)
    if (event->end > events[wait].begin && event->end <= events[wait].end + slack) longest = event;
  return longest;
}

/// Whether a send or a receive on the rank's own thread encloses the wait.
const TraceEvent* enclosing_message(const Events& events, std::size_t wait) {
  for (std::size_t i = wait; i-- > 0 && events[i].begin >= events[wait].begin - 1e-3;)
    if (events[i].category == "message" && events[i].lane == 0 && events[i].end >= events[wait].end) return &events[i];
  return nullptr;
}

void add_waits(RankStep& to, int rank, const Events& events, const Exchanges& exchanges) {
  std::vector<const TraceEvent*> background;
  for (const TraceEvent& event : events)
    if (event.lane != 0 && event.transfer) {
      background.push_back(&event);
      to.background.push_back(exchange_of(event));
    }
  std::ranges::stable_sort(background, {}, &TraceEvent::end);
  constexpr double noticeable = 2e-5;
  std::map<std::string, std::size_t> received;
  double end = 0;  // of the last wait: one inside it is the same wait
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& event = events[i];
    if (event.lane != 0 || event.category != "collective" || event.transfer || event.name != "wait" ||
        event.begin < end)
      continue;
    end = event.end;
    const TraceEvent* what = waited_for(events, i, background);
    if (what == nullptr) what = enclosing_message(events, i);
    if (what == nullptr && event.seconds() < noticeable) continue;  // for what was there already
    Exchange wait = exchange_of(what == nullptr ? event : *what);
    wait.begin = wait.ready = event.begin;
    wait.end = event.end;
    if (what != nullptr) exchanges.explain(wait, rank, *what, received);
    to.waits.push_back(std::move(wait));
  }
}

/// The memory from the begin of the step on, at the begin as it was before.
std::vector<MemorySample> memory_of_step(const std::vector<MemorySample>& all, double begin, double end, double zero) {
  std::vector<MemorySample> memory;
  for (const MemorySample& sample : all) {
    if (sample.seconds > end) break;
    MemorySample moved = sample;
    moved.seconds = std::max(sample.seconds, begin) - zero;
    if (sample.seconds <= begin) memory.clear();
    memory.push_back(moved);
  }
  return memory;
}

Step make_step(const TraceFile& trace, const std::vector<std::vector<const TraceEvent*>>& steps, std::size_t number) {
  Step step{.name = steps[0][number]->name, .ranks = {}, .messages = {}};
  double begin = steps[0][number]->begin, end = steps[0][number]->end;
  for (const auto& of_rank : steps) {
    begin = std::min(begin, of_rank[number]->begin);
    end = std::max(end, of_rank[number]->end);
  }
  step.seconds = end - begin;
  std::vector<Events> all;
  Exchanges exchanges;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    all.push_back(events_of_step(trace.ranks[r], *steps[r][number]));
    count_from(begin, all.back());
    for (const TraceEvent& event : all.back()) exchanges.add(static_cast<int>(r), event);
  }
  step.messages = exchanges.messages();
  for (std::size_t r = 0; r < all.size(); ++r) {
    const TraceEvent& whole = *steps[r][number];
    RankStep& rank = step.ranks.emplace_back();
    rank.begin = whole.begin - begin;
    rank.end = whole.end - begin;
    std::vector<double> ends;
    for (const TraceEvent& event : all[r]) {
      if (event.lane != 0) continue;
      if (event.category == "pipeline" || event.category == "phase") add_part(rank, event);
      if (event.category == "module") add_module(rank, event, ends);
      if (event.category == "kernel") {
        Span& kernel = rank.kernels.emplace_back();
        copy_span(event, kernel);
        if (!event.detail.empty()) kernel.name += " " + event.detail;
      }
    }
    add_waits(rank, static_cast<int>(r), all[r], exchanges);
    rank.memory = memory_of_step(trace.ranks[r].memory, whole.begin, whole.end, begin);
  }
  return step;
}

/// What rank 0 does in the forward of the first block of the first micro-batch.
std::vector<ForwardLine> forward_of_block(const Events& events) {
  const auto is_block = [](const TraceEvent& event) {
    return event.category == "module" && event.name.find('.') != std::string::npos &&
           event.name.find('.') == event.name.rfind('.') && !event.name.starts_with("backward");  // "blocks.0"
  };
  const auto block = std::ranges::find_if(events, is_block);
  std::vector<ForwardLine> lines;
  if (block == events.end()) return lines;
  std::vector<double> ends;
  for (auto event = block; event != events.end() && event->begin < block->end; ++event) {
    while (!ends.empty() && ends.back() <= event->begin) ends.pop_back();
    const bool is_shown = event->category == "module" || event->category == "kernel" ||
                          event->category == "placement" || (event->category == "collective" && event->transfer);
    if (event->lane != 0 || !is_shown) continue;
    const std::string detail =
        event->transfer ? format_bytes(static_cast<double>(event->transfer->bytes)) : event->detail;
    lines.push_back({event->category, event->name, detail, static_cast<int>(ends.size())});
    ends.push_back(event->end);
  }
  return lines;
}

}  // namespace

Profile profile_of(TraceFile trace, const std::filesystem::path& path) {
  std::vector<std::vector<const TraceEvent*>> steps(trace.ranks.size());
  for (std::size_t r = 0; r < steps.size(); ++r) {
    for (const TraceEvent& event : trace.ranks[r].events)
      if (event.category == "step") steps[r].push_back(&event);
    if (steps[r].empty() || steps[r].size() != steps[0].size())
      fail(ExitCode::data, "view",
           "{}: rank {} has {} steps and rank 0 has {}; expected as many, one at least; record "
           "it again",
           path.string(), r, steps[r].size(), steps[0].size());
  }
  Profile profile = std::move(trace.facts);
  for (std::size_t number = 0; number < steps[0].size(); ++number)
    profile.steps.push_back(make_step(trace, steps, number));
  profile.forward = forward_of_block(events_of_step(trace.ranks[0], *steps[0][0]));
  return profile;
}

}  // namespace trireme::run_view

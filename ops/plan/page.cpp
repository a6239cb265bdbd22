#include "ops/plan/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "ops/plan/explain.h"
#include "train/program/units.h"

namespace trireme::plan {
namespace {

using Span = Timeline::Span;

/// One rank of the recorded pipeline.
class RecordedRank {
 public:
  RecordedRank(const Trace& trace, const Timeline::Rank& rank) : trace_(trace), spans_(rank.program) {}

  const Trace::Event& event(const Span& span) const { return trace_.events()[span.index]; }
  bool is_kernel(const Span& span) const { return event(span).kind == Trace::EventKind::kernel; }
  auto span_at(std::size_t event) const { return std::ranges::lower_bound(spans_, event, {}, &Span::index); }
  /// When the program had come to an event that takes no time itself.
  double time_of(std::size_t event) const {
    const auto next = span_at(event);
    return next == spans_.begin() ? (spans_.empty() ? 0 : spans_.front().begin) : (next - 1)->end;
  }
  const std::vector<Span>& spans() const { return spans_; }
  const Trace& trace() const { return trace_; }

 private:
  const Trace& trace_;
  const std::vector<Span>& spans_;
};

/// The sends of all ranks: message k of a channel goes to its k-th receive.
class Sends {
 public:
  /// `stride`: between the world ranks of neighbours.
  Sends(const std::vector<RecordedRank>& ranks, int stride) {
    for (std::size_t r = 0; r < ranks.size(); ++r) world_ranks_.push_back(static_cast<int>(r) * stride);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Trace& trace = ranks[r].trace();
      for (std::size_t i = 0; i < trace.events().size(); ++i) {
        if (trace.events()[i].kind != Trace::EventKind::start) continue;
        const Trace::Transfer& t = trace.transfers()[static_cast<std::size_t>(trace.events()[i].index)];
        if (t.kind == Trace::TransferKind::send)
          sent_[{world_ranks_[r], t.peer, t.tag}].push_back({ranks[r].time_of(i), i < first_of_step(ranks[r])});
      }
    }
  }

  struct Sent {
    double time = 0;
    bool before_step = false;
  };
  /// The message of the `number`-th receive of this channel; null: its sender is not simulated.
  const Sent* find(int receiver, const Trace::Transfer& t, std::size_t number) const {
    const auto found = sent_.find({t.peer, world_ranks_[static_cast<std::size_t>(receiver)], t.tag});
    return found == sent_.end() || number >= found->second.size() ? nullptr : &found->second[number];
  }
  /// The place of a world rank among those that are simulated; -1: it is not.
  int place_of(int world_rank) const {
    const auto found = std::ranges::find(world_ranks_, world_rank);
    return found == world_ranks_.end() ? -1 : static_cast<int>(found - world_ranks_.begin());
  }

 private:
  static std::size_t first_of_step(const RecordedRank& rank) {
    return rank.spans().empty() ? 0 : rank.spans().front().index;
  }
  std::vector<int> world_ranks_;
  std::map<std::tuple<int, int, int>, std::vector<Sent>> sent_;  // from, to, tag
};

run_view::Exchange exchange_of(const Trace& trace, int transfer, const Span& span) {
  const Trace::Transfer& t = trace.transfers()[static_cast<std::size_t>(transfer)];
  run_view::Exchange exchange;
  exchange.begin = exchange.ready = span.begin;
  exchange.end = span.end;
  exchange.bytes = t.bytes;
  exchange.group = trace.groups()[static_cast<std::size_t>(t.group)].name;
  exchange.name = t.kind == Trace::TransferKind::send      ? "send"
                  : t.kind == Trace::TransferKind::receive ? "recv"
                                                           : comm::to_string(t.collective) + " of " + exchange.group;
  return exchange;
}

/// A receive in the step, by the event that waits for it.
struct Received {
  std::size_t event = 0;
  int from = 0;
  double sent = 0;
};

/// The receives of the step, as far as their senders are simulated, and their messages. One that had arrived before it
/// was waited for has no span.
std::vector<Received> receives_of(const RecordedRank& rank, int number, const Sends& sends,
                                  std::vector<run_view::Message>& messages) {
  const Trace& trace = rank.trace();
  std::vector<Received> receives;
  std::map<std::pair<int, int>, std::size_t> counts;  // by peer and tag, from the first step on
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    if (trace.events()[i].kind != Trace::EventKind::wait) continue;
    const Trace::Transfer& t = trace.transfers()[static_cast<std::size_t>(trace.events()[i].index)];
    if (t.kind != Trace::TransferKind::receive) continue;
    const Sends::Sent* sent = sends.find(number, t, counts[{t.peer, t.tag}]++);
    if (sent == nullptr || sent->before_step) continue;
    const auto span = rank.span_at(i);
    const double arrived = span != rank.spans().end() && span->index == i ? span->end : rank.time_of(i);
    receives.push_back({i, sends.place_of(t.peer), sent->time});
    messages.push_back({receives.back().from, number, sent->time, std::max(arrived, sent->time), t.bytes});
  }
  return receives;
}

run_view::RankStep rank_step(const RecordedRank& rank, int number, const Timeline::Rank& times, const Sends& sends,
                             double seconds, std::vector<run_view::Message>& messages) {
  const Trace& trace = rank.trace();
  run_view::RankStep to;
  to.begin = rank.spans().empty() ? 0 : rank.spans().front().begin;
  to.end = rank.spans().empty() ? seconds : rank.spans().back().end;
  const std::vector<Received> receives = receives_of(rank, number, sends, messages);
  for (const Span& span : rank.spans()) {
    to.memory.push_back({span.begin, trace.memory()[span.index]});
    const int index = rank.event(span).index;
    if (rank.is_kernel(span)) {
      const ProfileEvent& kernel = trace.kernels()[static_cast<std::size_t>(index)];
      run_view::Span& box = to.kernels.emplace_back();
      box.begin = span.begin;
      box.end = span.end;
      box.name = kernel.detail.empty() ? kernel.name : kernel.name + " " + kernel.detail;
      continue;
    }
    run_view::Exchange& wait = to.waits.emplace_back(exchange_of(trace, index, span));
    const auto received = std::ranges::find(receives, span.index, &Received::event);
    if (received == receives.end() || received->sent <= wait.begin) continue;
    wait.last = received->from;
    wait.ready = std::min(received->sent, wait.end);
  }
  for (const Span& span : times.background)
    to.background.push_back(exchange_of(trace, static_cast<int>(span.index), span));
  for (const Trace::Part& part : trace.parts()) {
    const auto first = rank.span_at(part.begin), last = rank.span_at(part.end);
    if (first == last) continue;  // of the step before, or nothing to do
    run_view::Part& box = to.parts.emplace_back();
    box.begin = first->begin;
    box.end = (last - 1)->end;
    box.kind = part.kind;
    box.stage = part.stage;
    box.micro_batch = part.micro_batch;
  }
  if (!to.parts.empty() && to.parts.back().end < seconds && rank.spans().back().end > to.parts.back().end) {
    run_view::Part update;
    update.begin = to.parts.back().end;
    update.end = rank.spans().back().end;
    update.kind = "update";
    to.parts.push_back(update);
  }
  return to;
}

}  // namespace

run_view::Profile profile_of(const Recording& recording, const TrainOptions& options) {
  run_view::Profile profile;
  profile.predicted = true;
  const MeshShape& mesh = options.mesh.shape;
  const int ranks_recorded = static_cast<int>(recording.traces.size());
  if (ranks_recorded == mesh.ranks())
    profile.mesh = mesh;
  else
    profile.mesh.at(Axis::pp) = ranks_recorded;
  profile.pipeline = options.mesh.pipeline;
  profile.device = options.precision.device;
  profile.micro_batches = static_cast<int>(recording.micro_batches);
  profile.zero = static_cast<int>(options.mesh.zero);
  run_view::Step step{
      .name = recording.micro_batches == recording.of
                  ? "the step"
                  : fmt::format("the step with {} of its {} micro-batches", recording.micro_batches, recording.of),
      .seconds = recording.timeline.seconds,
      .ranks = {},
      .messages = {}};
  std::vector<RecordedRank> ranks;
  for (std::size_t r = 0; r < recording.traces.size(); ++r)
    ranks.emplace_back(recording.traces[r], recording.timeline.ranks[r]);
  const Sends sends(ranks, mesh.ranks() / ranks_recorded);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    step.ranks.push_back(
        rank_step(ranks[r], static_cast<int>(r), recording.timeline.ranks[r], sends, step.seconds, step.messages));
  std::ranges::stable_sort(step.messages, {}, &run_view::Message::sent);
  profile.steps.push_back(std::move(step));
  return profile;
}

run_view::Page page_of(const Answer& answer, const Recording& recording) {
  const Choice& best = answer.found.choices.front();
  run_view::Page page{
      .title = fmt::format("{} parameters on {} devices",
                           format_count(static_cast<double>(answer.question.model.parameters)),
                           best.options.mesh.shape.ranks()),
      .run = {},
      .profile = profile_of(recording, best.options),
      .findings = {},
      .missing = {"Ranks that differ from these along other axes than pp: they do the same at the same time."},
      .settings = {},
      .texts = {}};
  page.findings = run_view::step_findings(*page.profile);
  if (recording.micro_batches < recording.of)
    page.findings.insert(
        page.findings.begin(),
        {.title = fmt::format("The whole step takes {:.4g} s: drawn are {} of its {} micro-batches",
                              best.prediction.seconds, recording.micro_batches, recording.of),
         .text =
             "The others repeat those in the middle. What follows is about the part that is drawn: what happens once "
             "in a step, as the filling of a pipeline, is a smaller share of the whole.",
         .section = "timeline"});
  const auto add = [&page](const std::vector<Tried>& some, bool on_front) {
    for (const Tried& tried : some)
      page.settings.push_back({settings_text(tried.options), tried.seconds, tried.memory, on_front});
  };
  add(answer.found.front, true);
  add(answer.found.others, false);
  page.texts.push_back(
      {"The answer", "What plan prints. The step above is that of the first settings.", to_text(answer)});
  page.texts.push_back(
      {"From FLOPs to tokens", "What the step takes, from its arithmetic on.", explain(answer.question, best)});
  return page;
}

run_view::Page page_here(const std::string& title, const TrainOptions& options, const Recording& recording) {
  run_view::Page page{.title = title,
                      .run = {},
                      .profile = profile_of(recording, options),
                      .findings = {},
                      .missing = {},
                      .settings = {},
                      .texts = {}};
  page.findings = run_view::step_findings(*page.profile);
  return page;
}

}  // namespace trireme::plan

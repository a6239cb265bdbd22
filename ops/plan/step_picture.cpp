#include "ops/plan/step_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "ops/plot/curves.h"
#include "ops/plot/svg.h"
#include "train/program/units.h"

namespace trireme::plan {
namespace {

using namespace pictures;
using Span = Timeline::Span;

// Sizes in pixels.
constexpr double left = 66, top = 34, width = 1000, row = 22, lane = 7, row_gap = 6, margin = 16, axis_height = 26;
constexpr double legend_height = 26, narrow = 0.4;

std::string milliseconds(double seconds) { return fmt::format("{:.4g} ms", 1e3 * seconds); }

/// Time from left to right.
struct TimeAxis {
  Scale scale;
  explicit TimeAxis(double seconds) : scale(Scale::around(0, 1e3 * seconds, 12)) {}
  double operator()(double seconds) const { return left + width * scale.fraction(1e3 * seconds); }
  void draw(Drawing& drawing, double y) const {
    drawing.line({left, y}, {left + width, y}, {.width = 1});
    const std::vector<double> marks = scale.marks();
    const std::vector<std::string> labels = mark_labels(scale, false);
    for (std::size_t i = 0; i < marks.size(); ++i) {
      const double x = (*this)(marks[i] / 1e3);
      drawing.line({x, y}, {x, y + 4}, {.width = 1});
      drawing.text({x, y + 14}, labels[i] + (i + 1 == marks.size() ? " ms" : ""),
                   {.anchor = Anchor::middle, .size = 12, .muted = true});
    }
  }
};

/// One box with its meaning after the other.
class Legend {
 public:
  Legend(Drawing& drawing, double y) : drawing_(drawing), y_(y) {}
  void add(const BoxStyle& style, std::string_view meaning) {
    drawing_.box({x_, y_ - 7, 14, 14}, style);
    drawing_.text({x_ + 20, y_}, meaning, {.size = 12});
    x_ += 40 + text_width(meaning, 12);
  }

 private:
  Drawing& drawing_;
  double x_ = left, y_;
};

struct PartStyle {
  std::string_view kind;
  Tone tone;
  std::string_view meaning;
};
constexpr std::array<PartStyle, 4> part_styles = {{{"forward", Tone::blue, "forward"},
                                                   {"backward", Tone::green, "backward"},
                                                   {"backward_input", Tone::green, "backward, input's part"},
                                                   {"backward_weight", Tone::orange, "backward, weights' part"}}};
const BoxStyle waits_style{.tone = Tone::idle, .border = false, .radius = 0};
const BoxStyle outside_style{.tone = Tone::purple, .border = false, .radius = 0};
const BoxStyle background_style{.tone = Tone::orange, .border = false, .depth = 1, .radius = 0};

const PartStyle& style_of(const Trace::Part& part) {
  return *std::ranges::find(part_styles, std::string_view(part.kind), &PartStyle::kind);
}

std::string describe(const Trace& trace, int transfer) {
  const Trace::Transfer& t = trace.transfers()[static_cast<std::size_t>(transfer)];
  const std::string& group = trace.groups()[static_cast<std::size_t>(t.group)].name;
  const std::string bytes = format_bytes(static_cast<double>(t.bytes));
  if (t.kind == Trace::TransferKind::send) return fmt::format("sends {} in {}", bytes, group);
  if (t.kind == Trace::TransferKind::receive) return fmt::format("waits for {} in {}", bytes, group);
  return fmt::format("{} of {} in {}", comm::name(t.collective.kind), bytes, group);
}

/// Spans of one kind, as boxes: those too narrow to see join their neighbours.
class Boxes {
 public:
  Boxes(Drawing& drawing, const TimeAxis& x, double y, double height, const BoxStyle& style)
      : drawing_(drawing), x_(x), y_(y), height_(height), style_(style) {}
  ~Boxes() { draw(); }
  Boxes(const Boxes&) = delete;
  Boxes& operator=(const Boxes&) = delete;

  template <class Hint>
  void add(double begin, double end, const Hint& hint) {
    if (count_ > 0 && x_(begin) - x_(end_) > narrow) draw();
    if (count_++ == 0) {
      begin_ = begin;
      style_.hint = hint();
    }
    busy_ += end - begin;
    end_ = end;
  }

 private:
  void draw() {
    if (count_ > 0 && x_(end_) - x_(begin_) >= narrow) {
      style_.hint += (count_ > 1 ? fmt::format(", and {} more", count_ - 1) : "") + ": " + milliseconds(busy_);
      drawing_.box({x_(begin_), y_, x_(end_) - x_(begin_), height_}, style_);
    }
    count_ = 0;
    busy_ = 0;
  }

  Drawing& drawing_;
  const TimeAxis& x_;
  double y_, height_;
  BoxStyle style_;
  int count_ = 0;
  double begin_ = 0, end_ = 0, busy_ = 0;
};

/// A rank's row. `depth`: of the shade of a part.
template <class Depth>
void draw_rank(Drawing& drawing, const TimeAxis& x, const Trace& trace, const Timeline::Rank& rank, const Depth& depth,
               double y) {
  const std::vector<Span>& spans = rank.program;
  const auto at_event = [&](std::size_t event) { return std::ranges::lower_bound(spans, event, {}, &Span::index); };
  const auto kernel = [&](const Span& span) { return trace.events()[span.index].kind == Trace::EventKind::kernel; };
  const auto draw_spans = [&](auto from, auto to, bool kernels, const Rect& band, const BoxStyle& style) {
    Boxes boxes(drawing, x, band.y, band.height, style);
    for (auto span = from; span != to; ++span) {
      if (kernel(*span) != kernels) continue;
      const int index = trace.events()[span->index].index;
      boxes.add(span->begin, span->end, [&] {
        return kernels ? trace.kernels()[static_cast<std::size_t>(index)].name : describe(trace, index);
      });
    }
  };
  const Rect whole = {.y = y, .height = row}, strip = {.y = y + row - 5, .height = 5};
  draw_spans(spans.begin(), spans.end(), false, whole, waits_style);
  draw_spans(spans.begin(), spans.end(), true, whole, outside_style);  // parts are drawn over it
  for (const Trace::Part& part : trace.parts()) {
    const auto first = at_event(part.begin), last = at_event(part.end);
    if (first == last) continue;  // of the step before, or nothing to do
    const double begin = first->begin, end = (last - 1)->end;
    double busy = 0;
    for (auto span = first; span != last; ++span) busy += kernel(*span) ? span->end - span->begin : 0;
    const PartStyle& style = style_of(part);
    const Rect rect = {x(begin), y, x(end) - x(begin), row};
    drawing.box(rect,
                {.tone = style.tone,
                 .depth = depth(part),
                 .radius = 0,
                 .hint = fmt::format("{} of micro-batch {}, stage {}: {}, of which kernels {}", style.meaning,
                                     part.micro_batch, part.stage, milliseconds(end - begin), milliseconds(busy))});
    const std::string number = std::to_string(part.micro_batch);
    if (text_width(number, 11) < rect.width)
      drawing.text(rect.centre(), number, {.anchor = Anchor::middle, .size = 11});
    draw_spans(first, last, false, strip, waits_style);
  }
  Boxes background(drawing, x, y + row, lane, background_style);
  for (const Span& span : rank.background)
    background.add(span.begin, span.end, [&] { return describe(trace, static_cast<int>(span.index)); });
}

}  // namespace

std::string draw_timeline(const Recording& recording) {
  const Timeline& timeline = recording.timeline;
  const TimeAxis x(timeline.seconds);
  Drawing drawing("A step", fmt::format("A row for each of {} pipeline ranks, time from left to right: forwards and "
                                        "backwards with the numbers of their micro-batches, and waits.",
                                        timeline.ranks.size()));
  drawing.text({left, 14},
               recording.micro_batches == recording.of
                   ? milliseconds(timeline.seconds)
                   : fmt::format("{}: the step with {} of its {} micro-batches", milliseconds(timeline.seconds),
                                 recording.micro_batches, recording.of),
               {.bold = true});
  double y = top;
  const int ranks = static_cast<int>(timeline.ranks.size());
  int chunks = 1;  // stages of a rank
  for (const Trace& trace : recording.traces)
    for (const Trace::Part& part : trace.parts()) chunks = std::max(chunks, part.stage / ranks + 1);
  const auto depth = [&](const Trace::Part& part) {
    const int chunk = part.stage / ranks;
    return chunks == 1 ? 0.0 : static_cast<double>(chunk) / (chunks - 1);
  };
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank, y += row + lane + row_gap) {
    drawing.text({left - 8, y + row / 2}, fmt::format("pp {}", rank), {.anchor = Anchor::end});
    drawing.box({left, y, x(timeline.seconds) - left, row}, waits_style);  // what nothing is drawn over
    draw_rank(drawing, x, recording.traces[rank], timeline.ranks[rank], depth, y);
  }
  x.draw(drawing, y);
  y += axis_height + 12;
  Legend legend(drawing, y);
  for (const PartStyle& style : part_styles) {
    const auto has = [&](const Trace& trace) {
      return std::ranges::find(trace.parts(), style.kind, &Trace::Part::kind) != trace.parts().end();
    };
    if (std::ranges::any_of(recording.traces, has)) legend.add({.tone = style.tone, .radius = 0}, style.meaning);
  }
  if (chunks > 1) legend.add({.tone = Tone::blue, .depth = 1, .radius = 0}, "darker: a later stage of the rank");
  legend.add(outside_style, "norms of gradients, update");
  legend.add(waits_style, "waits");
  legend.add(background_style, "collectives in the background");
  return drawing.svg(left + width + margin + 20, y + legend_height, "step-");
}

namespace {

struct Sample {
  double seconds;
  Trace::Bytes bytes;
  std::size_t event;
  std::int64_t total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }
};

/// Of a rank in the step that is drawn; at each event that takes time.
std::vector<Sample> samples_of(const Recording& recording, std::size_t rank) {
  std::vector<Sample> samples;
  for (const Span& span : recording.timeline.ranks[rank].program)
    samples.push_back({span.begin, recording.traces[rank].memory()[span.index], span.index});
  return samples;
}

const Sample& fullest(const std::vector<Sample>& samples) {
  return *std::ranges::max_element(samples, {}, &Sample::total);
}

/// Where in its step a rank is: "in the backward of micro-batch 3, stage 0".
std::string place_of(const Trace& trace, std::size_t event) {
  for (const Trace::Part& part : trace.parts())
    if (part.begin <= event && event < part.end)
      return fmt::format("in the {} of micro-batch {}, stage {}", style_of(part).meaning, part.micro_batch, part.stage);
  return "outside forward and backward";
}

/// Of each column of pixels, the sample with the most bytes.
std::vector<Sample> one_for_each_pixel(const std::vector<Sample>& samples, const TimeAxis& x) {
  std::vector<Sample> kept;
  for (const Sample& sample : samples) {
    if (kept.empty() || std::floor(x(sample.seconds)) > std::floor(x(kept.back().seconds)))
      kept.push_back(sample);
    else if (sample.total() > kept.back().total())
      kept.back().bytes = sample.bytes;
  }
  return kept;
}

constexpr std::array<Tone, memory_categories> category_tones = {Tone::blue,  Tone::green, Tone::purple, Tone::orange,
                                                                Tone::plain, Tone::idle,  Tone::idle};

}  // namespace

std::string draw_memory(const Recording& recording) {
  constexpr double height = 260;
  std::vector<std::vector<Sample>> all;
  for (std::size_t rank = 0; rank < recording.traces.size(); ++rank) all.push_back(samples_of(recording, rank));
  const auto most = std::ranges::max_element(all, {}, [](const auto& samples) { return fullest(samples).total(); });
  const auto rank = static_cast<std::size_t>(most - all.begin());
  const Sample& peak = fullest(*most);
  const auto gibibytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; };
  const TimeAxis x(recording.timeline.seconds);
  const Scale scale = Scale::around(0, gibibytes(peak.total()), 8);
  const auto y = [&](std::int64_t bytes) { return top + height * (1 - scale.fraction(gibibytes(bytes))); };

  Drawing drawing("Memory over a step",
                  "Bytes in use by category, time from left to right, of the rank that needs most.");
  drawing.text(
      {left, 14},
      fmt::format("pp {}: most, {}, is in use after {}, {}", rank, format_bytes(static_cast<double>(peak.total())),
                  milliseconds(peak.seconds), place_of(recording.traces[rank], peak.event)),
      {.bold = true});
  const std::vector<Sample> samples = one_for_each_pixel(*most, x);
  std::vector<std::int64_t> base(samples.size(), 0);  // bytes of the categories that are drawn
  Legend legend(drawing, top + height + axis_height + 12);
  for (std::size_t c = 0; c < category_tones.size(); ++c) {
    std::vector<Point> upper, lower;
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double begin = x(samples[i].seconds),
                   end = i + 1 < samples.size() ? x(samples[i + 1].seconds) : x(recording.timeline.seconds);
      const double low = y(base[i]), high = y(base[i] += samples[i].bytes[c]);
      for (const double place : {begin, end}) {
        upper.push_back({place, high});
        lower.push_back({place, low});
      }
      largest = std::max(largest, samples[i].bytes[c]);
    }
    if (largest == 0) continue;
    upper.insert(upper.end(), lower.rbegin(), lower.rend());
    drawing.area(upper, category_tones[c]);
    legend.add({.tone = category_tones[c], .border = false, .radius = 0}, name(static_cast<MemoryCategory>(c)));
  }
  const std::vector<double> marks = scale.marks();
  const std::vector<std::string> labels = mark_labels(scale, false);
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const double place = top + height * (1 - scale.fraction(marks[i]));
    drawing.line({left, place}, {left + width, place}, {.tone = Tone::idle, .width = 0.5});
    drawing.text({left - 8, place}, labels[i] + (i + 1 == marks.size() ? " GiB" : ""),
                 {.anchor = Anchor::end, .size = 12, .muted = true});
  }
  x.draw(drawing, top + height);
  return drawing.svg(left + width + margin + 20, top + height + axis_height + legend_height + 12, "memory-");
}

}  // namespace trireme::plan

#include "bench/algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>

#include "core/io.h"
#include "ops/plot/messages.h"
#include "ops/plot/svg.h"
#include "parallel/comm/algorithms/message_group.h"
#include "train/options/links_file.h"

namespace trireme::bench {
namespace {

using comm::Algorithm;
using comm::CollectiveKind;

constexpr int repetitions = 5;

const std::map<std::string, CollectiveKind>& kinds() {
  static const std::map<std::string, CollectiveKind> all = {{"all_reduce", CollectiveKind::all_reduce},
                                                            {"reduce_scatter", CollectiveKind::reduce_scatter},
                                                            {"all_gather", CollectiveKind::all_gather},
                                                            {"broadcast", CollectiveKind::broadcast},
                                                            {"all_to_all", CollectiveKind::all_to_all}};
  return all;
}

CollectiveKind kind_of(const std::string& operation) {
  const auto found = kinds().find(operation);
  if (found != kinds().end()) return found->second;
  std::string names;
  for (const auto& [name, kind] : kinds()) names += (names.empty() ? "" : ", ") + name;
  fail(ExitCode::usage, "comm_bench", "--only {} is not made of messages; expected one of {}; change --only", operation,
       names);
}

comm::CollectiveSpec spec_of(CollectiveKind kind, int ranks, const comm::Links& links) {
  comm::CollectiveSpec spec{.kind = kind, .ranks = ranks};
  for (int rank = 0; rank < ranks; ++rank) spec.nodes.push_back(links.node_of(rank));
  return spec;
}

comm::Simulated simulated(Algorithm algorithm, CollectiveKind kind, const AlgorithmBench& o, const comm::Links& links,
                          std::int64_t elements) {
  std::vector<int> members(static_cast<std::size_t>(o.ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto bytes = [&](int rank, int chunk) -> std::int64_t {
    const std::int64_t i = chunk < o.ranks ? chunk : rank;  // of the second row: as the rank's own
    return 4 * (elements * (i + 1) / o.ranks - elements * i / o.ranks);
  };
  return comm::simulate(all_steps(algorithm, spec_of(kind, o.ranks, links)), members, links, bytes);
}

Work run(ProcessGroup& group, CollectiveKind kind, const Tensor& whole, const Tensor& share, const Tensor& other) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return group.all_reduce(whole, ReduceOp::sum, Launch::lazy, SumOrder::any);
    case CollectiveKind::reduce_scatter:
      return group.reduce_scatter(whole, share, Launch::lazy, SumOrder::any);
    case CollectiveKind::all_gather:
      return group.all_gather(share, whole);
    case CollectiveKind::broadcast:
      return group.broadcast(whole, 0);
    default:
      return group.all_to_all(whole, other);
  }
}

/// The median over the repetitions of the slowest rank's seconds.
double measured(Algorithm algorithm, CollectiveKind kind, const AlgorithmBench& o, const comm::Links& links,
                std::int64_t elements) {
  const auto network = std::make_shared<comm::Network>(links);
  double median = 0;
  run_thread_ranks(o.ranks, 1, std::chrono::hours(1), [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto group = comm::with_algorithm(world, {.algorithm = algorithm, .network = network});
    const Tensor whole = Tensor::zeros({elements}), share = Tensor::zeros({elements / o.ranks}),
                 other = Tensor::zeros({elements});
    Tensor times = Tensor::zeros({repetitions}, DType::f64);
    for (double& time : times.span<double>()) {
      world->barrier();
      const auto start = std::chrono::steady_clock::now();
      run(*group, kind, whole, share, other).wait();
      time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    world->all_reduce(times, ReduceOp::max).wait();
    const auto all = times.span<double>();
    std::sort(all.begin(), all.end());
    if (world->rank() == 0) median = all[repetitions / 2];
  });
  return median;
}

struct Row {
  Algorithm algorithm;
  std::int64_t bytes;
  double predicted, measured;  // seconds
};

/// "from 1024 bytes tree, from 65536 bytes ring": the fastest algorithm, by size. One remains the fastest until another
/// is faster by more than repetitions differ.
std::string fastest(const std::vector<Row>& rows, double Row::*seconds) {
  constexpr double noise = 0.05;
  std::map<std::int64_t, std::vector<const Row*>> sizes;
  for (const Row& row : rows) sizes[row.bytes].push_back(&row);
  const auto time = [seconds](const Row* row) { return row->*seconds; };
  std::string text;
  std::optional<Algorithm> last;
  for (const auto& [bytes, of_size] : sizes) {
    const Row* const best = *std::ranges::min_element(of_size, {}, time);
    const auto before = std::ranges::find_if(of_size, [&](const Row* row) { return row->algorithm == last; });
    if (before != of_size.end() && time(*before) <= (1 + noise) * time(best)) continue;
    text += fmt::format("{}from {} bytes {}", text.empty() ? "" : ", ", bytes, name(best->algorithm));
    last = best->algorithm;
  }
  return text;
}

std::string draw(const std::vector<Row>& rows, const AlgorithmBench& o) {
  using namespace pictures;
  constexpr Rect inside = {70, 40, 640, 340};
  double low = rows.front().measured, high = low;
  for (const Row& row : rows) {
    low = std::min({low, row.predicted, row.measured});
    high = std::max({high, row.predicted, row.measured});
  }
  const double octaves = std::max(1.0, std::log2(static_cast<double>(o.largest) / static_cast<double>(o.smallest)));
  const auto place = [&](std::int64_t bytes, double seconds) {
    const double x = std::log2(static_cast<double>(bytes) / static_cast<double>(o.smallest)) / octaves;
    const double y = std::log2(seconds / low) / std::max(1e-9, std::log2(high / low));
    return Point{inside.x + x * inside.width, inside.bottom() - y * inside.height};
  };
  const std::string title = fmt::format("{} of {} ranks", o.operation, o.ranks);
  Drawing drawing(title,
                  "Time by size for each algorithm: lines are predicted, points are measured. Both axes are "
                  "logarithmic.");
  drawing.text({inside.x, 18}, title + ": lines are predicted, points are measured", {.bold = true});
  for (std::int64_t bytes = o.smallest; bytes <= o.largest; bytes *= o.factor) {
    const double x = place(bytes, low).x;
    drawing.line({x, inside.y}, {x, inside.bottom()}, {.tone = Tone::idle, .width = 1});
    drawing.text({x, inside.bottom() + 16}, fmt::format("{} KiB", static_cast<double>(bytes) / 1024),
                 {.anchor = Anchor::middle, .muted = true});
  }
  for (const double seconds : {low, high})
    drawing.text({inside.x - 8, place(o.smallest, seconds).y}, fmt::format("{:.3g} ms", 1e3 * seconds),
                 {.anchor = Anchor::end, .muted = true});
  double x = inside.x;
  int number = 0;
  for (const auto& [label, algorithm] : comm::algorithms()) {
    const Tone tone = number == 4 ? Tone::plain : tone_of_rank(number);
    ++number;
    std::vector<Point> line;
    for (const Row& row : rows) {
      if (row.algorithm != algorithm) continue;
      line.push_back(place(row.bytes, row.predicted));
      const Point at = place(row.bytes, row.measured);
      drawing.box({at.x - 4, at.y - 4, 8, 8}, {.tone = tone, .depth = 1, .radius = 4});
    }
    if (line.empty()) continue;
    drawing.polyline(line, {.tone = tone});
    drawing.line({x, inside.bottom() + 40}, {x + 24, inside.bottom() + 40}, {.tone = tone});
    drawing.text({x + 30, inside.bottom() + 40}, label);
    x += 60 + text_width(label, 13);
  }
  return drawing.svg(inside.right() + 30, inside.bottom() + 60);
}

}  // namespace

void bench_algorithms(const AlgorithmBench& o) {
  const CollectiveKind kind = kind_of(o.operation);
  const comm::Links links = read_links(o.links, o.ranks);
  fmt::print("{} of {} rank threads over {}\n{:<13} {:>10} {:>14} {:>13} {:>20}\n", o.operation, o.ranks, o.links,
             "algorithm", "bytes", "predicted ms", "measured ms", "measured / predicted");
  std::vector<Row> rows;
  for (const auto& [label, algorithm] : comm::algorithms()) {
    if (algorithm_for(algorithm, kind) != algorithm) continue;
    if (const std::string why = refusal(algorithm, spec_of(kind, o.ranks, links)); !why.empty()) {
      fmt::print("{:<13} {}\n", name(algorithm), why);
      continue;
    }
    for (std::int64_t bytes = o.smallest; bytes <= o.largest; bytes *= o.factor) {
      const std::int64_t elements = std::max<std::int64_t>(1, bytes / 4 / o.ranks) * o.ranks;
      const Row row{algorithm, 4 * elements, simulated(algorithm, kind, o, links, elements).seconds,
                    measured(algorithm, kind, o, links, elements)};
      rows.push_back(row);
      fmt::print("{:<13} {:>10} {:>14.3f} {:>13.3f} {:>20.3f}\n", name(algorithm), row.bytes, 1e3 * row.predicted,
                 1e3 * row.measured, row.measured / row.predicted);
      std::fflush(stdout);
    }
  }
  fmt::print("fastest, predicted: {}\nfastest, measured:  {}\n", fastest(rows, &Row::predicted),
             fastest(rows, &Row::measured));
  if (!o.svg.empty()) write_file(o.svg, draw(rows, o));
}

void draw_trace(const AlgorithmBench& o, const std::string& algorithm) {
  const CollectiveKind kind = kind_of(o.operation);
  const comm::Links links = read_links(o.links, o.ranks);
  const auto& all = comm::algorithms();
  const auto chosen =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == algorithm; })->second;
  if (const std::string why = refusal(chosen, spec_of(kind, o.ranks, links)); !why.empty())
    fail(ExitCode::usage, "comm_bench", "{}; change --trace or --ranks", why);
  const std::string title =
      fmt::format("{} of {} ranks by {}", o.operation, o.ranks, name(algorithm_for(chosen, kind)));
  write_file(o.svg, pictures::draw_messages(title, o.ranks,
                                            simulated(algorithm_for(chosen, kind), kind, o, links, o.largest / 4)));
}

}  // namespace trireme::bench

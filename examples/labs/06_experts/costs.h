// What an answer to lab 6 costs: the grader's checks of predictions, bytes, messages and time.
// Read next: grader.cpp.
#pragma once

#include <fmt/ranges.h>

#include <set>

#include "examples/labs/06_experts/ranks.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::experts {

/// While tokens are routed, sums over them are enough.
inline void check_sums_travel(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 6);
  const Layer layer = layer_of(grading, 60 * ranks + 1, 2 * ranks, 2);
  const Split split{ranks, layer.tokens()};
  const std::int64_t enough = 4 * (ranks - 1) * layer.experts() * 4;
  const auto expect = [&](const std::string& what, const Run& run) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t bytes = run.ranks[at(rank)].bytes_sent();
      grading.expect(bytes <= enough,
                     "{}: rank {} sends {} bytes about its {} tokens; {} are enough, however many tokens it has", what,
                     rank, bytes, split.first(rank + 1) - split.first(rank), enough);
      grading.expect(bytes > 0, "{}: rank {} sends nothing, although it depends on all ranks' tokens", what, rank);
    }
  };
  const Routed result = routed(answers, layer, split);
  expect("route", result.run);
  expect("balance_loss", run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
           answers.balance_loss(rank, split.of(layer.p, rank.rank()), layer.routing);
         }));
}

/// How many rows a rank must send, to experts and back; and how many if each choice has a row of its own.
struct Rows {
  std::vector<std::int64_t> least, most;  // by rank
};

// A token that chose two experts of one rank could be sent once.
inline Rows rows_of(const OneRank& one, const Experts& experts, const Split& split) {
  Rows rows{std::vector<std::int64_t>(at(split.ranks)), std::vector<std::int64_t>(at(split.ranks))};
  for (std::int64_t t = 0; t < split.tokens; ++t) {
    std::set<int> to;
    for (const std::int32_t e : view::select(one.expert, 0, t).span<const std::int32_t>()) {
      if (e < 0 || experts.rank_of(e) == split.rank_of(t)) continue;
      to.insert(experts.rank_of(e));
      ++rows.most[at(split.rank_of(t))];
      ++rows.most[at(experts.rank_of(e))];
    }
    for (const int rank : to) {
      ++rows.least[at(split.rank_of(t))];
      ++rows.least[at(rank)];
    }
  }
  return rows;
}

inline void check_traffic(const Answers& answers, Grading& grading, bool backward) {
  const int ranks = grading.pick(3, 6);
  const Layer layer = layer_of(grading, 40 * ranks + 1, 4 * ranks, 2, 64);
  const Split split{ranks, layer.tokens()};
  const OneRank one(layer);
  const Ran result = ran(answers, layer, split, one, backward), forward = ran(answers, layer, split, one, false);
  grading.expect(result.error);
  grading.expect(forward.error);
  const Rows rows = rows_of(one, result.experts[0], split);
  const std::int64_t row = layer.width() * 4, counts = 2 * (ranks - 1) * layer.experts() * 4;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t bytes = result.run.ranks[at(rank)].bytes_sent(), messages = result.run.ranks[at(rank)].messages_sent();
    if (backward) {
      bytes -= forward.run.ranks[at(rank)].bytes_sent();
      messages -= forward.run.ranks[at(rank)].messages_sent();
    }
    const std::int64_t least = rows.least[at(rank)] * row, most = rows.most[at(rank)] * row + counts;
    grading.expect(bytes >= least,
                   "rank {} of {} sends {} bytes; the rows of its tokens and its results are {}. Ranks know of each "
                   "other by messages only",
                   rank, ranks, bytes, least);
    grading.expect(bytes <= most,
                   "rank {} of {} sends {} bytes; the rows that have to travel, and their counts, are {}", rank, ranks,
                   bytes, most);
    grading.expect(messages <= 4 * (ranks - 1),
                   "rank {} sends {} messages to {} other ranks; {} would do. Each message costs its latency", rank,
                   messages, ranks - 1, 4 * (ranks - 1));
  }
}

/// rows[r][q]: rows of rank r for experts of rank q. There, through the experts, and back.
inline Run exchanged(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t width, double seconds_per_row) {
  const int n = static_cast<int>(rows.size());
  return run_ranks({.ranks = n}, [&](Rank& rank) {
    const auto others = [&](const auto& act) {
      for (int k = 1; k < n; ++k) act((rank.rank() + k) % n);
    };
    const auto swap = [&](const auto& sent, const auto& received) {
      others([&](int to) {
        if (sent(to) > 0) rank.send(Tensor::zeros({sent(to), width}), to);
      });
      others([&](int from) {
        if (received(from) > 0) rank.receive(from);
      });
    };
    const auto out = [&](int q) { return rows[at(rank.rank())][at(q)]; };
    const auto in = [&](int q) { return rows[at(q)][at(rank.rank())]; };
    swap(out, in);
    std::int64_t all = 0;
    for (int r = 0; r < n; ++r) all += in(r);
    rank.compute(seconds_per_row * static_cast<double>(all), "experts");
    swap(in, out);
  });
}

inline std::vector<std::vector<std::int64_t>> balanced(const Cost& cost) {
  return {at(cost.ranks), std::vector<std::int64_t>(at(cost.ranks), cost.tokens / cost.ranks)};
}

inline comm::Links links_of(const Cost& cost) { return equal_links(cost.latency, cost.bytes_per_second); }

/// A picture: what it does to all ranks that many tokens choose one expert.
inline void show_imbalance(const Answers& answers, Grading& grading) {
  const Layer layer = layer_of(grading, 80, 4, 1, 64);
  const Ran result = ran(answers, layer, {4, 80}, OneRank(layer), true, 1e-6);
  if (result.error.empty())
    grading.show(timed(result.run, equal_links(1e-6, 5e8)), "Lab 6: forward and backward of experts");
}

/// Links that decide: every token goes to an expert of its own, so that all ranks send each other equally much.
inline void check_time(const Answers& answers, Grading& grading) {
  const Cost cost{.ranks = 8,
                  .tokens = 8 * grading.pick(3, 6),
                  .width = 64,
                  .seconds_per_row = 1e-7,
                  .latency = 1e-7,
                  .bytes_per_second = 1e8};
  const Split split{cost.ranks, cost.ranks * cost.tokens};
  Layer layer = layer_of(grading, split.tokens, cost.ranks, 1, cost.width);
  for (std::int64_t t = 0; t < split.tokens; ++t)
    for (std::int64_t e = 0; e < layer.experts(); ++e)
      layer.p.data<float>()[t * layer.experts() + e] = e == t % layer.experts() ? 0.9F : 0.1F / 7;
  layer.routing.capacity_factor = 1;
  const OneRank one(layer);
  const Ran result = ran(answers, layer, split, one, false, cost.seconds_per_row);
  const Timeline timeline = timed(result.run, links_of(cost));
  grading.show(timeline, "Lab 6: forward of balanced experts");
  grading.expect(result.error);
  for (int rank = 0; rank < split.ranks; ++rank)
    grading.expect(difference(fmt::format("y on rank {}", rank), result.outputs[at(rank)].y, split.of(one.y, rank)));
  const double least = timed(exchanged(balanced(cost), cost.width, cost.seconds_per_row), links_of(cost)).seconds;
  grading.expect(
      timeline.seconds <= 1.25 * least,
      "forward takes {:.1f} us, although all ranks send each other equally much; {:.1f} are possible. A port "
      "carries one message at a time, and here ranks wait for ports that others use",
      1e6 * timeline.seconds, 1e6 * least);
  show_imbalance(answers, grading);
}

inline void check_predictions(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 8), k = grading.pick(1, 3);
  const Cost cost{.ranks = ranks,
                  .tokens = ranks * grading.pick(3, 9),
                  .width = 16 * grading.pick(1, 4),
                  .seconds_per_row = 1e-6 * grading.pick(1, 9),
                  .latency = 1e-6 * grading.pick(1, 9),
                  .bytes_per_second = 1e8 * grading.pick(1, 9)};
  const auto bytes = static_cast<double>(answers.bytes_sent(ranks, cost.tokens, k, cost.width));
  const double even = answers.balanced_seconds(cost), hot = answers.hot_seconds(cost);
  Cost choices = cost;
  choices.tokens *= k;
  const Run all = exchanged(balanced(choices), cost.width, 0);
  const std::string size = fmt::format("{} ranks, {} tokens on each, D = {}", ranks, cost.tokens, cost.width);
  grading.predict("bytes that a rank sends", fmt::format("{}, k = {}", size, k), bytes,
                  static_cast<double>(all.ranks[0].bytes_sent()));

  std::vector<std::int64_t> chosen;
  for (int e = 0; e < 4; ++e) chosen.push_back(grading.pick(0, 20));
  chosen.push_back(40);
  const double factor = 0.25 * grading.pick(4, 6);
  const auto dropped = static_cast<double>(answers.dropped(chosen, factor));
  grading.predict("choices dropped", fmt::format("chosen by {}, a factor of {}", fmt::join(chosen, ", "), factor),
                  dropped, static_cast<double>(OneRank(layer_that_chooses(grading, chosen, factor)).dropped));

  const auto seconds = [&](const auto& rows) {
    return timed(exchanged(rows, cost.width, cost.seconds_per_row), links_of(cost)).seconds;
  };
  const std::string given = fmt::format("{}, {:.0f} us a row, a latency of {:.0f} us, {:.0f} MB/s", size,
                                        1e6 * cost.seconds_per_row, 1e6 * cost.latency, 1e-6 * cost.bytes_per_second);
  grading.predict("seconds of a balanced layer", given, even, seconds(balanced(cost)));
  std::vector<std::vector<std::int64_t>> one_expert(at(ranks), std::vector<std::int64_t>(at(ranks)));
  for (auto& row : one_expert) row[0] = cost.tokens;
  grading.predict("seconds when one expert has all tokens", given, hot, seconds(one_expert));
}

}  // namespace trireme::labs::experts

// Checks of combined(), chunks_of() and ring_attention(): outputs, bytes, scores, time, and room for keys.
#pragma once

#include <algorithm>
#include <cmath>

#include "examples/labs/05_sequence/one_rank.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::sequence {

/// The learner's chunks, by rank. Throws unless each chunk is on one rank.
inline std::vector<Chunks> all_chunks(const Answers& answers, int ranks) {
  std::vector<Chunks> chunks;
  std::vector<int> owner(at(2 * ranks), -1);
  for (int rank = 0; rank < ranks; ++rank) {
    for (const int chunk : chunks.emplace_back(answers.chunks_of(rank, ranks))) {
      require(chunk >= 0 && chunk < 2 * ranks, "chunks_of", "rank {} of {} holds chunk {}; expected 0 to {}", rank,
              ranks, chunk, 2 * ranks - 1);
      require(owner[at(chunk)] < 0, "chunks_of",
              "of {} ranks, chunk {} is on rank {} and again on rank {}; expected each once", ranks, chunk,
              owner[at(chunk)], rank);
      owner[at(chunk)] = rank;
    }
  }
  return chunks;
}

inline Tensor cut(const Tensor& x, const Chunks& chunks, int ranks) {  // [T, H, D] -> [T/n, H, D]
  const std::int64_t length = x.size(0) / (2 * ranks);
  return concat({slice(x, 0, chunks[0] * length, length), slice(x, 0, chunks[1] * length, length)}, 0);
}

/// The scores that are not masked, of the queries in a rank's chunks, for one head.
inline double visible(const Chunks& chunks, std::int64_t chunk_length) {
  double scores = 0;
  for (const int chunk : chunks)
    scores += scores_of(chunk_length, chunk_length * chunk, false) + scores_of(chunk_length, chunk_length, true);
  return scores;
}

struct Attended {
  std::vector<Chunks> chunks;
  std::vector<Tensor> out;  // by rank
  Run run;
};

inline Attended ring(const Answers& answers, const Qkv& x, int ranks) {
  Attended result{.chunks = all_chunks(answers, ranks), .out = std::vector<Tensor>(at(ranks)), .run = {}};
  result.run = run_ranks({.ranks = ranks}, [&](Rank& rank) {
    const Chunks& chunks = result.chunks[at(rank.rank())];
    result.out[at(rank.rank())] =
        answers.ring_attention(rank, each(x, [&](const Tensor& part) { return cut(part, chunks, ranks); }));
  });
  return result;
}

inline void expect_outputs(Grading& grading, const Attended& result, const Tensor& want) {
  const int ranks = static_cast<int>(result.out.size());
  const std::int64_t length = want.size(0) / (2 * ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor& out = result.out[at(rank)];
    const Tensor own = cut(want, result.chunks[at(rank)], ranks);
    if (!out.defined() || out.shape() != own.shape())
      grading.expect(difference(fmt::format("output on rank {} of {}", rank, ranks), out, own));
    for (int i = 0; i < 2; ++i) {
      const std::int64_t first = result.chunks[at(rank)][at(i)] * length;
      grading.expect(difference(fmt::format("output on rank {} of {}, positions {} to {} of {}", rank, ranks, first,
                                            first + length - 1, want.size(0)),
                                view::slice(out, 0, i * length, length), view::slice(own, 0, i * length, length)));
    }
  }
  for (const std::string& left : result.run.left) grading.expect(left);
}

inline void check_combined(const Answers& answers, Grading& grading) {
  for (const double scale : {1.0, 1.0, 60.0}) {  // with the last, e^score is too large for f32
    const Sizes s = {1, grading.pick(11, 20), grading.pick(1, 3), grading.pick(3, 8)};
    const Qkv x = random_qkv(grading, s, scale);
    const std::int64_t first = grading.pick(2, 4), second = grading.pick(2, 4);
    Partial both, all;
    run_ranks({.ranks = 1}, [&](Rank& rank) {
      const auto part = [&](std::int64_t begin, std::int64_t length) {
        return attend(rank, x.q, slice(x.k, 0, begin, length), slice(x.v, 0, begin, length), false);
      };
      both = answers.combined(part(0, first), part(first, second));
      const std::int64_t begin = first + second;
      all = answers.combined(no_keys(x.q), answers.combined(part(begin, s.length - begin), both));
    });
    const auto expect = [&](const Partial& got, std::int64_t keys, const std::string& name) {
      const Qkv some = {x.q, slice(x.k, 0, 0, keys), slice(x.v, 0, 0, keys)};
      grading.expect(difference(fmt::format("out / sum of {}, with scores up to about {:.0f}", name, 3 * scale),
                                got.out / got.sum, OneRank(some, false).out));
    };
    expect(both, first + second, fmt::format("{} keys and {} more", first, second));
    expect(all, s.length,
           fmt::format("no keys, {} keys, and {} more in two parts", s.length - first - second, first + second));
  }
}

inline void check_order(const Answers& answers, Grading& grading) {
  for (const int ranks : {2, 4, grading.pick(5, 9)}) {
    double most = 0, sum = 0;
    int slowest = 0;
    const std::vector<Chunks> chunks = all_chunks(answers, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const double work = visible(chunks[at(rank)], 100);
      sum += work;
      if (work > most) slowest = rank;
      most = std::max(most, work);
    }
    grading.expect(most * ranks <= 1.0001 * sum,
                   "of {} ranks, with chunks of 100 tokens, rank {} has {:.2f} times the mean work: all wait for it",
                   ranks, slowest, most * ranks / sum);
  }
}

inline void check_outputs(const Answers& answers, Grading& grading) {
  for (const int ranks : {2, grading.pick(3, 4), grading.pick(5, 6)}) {
    const Sizes s = ring_sizes(grading, ranks);
    const Qkv x = random_qkv(grading, s, ranks > 4 ? 60 : 1);
    expect_outputs(grading, ring(answers, x, ranks), OneRank(x, true).out);
  }
}

inline void check_ring_traffic(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(4, 7);
  const Sizes s = ring_sizes(grading, ranks);
  const Run run = ring(answers, random_qkv(grading, s), ranks).run;
  const std::int64_t block = 2 * s.bytes(), most = (ranks - 1) * block;
  for (int rank = 0; rank < ranks; ++rank) {
    const Record& record = run.ranks[at(rank)];
    const std::int64_t bytes = record.bytes_sent();
    // The late half of rank 0's keys is seen by no other rank, and need not travel.
    grading.expect(bytes >= most - block / 2,
                   "rank {} of {} sent {} bytes; the keys and values of one rank are {}, and the others need them. "
                   "Ranks know of each other by messages only",
                   rank, ranks, bytes, block);
    grading.expect(bytes == record.bytes_sent_to((rank + 1) % ranks), "rank {} of {} sends to other ranks than {}",
                   rank, ranks, (rank + 1) % ranks);
    grading.expect(bytes <= most, "rank {} of {} sent {} bytes, {:.2f} times the keys and values of one rank", rank,
                   ranks, bytes, static_cast<double>(bytes) / static_cast<double>(block));
  }
}

inline void check_work(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(4, 7);
  const Sizes s = ring_sizes(grading, ranks);
  const Attended result = ring(answers, random_qkv(grading, s), ranks);
  const Timeline timeline = timed(result.run, equal_links(0, 1e15));
  for (int rank = 0; rank < ranks; ++rank) {
    const double got = timeline.computing(rank) / seconds_per_score / static_cast<double>(s.heads);
    const double want = visible(result.chunks[at(rank)], s.length / (2 * ranks));
    grading.expect(
        std::abs(got - want) <= 1e-6 * want,
        "rank {} of {} computed {:.0f} scores a head with attend(); its queries have {:.0f} that are not masked", rank,
        ranks, got, want);
  }
}

/// A rank that passes keys on holds them. All that it holds, but those before, it must have computed with by then.
inline void expect_room_for_two(Grading& grading, const Run& run) {
  const int ranks = static_cast<int>(run.ranks.size());
  const Timeline timeline = timed(run, equal_links(0, 1e15));  // messages arrive at once
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t messages = run.ranks[at(rank)].messages_sent();
    const double all = timeline.computing(rank);
    std::int64_t sent = 0;
    for (const Span& send : timeline.ranks[at(rank)]) {
      if (send.kind != Span::Kind::send) continue;
      const std::int64_t block = sent++ * (ranks - 1) / messages;  // 0: the rank's own
      double computed = 0;
      for (const Span& span : timeline.ranks[at(rank)])
        if (span.kind == Span::Kind::compute && span.end <= send.begin + 1e-12) computed += span.end - span.begin;
      grading.expect(computed * ranks >= 0.999 * static_cast<double>(block - 2) * all,
                     "rank {} had received the keys and values of {} other ranks when it had computed {:.0f}% of its "
                     "scores. They need memory: a ring has those in use, and those that arrive next",
                     rank, block, 100 * computed / all);
    }
  }
}

/// The same run is checked and timed.
inline void check_overlap(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(6, 8);
  const std::int64_t chunk = grading.pick(5, 8);
  const Sizes s = {ranks, 2 * chunk * ranks, 2, 8};
  const Qkv x = random_qkv(grading, s);
  const Attended result = ring(answers, x, ranks);
  const double step = 2 * scores_of(chunk, chunk, false) * static_cast<double>(s.heads) * seconds_per_score;
  const Timeline timeline =
      timed(result.run, equal_links(0.02 * step, static_cast<double>(2 * s.bytes()) / (0.7 * step)));
  if (timeline.seconds > 0) grading.show(timeline, "Lab 5: ring attention");
  expect_outputs(grading, result, OneRank(x, true).out);
  grading.expect(timeline.seconds <= 1.02 * s.fair_share(),
                 "the ring takes {:.2f} ms; shared equally, the scores take {:.2f}. A message takes 0.72 of a step's "
                 "computation. Look at the picture: where does a rank wait?",
                 1e3 * timeline.seconds, 1e3 * s.fair_share());
  expect_room_for_two(grading, result.run);
}

}  // namespace trireme::labs::sequence

// Ring attention over four ranks: for every step, which chunks of queries meet which chunks of keys, and on which rank.
// Here a chunk is one token long, so nn::zigzag and nn::ring_step, which work on tokens, give chunks.
#include "nn/ring_attention.h"

#include <fmt/core.h>

#include "examples/pictures/pictures.h"
#include "examples/pictures/svg.h"
#include "nn/positions.h"

namespace trireme::pictures {

namespace {

constexpr int ranks = 4, chunks = 2 * ranks;
constexpr double cell = 18, left = 40, top = 108, grid_pitch = 190;

/// The chunk of a rank's local token.
int chunk_of(int rank, std::int64_t local) {
  for (const nn::PositionRun& run : nn::zigzag(chunks, ranks, rank)) {
    if (local >= run.local && local < run.local + run.length) return static_cast<int>(run.global + local - run.local);
  }
  return -1;
}

struct Pair {
  int query, key;  ///< chunks
  int rank;
};

std::vector<Pair> pairs_of_step(int step) {
  std::vector<Pair> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    const nn::RingStep s = nn::ring_step(step, rank, ranks, chunks / ranks);
    for (std::int64_t q = s.first_query; q < s.first_query + s.queries; ++q) {
      for (std::int64_t k = s.first_key; k < s.first_key + s.keys; ++k) {
        if (!s.causal || k <= q) pairs.push_back({chunk_of(rank, q), chunk_of(s.source, k), rank});
      }
    }
  }
  return pairs;
}

/// The causal mask cuts a chunk that meets itself: only the lower triangle remains.
void draw_pair(Drawing& drawing, Point corner, const Pair& pair, Tone tone) {
  const Rect box{corner.x + cell * pair.key, corner.y + cell * pair.query, cell, cell};
  if (pair.query != pair.key) return drawing.box(box, {.tone = tone, .radius = 0});
  drawing.polygon({{box.x, box.y}, {box.x, box.bottom()}, {box.right(), box.bottom()}}, tone);
}

/// The grid of one step. Pairs of earlier steps are grey.
void draw_step(Drawing& drawing, int step) {
  const Point corner{left + grid_pitch * step, top};
  drawing.text({corner.x, top - 56}, fmt::format("step {}", step), {.bold = true});
  drawing.text({corner.x, top - 38}, step == 0 ? "own keys" : fmt::format("keys of rank r − {}", step),
               {.size = 12, .muted = true});
  const Point end{corner.x + cell * chunks, corner.y + cell * chunks};
  for (const Point side : {Point{end.x, corner.y}, Point{corner.x, end.y}}) {
    drawing.line(corner, side, {.width = 1});
    drawing.line(end, side, {.width = 1});
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t local = 0; local < chunks / ranks; ++local) {
      const int chunk = chunk_of(rank, local);
      const BoxStyle own{.tone = tone_of_rank(rank), .border = Border::none, .radius = 0};
      const TextStyle number{.size = 11};
      drawing.label({corner.x + cell * chunk, corner.y - cell - 2, cell, cell}, own, std::to_string(chunk), number);
      drawing.label({corner.x - cell - 2, corner.y + cell * chunk, cell, cell}, own, std::to_string(chunk), number);
    }
  }
  for (int earlier = 0; earlier < step; ++earlier) {
    for (const Pair& pair : pairs_of_step(earlier)) draw_pair(drawing, corner, pair, Tone::idle);
  }
  for (const Pair& pair : pairs_of_step(step)) draw_pair(drawing, corner, pair, tone_of_rank(pair.rank));
}

}  // namespace

std::string draw_ring_attention() {
  Drawing drawing(
      "Causal ring attention over four ranks, chunks in zigzag",
      "Four grids, one per step of the ring, of eight chunks of queries by eight chunks of keys. Rank r has "
      "chunks r and 7 - r. In each step every rank computes pairs of the area of two squares; after four "
      "steps the pairs fill the causal triangle.");
  drawing.text({left - cell - 2, 24}, "Causal ring attention on four ranks: queries stay, keys go round",
               {.size = 15, .bold = true});
  for (int step = 0; step < ranks; ++step) draw_step(drawing, step);
  const double y = top + cell * chunks + 22;
  double x = left;
  for (int rank = 0; rank < ranks; ++rank) {
    drawing.box({x, y - 7, 14, 14}, {.tone = tone_of_rank(rank)});
    drawing.text({x + 20, y}, fmt::format("rank {}: chunks {}, {}", rank, chunk_of(rank, 0), chunk_of(rank, 1)),
                 {.size = 12});
    x += 160;
  }
  drawing.box({x, y - 7, 14, 14}, {.tone = Tone::idle});
  drawing.text({x + 20, y}, "earlier steps", {.size = 12});
  drawing.text({left, y + 24},
               "Rows: chunks of queries. Columns: chunks of keys. Each rank computes the area of two squares "
               "in every step.",
               {.size = 12, .muted = true});
  return drawing.svg(790, y + 42);
}

}  // namespace trireme::pictures

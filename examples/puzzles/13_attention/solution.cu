// Puzzle 13: a solution.
#include <algorithm>
#include <cmath>

#include "examples/puzzles/13_attention/puzzle.h"

namespace trireme::puzzles::attention {
namespace {

using cuda::sync_threads;

long score_bytes(int t) { return 2 * 4 * long{t} * t; }

// Block b needs (b + 1) kThreads keys.
int tiles(int t) {
  const int blocks = t / kThreads;
  return blocks * (blocks + 1) / 2 * (kThreads / kTile);
}

/// What a thread knows of the keys that it has seen.
struct Running {
  float largest = -INFINITY, total = 0, out[kDim] = {};
};

__device__ void add_key(Running& running, float score, const float* v) {
  const float largest = std::max(running.largest, score);
  const float rescale = std::exp(running.largest - largest), weight = std::exp(score - largest);
  running.largest = largest;
  running.total = running.total * rescale + weight;
  for (int d = 0; d < kDim; ++d) running.out[d] = running.out[d] * rescale + weight * v[d];
}

__global__ void attend(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  const int thread = static_cast<int>(threadIdx.x), first_query = static_cast<int>(blockIdx.x) * kThreads;
  const int query = std::min(first_query + thread, t - 1);  // threads behind the end repeat the last one
  const int keys = std::min(first_query + kThreads, t);     // that the block needs
  float own[kDim];                                          // the query
  for (int d = 0; d < kDim; ++d) own[d] = kScale * q[query * kDim + d];
  Running running;
  for (int first = 0; first < keys; first += kTile) {
    sync_threads();  // all have used the tile before
    for (int i = thread; i < kTile * kDim; i += kThreads) {
      const int at = first * kDim + i;
      tile_k[i] = at < t * kDim ? k[at] : 0;
      tile_v[i] = at < t * kDim ? v[at] : 0;
    }
    sync_threads();
    for (int key = 0; key < kTile && first + key <= query; ++key) {
      float score = 0;
      for (int d = 0; d < kDim; ++d) score += own[d] * tile_k[key * kDim + d];
      add_key(running, score, tile_v + key * kDim);
    }
  }
  if (first_query + thread < t)
    for (int d = 0; d < kDim; ++d) out[query * kDim + d] = running.out[d] / running.total;
}

const Registered registered(answer("solution", {attend, score_bytes, tiles}));

}  // namespace
}  // namespace trireme::puzzles::attention

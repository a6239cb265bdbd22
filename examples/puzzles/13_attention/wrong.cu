// Puzzle 13: wrong kernels, most of which give the right output for most inputs, each with a part of the message that it
// must get. Do not read this before your own answer: what is wrong shows what is right.
#include <algorithm>
#include <cmath>

#include "examples/puzzles/13_attention/puzzle.h"

namespace trireme::puzzles::attention {
namespace {

using cuda::sync_threads;

using Kernel = void(const float*, const float*, const float*, float*, int);

Answer wrong(std::string name, Kernel* attend, std::string expected) {
  const auto tiles = [](int t) { return t / kThreads * (t / kThreads + 1); };
  return answer(std::move(name), {attend, [](int t) { return 8 * long{t} * t; }, tiles}, std::move(expected));
}

struct Running {
  float largest = -INFINITY, total = 0, out[kDim] = {};
};

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ int first_query() { return static_cast<int>(blockIdx.x) * kThreads; }
__device__ int own_query(int t) { return std::min(first_query() + thread(), t - 1); }
__device__ int keys_of_block(int t) { return std::min(first_query() + kThreads, t); }

/// The right parts: a tile, the score of one of its keys, its sums, and the output.
__device__ void fill(float* tile_k, float* tile_v, const float* k, const float* v, int first, int t) {
  for (int i = thread(); i < kTile * kDim; i += kThreads) {
    const int at = first * kDim + i;
    tile_k[i] = at < t * kDim ? k[at] : 0;
    tile_v[i] = at < t * kDim ? v[at] : 0;
  }
}
__device__ float score_of(const float* q, const float* key, int t) {
  float score = 0;
  for (int d = 0; d < kDim; ++d) score += q[own_query(t) * kDim + d] * key[d];
  return kScale * score;
}
/// What the sums are multiplied by before a key is added.
struct Factors {
  float total, out;
};
__device__ void add(Running& running, Factors factors, float weight, const float* v) {
  running.total = running.total * factors.total + weight;
  for (int d = 0; d < kDim; ++d) running.out[d] = running.out[d] * factors.out + weight * v[d];
}
__device__ void add_key(Running& running, float score, const float* v) {
  const float largest = std::max(running.largest, score), rescale = std::exp(running.largest - largest);
  running.largest = largest;
  add(running, {rescale, rescale}, std::exp(score - largest), v);
}
__device__ void store(const Running& running, float* out, int t) {
  if (first_query() + thread() >= t) return;
  for (int d = 0; d < kDim; ++d) out[own_query(t) * kDim + d] = running.out[d] / running.total;
}

/// The kernel, with another way to add a key.
template <void kAdd(Running&, float, const float*)>
__global__ void attend(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < keys_of_block(t); first += kTile) {
    sync_threads();
    fill(tile_k, tile_v, k, v, first, t);
    sync_threads();
    for (int i = 0; i < kTile && first + i <= own_query(t); ++i)
      kAdd(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}

/// No maximum at all.
__device__ void no_maximum(Running& running, float score, const float* v) { add(running, {1, 1}, std::exp(score), v); }
const Registered a1(wrong("no maximum", attend<no_maximum>, "large scores: out: not a number"));

/// The maximum of the first key is kept.
__device__ void first_maximum(Running& running, float score, const float* v) {
  if (running.largest == -INFINITY) running.largest = score;
  add(running, {1, 1}, std::exp(score - running.largest), v);
}
const Registered a2(wrong("the first score as the maximum", attend<first_maximum>, "out: not a number"));

/// The maximum begins at 0.
__device__ void not_below_zero(Running& running, float score, const float* v) {
  const float before = std::max(running.largest, 0.0F), largest = std::max(before, score);
  running.largest = largest;
  add(running, {std::exp(before - largest), std::exp(before - largest)}, std::exp(score - largest), v);
}
const Registered a3(wrong("a maximum of at least 0", attend<not_below_zero>, "out: not a number"));

/// Only one of the two sums is rescaled.
__device__ void total_only(Running& running, float score, const float* v) {
  const float largest = std::max(running.largest, score), rescale = std::exp(running.largest - largest);
  running.largest = largest;
  add(running, {rescale, 1}, std::exp(score - largest), v);
}
__device__ void output_only(Running& running, float score, const float* v) {
  const float largest = std::max(running.largest, score), rescale = std::exp(running.largest - largest);
  running.largest = largest;
  add(running, {1, rescale}, std::exp(score - largest), v);
}
const Registered a4(wrong("the output is not rescaled", attend<total_only>, "wrong, by up to"));
const Registered a5(wrong("the sum of weights is not rescaled", attend<output_only>, "wrong, by up to"));

/// Each query sees all keys.
__global__ void not_causal(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < t; first += kTile) {
    sync_threads();
    fill(tile_k, tile_v, k, v, first, t);
    sync_threads();
    for (int i = 0; i < kTile && first + i < t; ++i)
      add_key(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}
const Registered a6(wrong("not causal", not_causal, "t = 2: out: "));

/// Without one of the two barriers.
template <bool kBefore>
__global__ void one_barrier(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < keys_of_block(t); first += kTile) {
    if (kBefore) sync_threads();
    fill(tile_k, tile_v, k, v, first, t);
    if (!kBefore) sync_threads();
    for (int i = 0; i < kTile && first + i <= own_query(t); ++i)
      add_key(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}
const Registered a7(wrong("no barrier after the copy", one_barrier<true>, "of the shared memory of wrong.cu:"));
const Registered a8(wrong("no barrier before the copy", one_barrier<false>, "nothing orders the two"));

/// Threads without a query leave.
__global__ void leaves_early(const float* q, const float* k, const float* v, float* out, int t) {
  if (first_query() + thread() < t) attend<add_key>(q, k, v, out, t);
}
const Registered a9(wrong("threads without a query leave", leaves_early, "deadlock"));

/// Each thread reads only the tiles that its own query sees, with a barrier for each.
__global__ void own_tiles(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first <= own_query(t); first += kTile) {
    sync_threads();
    fill(tile_k, tile_v, k, v, first, t);
    sync_threads();
    for (int i = 0; i < kTile && first + i <= own_query(t); ++i)
      add_key(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}
const Registered a10(wrong("each thread has its own number of tiles", own_tiles, "deadlock"));

/// The last tile is read whole.
__global__ void whole_tiles(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < keys_of_block(t); first += kTile) {
    sync_threads();
    for (int i = thread(); i < kTile * kDim; i += kThreads) {
      tile_k[i] = k[first * kDim + i];
      tile_v[i] = v[first * kDim + i];
    }
    sync_threads();
    for (int i = 0; i < kTile && first + i <= own_query(t); ++i)
      add_key(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}
const Registered a11(wrong("reads keys behind the last", whole_tiles, "outside of k [16]"));

/// A tile is used whole, with a weight of 0 for the keys that a query does not see: what was never copied is multiplied,
/// too.
__global__ void masked_garbage(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < keys_of_block(t); first += kTile) {
    sync_threads();
    for (int i = thread(); i < kTile * kDim && first * kDim + i < t * kDim; i += kThreads) {
      tile_k[i] = k[first * kDim + i];
      tile_v[i] = v[first * kDim + i];
    }
    sync_threads();
    for (int i = 0; i < kTile; ++i) {
      const float score = score_of(q, tile_k + i * kDim, t);
      if (first + i <= own_query(t)) add_key(running, score, tile_v + i * kDim);
    }
  }
  store(running, out, t);
}
const Registered a12(wrong("scores of keys that are not there", masked_garbage, "which nobody wrote before"));

/// All tiles, also those that no query of the block sees.
__global__ void all_tiles(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < t; first += kTile) {
    sync_threads();
    fill(tile_k, tile_v, k, v, first, t);
    sync_threads();
    for (int i = 0; i < kTile && first + i <= own_query(t); ++i)
      add_key(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}
const Registered a13(wrong("tiles that nobody sees", all_tiles, "k is read in"));

/// A thread copies a whole row: the lanes of a warp read words that are 64 bytes apart, and write to two banks.
__global__ void rows_by_thread(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < keys_of_block(t); first += kTile) {
    sync_threads();
    const int row = thread() % kTile;
    const float* const from = thread() < kTile ? k : v;
    float* const to = thread() < kTile ? tile_k : tile_v;
    for (int d = 0; d < kDim; ++d) to[row * kDim + d] = first + row < t ? from[(first + row) * kDim + d] : 0;
    sync_threads();
    for (int i = 0; i < kTile && first + i <= own_query(t); ++i)
      add_key(running, score_of(q, tile_k + i * kDim, t), tile_v + i * kDim);
  }
  store(running, out, t);
}
const Registered a14(wrong("a thread copies a row", rows_by_thread, "k is read in"));

/// Each lane begins with another key: the lanes of a warp read rows that lie in two banks.
__global__ void rotated(const float* q, const float* k, const float* v, float* out, int t) {
  TRIREME_SHARED(float, tile_k, kTile* kDim);
  TRIREME_SHARED(float, tile_v, kTile* kDim);
  Running running;
  for (int first = 0; first < keys_of_block(t); first += kTile) {
    sync_threads();
    fill(tile_k, tile_v, k, v, first, t);
    sync_threads();
    for (int i = 0; i < kTile; ++i) {
      const int key = (i + thread()) % kTile;
      if (first + key <= own_query(t)) add_key(running, score_of(q, tile_k + key * kDim, t), tile_v + key * kDim);
    }
  }
  store(running, out, t);
}
const Registered a15(wrong("each lane has another key", rotated, "without bank conflicts"));

}  // namespace
}  // namespace trireme::puzzles::attention

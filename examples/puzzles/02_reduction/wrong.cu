// Puzzle 2: wrong kernels, most of which give the right sum on a GPU or under one order of the threads, each with a part
// of the message that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <bit>
#include <numeric>

#include "examples/puzzles/02_reduction/puzzle.h"

namespace trireme::puzzles::reduction {
namespace {

using Kernel = void(const float*, float*, int);

Answer wrong(std::string name, Kernel* sum, std::string expected) {
  return answer(std::move(name),
                {sum, [](int threads) -> int { return std::bit_width(static_cast<unsigned>(threads)) - 1; },
                 [](int stride) { return std::gcd(stride, 32); }},
                std::move(expected));
}

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ int threads() { return static_cast<int>(gridDim.x) * kThreads; }
__device__ int first() { return static_cast<int>(blockIdx.x) * kThreads + thread(); }
__device__ float own_sum(const float* x, int n) {
  float own = 0;
  for (int i = first(); i < n; i += threads()) own += x[i];
  return own;
}
/// The right halving, of what is in the slab.
__device__ void halve(float* slab, float* out) {
  for (int half = kThreads / 2; half > 0; half /= 2) {
    sync_threads();
    if (thread() < half) slab[thread()] += slab[thread() + half];
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}

/// No barrier between the writes of the slab and the first halving.
__global__ void no_first_barrier(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread() < half) slab[thread()] += slab[thread() + half];
    sync_threads();
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}
const Registered a1(wrong("no barrier before the first halving", no_first_barrier, "nothing orders the two"));

/// "The lanes of a warp run together anyway": since Volta they need not.
__global__ void warp_without_barriers(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (half >= 32) sync_threads();
    if (thread() < half) slab[thread()] += slab[thread() + half];
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}
const Registered a2(wrong("a warp without barriers", warp_without_barriers, "nothing orders the two"));

/// The barrier is where only the threads that add come.
__global__ void barrier_in_branch(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  sync_threads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread() >= half) continue;
    slab[thread()] += slab[thread() + half];
    sync_threads();
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}
const Registered a3(wrong("a barrier in a branch", barrier_in_branch, "deadlock"));

/// Threads without an element write nothing: what they should have written is whatever was there.
__global__ void unwritten(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  if (first() < n) slab[thread()] = own_sum(x, n);
  halve(slab, out);
}
const Registered a4(wrong("threads without an element write nothing", unwritten, "which nobody wrote before"));

/// The halving begins with one step too many, whose sum is thrown away.
__global__ void beyond_the_slab(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  sync_threads();
  const float other = slab[thread() + kThreads / 2];
  if (thread() < kThreads / 2) slab[thread()] += other;
  for (int half = kThreads / 4; half > 0; half /= 2) {
    sync_threads();
    if (thread() < half) slab[thread()] += slab[thread() + half];
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}
const Registered a5(wrong("reads beyond the slab", beyond_the_slab, "outside every allocation"));

/// The last round reads beyond x; what it reads is multiplied by 0, which is 0 unless it is infinite or NaN.
__global__ void multiplied_by_zero(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  float own = 0;
  for (int round = 0; round * threads() < n; ++round) {
    const int i = round * threads() + first();
    const float value = x[i];
    if (i < n) own += value;
  }
  slab[thread()] = own;
  halve(slab, out);
}
const Registered a6(wrong("reads beyond x", multiplied_by_zero, "outside of x [1]"));

/// Neighbours first: the threads that add are 2, 4, 8, ... apart, and all warps stay busy.
__global__ void every_second(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  for (int step = 1; step < kThreads; step *= 2) {
    sync_threads();
    if (thread() % (2 * step) == 0) slab[thread()] += slab[thread() + step];
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}
const Registered a7(wrong("every second thread", every_second, "shared memory is busy for"));

/// Neighbours first, by neighbouring threads: their words are 2, 4, 8, ... apart.
__global__ void strided(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  for (int step = 1; step < kThreads; step *= 2) {
    sync_threads();
    const int i = 2 * step * thread();
    if (i < kThreads) slab[i] += slab[i + step];
  }
  if (thread() == 0) out[blockIdx.x] = slab[0];
}
const Registered a8(wrong("words that are far apart", strided, "without bank conflicts"));

/// One thread adds all.
__global__ void one_thread(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = own_sum(x, n);
  sync_threads();
  if (thread() > 0) return;
  float total = 0;
  for (int i = 0; i < kThreads; ++i) total += slab[i];
  out[blockIdx.x] = total;
}
const Registered a9(wrong("one thread adds all", one_thread, "shared memory is busy for"));

/// Each thread has a range of its own in x.
__global__ void ranges(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  const int length = (n + threads() - 1) / threads();
  float own = 0;
  for (int i = first() * length; i < n && i < (first() + 1) * length; ++i) own += x[i];
  slab[thread()] = own;
  halve(slab, out);
}
const Registered a10(wrong("a range for each thread", ranges, "sectors of 32 bytes, where"));

/// Only the first warp's sum arrives.
__global__ void one_warp(const float* x, float* out, int n) {
  float own = own_sum(x, n);
  for (int lanes = 16; lanes > 0; lanes /= 2) own += shuffle_down(own, lanes);
  if (thread() == 0) out[blockIdx.x] = own;
}
const Registered a11(wrong("the sum of one warp", one_warp, "n = 255: the sum: "));

/// Each warp adds its sum to the block's element, without atomics: additions are lost.
__global__ void warps_collide(const float* x, float* out, int n) {
  float own = own_sum(x, n);
  for (int lanes = 16; lanes > 0; lanes /= 2) own += shuffle_down(own, lanes);
  if (thread() == 0) out[blockIdx.x] = 0;
  sync_threads();
  if (thread() % 32 == 0) out[blockIdx.x] += own;
}
const Registered a12(wrong("warps add to one element", warps_collide, "race on"));

}  // namespace
}  // namespace trireme::puzzles::reduction

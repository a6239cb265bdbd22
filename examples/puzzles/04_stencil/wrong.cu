// Puzzle 4: wrong kernels, most of which give the right sums for many lengths or under one order of the threads, each with
// a part of the message that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <algorithm>

#include "examples/puzzles/04_stencil/puzzle.h"

namespace trireme::puzzles::stencil {
namespace {

constexpr int kSlab = kThreads + 2 * kRadius;

Answer wrong(std::string name, void (*convolve)(const float*, const float*, float*, int), std::string expected) {
  return answer(
      std::move(name),
      {convolve, [](int threads) { return threads + 2 * kRadius; }, [](int first) { return first % 8 == 0 ? 4 : 5; }},
      std::move(expected));
}

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ int first() { return static_cast<int>(blockIdx.x) * kThreads; }
__device__ float at(const float* x, int i, int n) { return i >= 0 && i < n ? x[i] : 0.0F; }

__device__ void fill(const float* x, float* slab, int n) {
  for (int j = thread(); j < kSlab; j += kThreads) slab[j] = at(x, first() - kRadius + j, n);
}
__device__ float sum_of(const float* slab, const float* w) {
  float sum = 0;
  for (int k = 0; k <= 2 * kRadius; ++k) sum += w[k] * slab[thread() + k];
  return sum;
}

/// No barrier: the neighbours' elements may not be there yet.
__global__ void no_barrier(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  fill(x, slab, n);
  const float sum = sum_of(slab, w);
  if (first() + thread() < n) y[first() + thread()] = sum;
}
const Registered a1(wrong("no barrier", no_barrier, "of the shared memory of wrong.cu:"));

/// Threads without an output leave before the barrier.
__global__ void leaves_early(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  fill(x, slab, n);
  if (first() + thread() >= n) return;
  sync_threads();
  y[first() + thread()] = sum_of(slab, w);
}
const Registered a2(wrong("leaves before the barrier", leaves_early, "deadlock"));

/// The left halo begins before x. Its weights meet zeros on many a machine.
__global__ void before_x(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  for (int j = thread(); j < kSlab; j += kThreads) {
    const int i = first() - kRadius + j;
    slab[j] = i < n ? x[i] : 0.0F;
  }
  sync_threads();
  if (first() + thread() < n) y[first() + thread()] = sum_of(slab, w);
}
const Registered a3(wrong("reads before x", before_x, "x[-4], outside of x [1]"));

/// The nearest element in the place of zero.
__global__ void clamped(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  for (int j = thread(); j < kSlab; j += kThreads) slab[j] = x[std::min(std::max(first() - kRadius + j, 0), n - 1)];
  sync_threads();
  if (first() + thread() < n) y[first() + thread()] = sum_of(slab, w);
}
const Registered a4(wrong("the nearest element outside of x", clamped, "n = 1: y: "));

/// What lies beyond the end of x is not written: zeros on many a machine.
__global__ void unwritten(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  for (int j = thread(); j < kSlab; j += kThreads) {
    const int i = first() - kRadius + j;
    if (i >= 0 && i < n) slab[j] = x[i];
  }
  sync_threads();
  if (first() + thread() < n) y[first() + thread()] = sum_of(slab, w);
}
const Registered a5(wrong("no zeros in the halo", unwritten, "which nobody wrote before"));

/// The right halo is loaded by the last threads, which have no output in the last block and skip it.
__global__ void halo_by_outputs(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  const int i = first() + thread();
  if (i < n) {
    slab[kRadius + thread()] = x[i];
    if (thread() < kRadius) slab[thread()] = at(x, i - kRadius, n);
    if (thread() >= kThreads - kRadius) slab[2 * kRadius + thread()] = at(x, i + kRadius, n);
  }
  sync_threads();
  if (i < n) y[i] = sum_of(slab, w);
}
const Registered a6(wrong("a halo that only full blocks have", halo_by_outputs, "which nobody wrote before"));

/// Block by block, without a halo: neighbours in another block count as zeros.
__global__ void no_halo(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  slab[thread()] = at(x, first() + thread(), n);
  sync_threads();
  if (first() + thread() >= n) return;
  float sum = 0;
  for (int k = -kRadius; k <= kRadius; ++k)
    if (thread() + k >= 0 && thread() + k < kThreads) sum += w[kRadius + k] * slab[thread() + k];
  y[first() + thread()] = sum;
}
const Registered a7(wrong("no halo", no_halo, "n = 129: y: "));

/// Without shared memory: each element is read nine times.
__global__ void direct(const float* x, const float* w, float* y, int n) {
  const int i = first() + thread();
  if (i >= n) return;
  float sum = 0;
  for (int k = -kRadius; k <= kRadius; ++k) sum += w[kRadius + k] * at(x, i + k, n);
  y[i] = sum;
}
const Registered a8(wrong("without shared memory", direct, "x is read in"));

/// One thread fills the slab.
__global__ void one_thread_loads(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  if (thread() == 0)
    for (int j = 0; j < kSlab; ++j) slab[j] = at(x, first() - kRadius + j, n);
  sync_threads();
  if (first() + thread() < n) y[first() + thread()] = sum_of(slab, w);
}
const Registered a9(wrong("one thread fills the slab", one_thread_loads, "x is read in"));

/// One weight too many: it is multiplied by what lies beyond the slab.
__global__ void beyond_the_slab(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);
  fill(x, slab, n);
  sync_threads();
  if (first() + thread() >= n) return;
  float sum = 0, next = slab[thread()];
  for (int k = 0; k <= 2 * kRadius; ++k) {
    sum += w[k] * next;
    next = slab[thread() + k + 1];  // ready for the next round
  }
  y[first() + thread()] = sum;
}
const Registered a10(wrong("reads ahead, beyond the slab", beyond_the_slab, "outside every allocation"));

}  // namespace
}  // namespace trireme::puzzles::stencil

// Puzzle 6: wrong kernels, most of which give the right sums for few elements, or under one order of the threads, each with
// a part of the message that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <numeric>

#include "examples/puzzles/06_histogram/puzzle.h"

namespace trireme::puzzles::histogram {
namespace {

using cuda::sync_threads;

using Kernel = void(const int*, const float*, float*, int);

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ int block() { return static_cast<int>(blockIdx.x); }
__device__ int threads() { return static_cast<int>(gridDim.x) * kThreads; }
__device__ int first() { return block() * kThreads + thread(); }
__device__ bool exists(int bin) { return bin >= 0 && bin < kBins; }

/// The parts of the right kernel.
__device__ void clear(float* copies) {
  for (int b = 0; b < kBins; ++b) copies[b * kThreads + thread()] = 0;
}
__device__ void add_own(float* copies, const int* bin, const float* weight, int n) {
  for (int i = first(); i < n; i += threads())
    if (exists(bin[i])) copies[bin[i] * kThreads + thread()] += weight[i];
}
__device__ void sum_copies(const float* copies, float* partial) {
  if (thread() >= kBins) return;
  float sum = 0;
  for (int c = 0; c < kThreads; ++c) sum += copies[thread() * kThreads + (c + thread()) % kThreads];
  partial[block() * kBins + thread()] = sum;
}
__global__ void join_all(const float* partial, float* out) {
  float sum = 0;
  for (int b = 0; b < kBlocks; ++b) sum += partial[b * kBins + thread()];
  out[thread()] = sum;
}

Answer wrong(std::string name, Kernel* histogram, std::string expected, void (*join)(const float*, float*) = join_all) {
  return answer(std::move(name),
                {histogram, join, [](int bins, int bytes) { return bytes / (bins * 128) * 32; },
                 [](int step) { return std::gcd(step, 32); }},
                std::move(expected));
}

/// One copy for all threads: two that add to one bin lose a weight.
__global__ void one_copy(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, sums, kBins);
  if (thread() < kBins) sums[thread()] = 0;
  sync_threads();
  for (int i = first(); i < n; i += threads())
    if (exists(bin[i])) sums[bin[i]] += weight[i];
  sync_threads();
  if (thread() < kBins) partial[block() * kBins + thread()] = sums[thread()];
}
const Registered a1(wrong("one copy for all", one_copy, "nothing orders the two"));

/// One copy for each warp, in whose lanes' order nothing can be trusted either.
__global__ void copy_for_each_warp(const int* bin, const float* weight, float* partial, int n) {
  constexpr int kWarps = kThreads / 32;
  TRIREME_SHARED(float, copies, kBins* kWarps);
  copies[thread()] = 0;
  sync_threads();
  for (int i = first(); i < n; i += threads())
    if (exists(bin[i])) copies[thread() / 32 * kBins + bin[i]] += weight[i];
  sync_threads();
  if (thread() >= kBins) return;
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += copies[warp * kBins + thread()];
  partial[block() * kBins + thread()] = sum;
}
const Registered a2(wrong("one copy for each warp", copy_for_each_warp, "nothing orders the two"));

/// Reads the other threads' copies without waiting for them.
__global__ void no_barrier(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  add_own(copies, bin, weight, n);
  sum_copies(copies, partial);
}
const Registered a3(wrong("no barrier before the sums", no_barrier, "of the shared memory of wrong.cu:"));

/// Shared memory is often zero when a program begins.
__global__ void not_cleared(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  add_own(copies, bin, weight, n);
  sync_threads();
  sum_copies(copies, partial);
}
const Registered a4(wrong("copies that nobody set to zero", not_cleared, "which nobody wrote before"));

/// Elements without a bin are added, too, before or beyond the copies.
template <int Least, int Most>
__global__ void any_bin(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  for (int i = first(); i < n; i += threads())
    if (bin[i] >= Least && bin[i] <= Most) copies[bin[i] * kThreads + thread()] += weight[i];
  sync_threads();
  sum_copies(copies, partial);
}
const Registered a5(wrong("bins that are too large", any_bin<0, kBins>, "outside every allocation"));
const Registered a14(wrong("negative bins", any_bin<-1, kBins - 1>, "outside every allocation"));

/// Two elements at a time; the second may not exist, and then its bin is not used.
__global__ void two_at_a_time(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  for (int i = first(); i < n; i += 2 * threads()) {
    const int j = i + threads(), one = bin[i], other = bin[j];
    if (exists(one)) copies[one * kThreads + thread()] += weight[i];
    if (j < n && exists(other)) copies[other * kThreads + thread()] += weight[j];
  }
  sync_threads();
  sum_copies(copies, partial);
}
const Registered a6(wrong("reads beyond bin", two_at_a_time, "outside of bin [1]"));

/// copies [kThreads, kBins]: the bank is the bin, and half of the elements are in one bin.
__global__ void rows_of_bins(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  for (int i = thread(); i < kBins * kThreads; i += kThreads) copies[i] = 0;
  sync_threads();
  for (int i = first(); i < n; i += threads())
    if (exists(bin[i])) copies[thread() * kBins + bin[i]] += weight[i];
  sync_threads();
  if (thread() >= kBins) return;
  float sum = 0;
  for (int c = 0; c < kThreads; ++c) sum += copies[c * kBins + thread()];
  partial[block() * kBins + thread()] = sum;
}
const Registered a7(wrong("a row for each thread", rows_of_bins, "without bank conflicts"));

/// All lanes begin with copy 0 of their bins.
__global__ void same_copy(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  add_own(copies, bin, weight, n);
  sync_threads();
  if (thread() >= kBins) return;
  float sum = 0;
  for (int c = 0; c < kThreads; ++c) sum += copies[thread() * kThreads + c];
  partial[block() * kBins + thread()] = sum;
}
const Registered a8(wrong("all begin with copy 0", same_copy, "without bank conflicts"));

/// Every thread sums every bin.
__global__ void everybody_sums(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  add_own(copies, bin, weight, n);
  sync_threads();
  for (int b = 0; b < kBins; ++b) {
    float sum = 0;
    for (int c = 0; c < kThreads; ++c) sum += copies[b * kThreads + c];
    if (thread() == b) partial[block() * kBins + b] = sum;
  }
}
const Registered a9(wrong("every thread sums every bin", everybody_sums, "shared memory is busy for"));

/// A warp reads all the elements of the block, once for each of its bins.
__global__ void elements_again(const int* bin, const float* weight, float* partial, int n) {
  for (int b = thread() / 32; b < kBins; b += kThreads / 32) {
    float sum = 0;
    for (int i = block() * 32 + thread() % 32; i < n; i += kBlocks * 32) {
      const float own = weight[i];
      if (bin[i] == b) sum += own;
    }
    sum = cuda::reduce_warp<cuda::Sum>(sum);
    if (thread() % 32 == 0) partial[block() * kBins + b] = sum;
  }
}
const Registered a10(wrong("the elements are read for each bin", elements_again, "bin is read in"));

/// The first block's place takes the sums of all blocks; the others' are zero.
__global__ void blocks_collide(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  add_own(copies, bin, weight, n);
  sync_threads();
  if (thread() >= kBins) return;
  partial[block() * kBins + thread()] = 0;
  for (int c = 0; c < kThreads; ++c) partial[thread()] += copies[thread() * kThreads + (c + thread()) % kThreads];
}
const Registered a11(wrong("blocks add to one place", blocks_collide, "race on partial["));

/// The blocks' sums are joined without the last block's.
__global__ void right(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  clear(copies);
  add_own(copies, bin, weight, n);
  sync_threads();
  sum_copies(copies, partial);
}
__global__ void join_too_few(const float* partial, float* out) {
  float sum = 0;
  for (int b = 0; b < kBlocks - 1; ++b) sum += partial[b * kBins + thread()];
  out[thread()] = sum;
}
const Registered a12(wrong("the last block is left out", right, "n = 513: out: ", join_too_few));

/// The other blocks' sums are joined from beyond `partial`.
__global__ void join_too_many(const float* partial, float* out) {
  float sum = 0;
  for (int b = 0; b <= kBlocks; ++b) {
    const float value = partial[b * kBins + thread()];
    if (b < kBlocks) sum += value;
  }
  out[thread()] = sum;
}
const Registered a13(wrong("one block too many", right, "outside of partial [128]", join_too_many));

}  // namespace
}  // namespace trireme::puzzles::histogram

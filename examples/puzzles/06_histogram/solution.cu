// Puzzle 6: a solution.
#include <numeric>

#include "examples/puzzles/06_histogram/puzzle.h"

namespace trireme::puzzles::histogram {
namespace {

using cuda::sync_threads;

int threads_that_fit(int bins, int bytes) { return bytes / (bins * 4 * 32) * 32; }

// A row begins at a multiple of 32 words, so the bank is (c + step * lane) % 32.
int wavefronts(int step) { return std::gcd(step, 32); }

// A thread's copy is a column of copies [kBins, kThreads]: whatever the bins are, the lanes of a warp want 32 different
// banks. Nobody else touches the column before the barrier. After it, a warp sums a row: 32 neighbours at a time.
__global__ void histogram(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(gridDim.x) * kThreads;
  for (int b = 0; b < kBins; ++b) copies[b * kThreads + thread] = 0;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + thread; i < n; i += threads) {
    const int b = bin[i];
    if (b >= 0 && b < kBins) copies[b * kThreads + thread] += weight[i];
  }
  sync_threads();
  for (int b = thread / 32; b < kBins; b += kThreads / 32) {
    float sum = 0;
    for (int c = thread % 32; c < kThreads; c += 32) sum += copies[b * kThreads + c];
    sum = cuda::reduce_warp<cuda::Sum>(sum);
    if (thread % 32 == 0) partial[static_cast<int>(blockIdx.x) * kBins + b] = sum;
  }
}

__global__ void join(const float* partial, float* out) {
  const int b = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int block = 0; block < kBlocks; ++block) sum += partial[block * kBins + b];
  out[b] = sum;
}

const Registered registered(answer("solution", {histogram, join, threads_that_fit, wavefronts}));

}  // namespace
}  // namespace trireme::puzzles::histogram

// Puzzle 1: wrong kernels, most of which give the right sums, each with a part of the message that it must get. Do not
// read this before your own answer: what is wrong shows what is right.
#include <algorithm>

#include "examples/puzzles/01_map/puzzle.h"

namespace trireme::puzzles::mapping {
namespace {

int sectors(int stride) { return std::min(32, 31 * 4 * stride / 32 + 1); }

Answer wrong(std::string name, void (*add)(const float*, const float*, float*, int), std::string expected) {
  return answer(std::move(name), {add, sectors}, std::move(expected));
}

__device__ int threads() { return static_cast<int>(gridDim.x * blockDim.x); }
__device__ int first() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

/// The last round has threads for which there is nothing left.
__global__ void no_guard(const float* a, const float* b, float* c, int n) {
  for (int round = 0; round * threads() < n; ++round) {
    const int i = round * threads() + first();
    c[i] = a[i] + b[i];
  }
}
const Registered a1(wrong("no guard", no_guard, "a[1], outside of a [1]"));

/// Only the store is guarded; what the load reads is not used.
__global__ void guarded_store(const float* a, const float* b, float* c, int n) {
  for (int round = 0; round * threads() < n; ++round) {
    const int i = round * threads() + first();
    const float sum = a[i] + b[i];
    if (i < n) c[i] = sum;
  }
}
const Registered a2(wrong("only the store is guarded", guarded_store, "reads at wrong.cu:"));

/// One too many, which the memory after c hides.
__global__ void one_too_many(const float* a, const float* b, float* c, int n) {
  for (int i = first(); i <= n; i += threads()) c[i] = a[i] + b[i];
}
const Registered a3(wrong("one too many", one_too_many, "c[1], outside of c [1]"));

/// One element for each thread.
__global__ void one_each(const float* a, const float* b, float* c, int n) {
  if (first() < n) c[first()] = a[first()] + b[first()];
}
const Registered a4(wrong("one element for each thread", one_each, "n = 513: c: not a number at [512]"));

/// Each thread has a range of its own. The lanes of a warp are far apart.
__global__ void ranges(const float* a, const float* b, float* c, int n) {
  const int length = (n + threads() - 1) / threads();
  for (int i = first() * length; i < std::min(n, (first() + 1) * length); ++i) c[i] = a[i] + b[i];
}
const Registered a5(wrong("a range for each thread", ranges, "sectors of 32 bytes, where"));

/// Every block computes everything. The blocks write the same values.
__global__ void all_blocks(const float* a, const float* b, float* c, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) c[i] = a[i] + b[i];
}
const Registered a6(wrong("every block computes everything", all_blocks, "race on c[0]"));

/// The sum is made in c: its elements move three times.
__global__ void in_two_steps(const float* a, const float* b, float* c, int n) {
  for (int i = first(); i < n; i += threads()) c[i] = a[i];
  for (int i = first(); i < n; i += threads()) c[i] += b[i];
}
const Registered a7(wrong("in two steps", in_two_steps, "c is read in"));

/// The sum is made in a.
__global__ void in_place(const float* a, const float* b, float* c, int n) {
  for (int i = first(); i < n; i += threads()) {
    const_cast<float*>(a)[i] += b[i];
    c[i] = a[i];
  }
}
const Registered a8(wrong("the sum is made in a", in_place, "a[0], which is an input"));

/// Adds to what is in c, which nobody set to zero; it happens to be zero on many a machine.
__global__ void adds_to_c(const float* a, const float* b, float* c, int n) {
  for (int i = first(); i < n; i += threads()) {
    c[i] += a[i];
    c[i] += b[i];
  }
}
const Registered a9(wrong("adds to what is in c", adds_to_c, "c[0], which nobody wrote before"));

/// A warp that moves twice the bytes of its lanes, predicted.
const Registered a10([] {
  const auto solution = [](const float* a, const float* b, float* c, int n) {
    for (int i = first(); i < n; i += threads()) c[i] = a[i] + b[i];
  };
  return answer("sectors of a dense load", {solution, [](int) { return 4; }}, "predicted 4");
}());

}  // namespace
}  // namespace trireme::puzzles::mapping

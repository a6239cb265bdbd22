// Level 3: the ids are sorted first; then the tokens of a row lie together.
//
// A key is an id followed by its position, so that all keys differ and tokens of a row keep their order. One block
// sorts them in its shared memory, by a bitonic network: it orders pairs at distances of powers of two. The pairs are
// known beforehand, so threads need only barriers. In the second launch a block takes each position, and goes on if an
// id begins there: it adds the segment's rows in registers and touches its row of dweight once. No block searches, and
// the bits are those of the previous level.
//
// What is left: for 105 steps of the sort one multiprocessor works and 131 wait; at most 16,384 keys fit; and a token
// that makes up a tenth of the text is a segment of 1600 rows, which one block adds one after the other.
// Read next: cuda/kernels/embedding.cu, the kernel in use; examples/cuda_lab/embedding/4_shipped.cpp on what it does
// instead.
#include "core/error.h"
#include "examples/cuda_lab/embedding/ladder.h"

namespace trireme::cuda::lab::embedding {

namespace {

constexpr int kSortThreads = 1024, kThreads = 256;
constexpr std::uint64_t kNone = ~std::uint64_t{0};  // sorted behind all others

/// n: a power of two, at least the tokens.
__global__ void __launch_bounds__(kSortThreads) sort_kernel(const __grid_constant__ Problem p, int n) {
  TRIREME_DYNAMIC_SHARED(memory, 16);
  auto* const keys = reinterpret_cast<std::uint64_t*>(memory);  // [n]
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = thread; i < n; i += threads) {
    const int id = i < p.tokens ? p.ids[i] : -1;
    const bool counts = id >= 0 && id < p.vocabulary;
    keys[i] = counts ? static_cast<std::uint64_t>(id) << 32 | static_cast<std::uint64_t>(i) : kNone;
  }
  sync_threads();
  for (int size = 2; size <= n; size *= 2)
    for (int distance = size / 2; distance > 0; distance /= 2) {
      for (int i = thread; i < n / 2; i += threads) {
        const int low = i / distance * 2 * distance + i % distance, high = low + distance;
        const std::uint64_t a = keys[low], b = keys[high];
        if ((a > b) == ((low & size) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      sync_threads();
    }
  for (int i = thread; i < p.tokens; i += threads) p.keys[i] = keys[i];
}

/// A block a position.
__global__ void __launch_bounds__(kThreads) segments_kernel(const __grid_constant__ Problem p) {
  const int begin = static_cast<int>(blockIdx.x);
  const std::uint64_t id = p.keys[begin] >> 32;
  if (p.keys[begin] == kNone || (begin > 0 && p.keys[begin - 1] >> 32 == id)) return;
  float* const to = p.dweight + static_cast<std::int64_t>(id) * p.width;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads) {
    float sum = to[c];
    for (int i = begin; i < p.tokens && p.keys[i] >> 32 == id; ++i)
      sum += to_float(p.dy[static_cast<std::int64_t>(p.keys[i] & 0xffffffff) * p.width + c]);
    to[c] = sum;
  }
}

}  // namespace

void sorted(const Problem& p, Stream stream) {
  require(p.tokens <= kMostSorted, "lab sorted", "{} tokens; expected at most {}, whose keys fit into shared memory",
          p.tokens, kMostSorted);
  int n = 2;
  while (n < p.tokens) n *= 2;
  const unsigned threads = n / 2 < 32 ? 32 : n / 2 < kSortThreads ? static_cast<unsigned>(n / 2) : kSortThreads;
  launch({"lab sort", {1, 1, 1}, {threads, 1, 1}, static_cast<std::size_t>(n) * sizeof(std::uint64_t), stream},
         &sort_kernel, p, n);
  launch({"lab segments", {static_cast<unsigned>(p.tokens), 1, 1}, {kThreads, 1, 1}, 0, stream}, &segments_kernel, p);
}

}  // namespace trireme::cuda::lab::embedding

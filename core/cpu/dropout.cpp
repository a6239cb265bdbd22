// Kernels with a random number for each element, which is not stored: a function of (seed, stream, global element
// index). Dropout, and rounding at random.
// Bytes: x read, y written. FLOPs: ten Philox rounds for every four elements.
#include <cmath>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/strided.h"
#include "core/random.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t dropout_grain = 8192;  // elements worth a thread
constexpr std::int64_t batch = 64;            // Philox blocks made together, four words each

// Words of the blocks [first, first + batch), as philox() in core/random.h makes them one by one: here each round runs
// over all blocks of the batch, which the compiler turns into vector code.
void random_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint32_t* words) {
  alignas(64) std::uint32_t c0[batch], c1[batch], c2[batch], c3[batch];
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(i);
    c0[i] = static_cast<std::uint32_t>(block);
    c1[i] = static_cast<std::uint32_t>(block >> 32);
    c2[i] = static_cast<std::uint32_t>(stream);
    c3[i] = static_cast<std::uint32_t>(stream >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[i], p1 = std::uint64_t{0xCD9E8D57U} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (std::int64_t i = 0; i < batch; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

/// Calls run(words, at, n) for all elements of y, which are the part `where` of a tensor: n elements of y from `at` on
/// have these words.
template <class Run>
void for_words(const Tensor& y, std::uint64_t seed, std::uint64_t stream, const Rectangle& where, const Run& run) {
  const Shape global_strides = row_major_strides(where.global);
  std::int64_t start = 0;
  for (int dim = 0; dim < where.start.dims(); ++dim) start += where.start[dim] * global_strides[dim];
  const auto layout = merge_dims<2>(y.shape(), {row_major_strides(y.shape()), global_strides});
  const std::int64_t step = layout.inner_stride(1);
  parallel_elements(y.count(), dropout_grain, [&](std::int64_t begin, std::int64_t end) {
    for_runs(layout, begin, end, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
      alignas(64) std::uint32_t words[4 * batch];
      for (std::int64_t i = 0, length = 0; i < n; i += length) {
        const auto element = static_cast<std::uint64_t>(start + at[1] + i * step);
        std::int64_t skipped = 0;
        if (step == 1) {
          random_words(seed, stream, element / 4, words);
          skipped = static_cast<std::int64_t>(element % 4);
        }
        length = std::min(n - i, 4 * batch - skipped);
        for (std::int64_t k = 0; k < length && step != 1; ++k)  // a shard one element wide in the last dim
          words[k] = random_word(seed, stream, element + static_cast<std::uint64_t>(k * step));
        run(words + skipped, at[0] + i, length);
      }
    });
  });
}

}  // namespace

void round_at_random(const Tensor& x, std::uint64_t seed, std::uint64_t stream, const Rectangle& where, Tensor& y) {
  for_words(y, seed, stream, where,
            [from = x.data<float>(), to = y.data<bf16>()](const std::uint32_t* word, std::int64_t at, std::int64_t n) {
#pragma GCC ivdep
              for (std::int64_t i = 0; i < n; ++i) to[at + i].bits = stochastic_bf16(from[at + i], word[i]);
            });
}

void dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where, Tensor& y) {
  // An element is kept if its word's upper 24 bits k have k / 2^24 >= p.
  const auto threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  visit_floating(x.dtype(), "dropout", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const A scale = p < 1 ? static_cast<A>(1 / (1 - p)) : A{0};
    for_words(y, seed, stream, where, [=](const std::uint32_t* word, std::int64_t at, std::int64_t n) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i)
        to[at + i] = static_cast<T>((word[i] >> 8) >= threshold ? widen(from[at + i]) * scale : A{0});
    });
  });
}

}  // namespace trireme::cpu

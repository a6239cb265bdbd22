// Attention over a union of two disjoint sets of keys, from attention over each. With a = lse and b = part_lse,
//   lse = log(e^a + e^b)     out = out e^(a - lse) + part e^(b - lse)
// (Milakov and Gimelshein 2018). Ring attention does this with every block that arrives. Each number of out is read and
// written once. Read next: nn/ring_attention.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t merge_grain = 4096;  // elements worth a thread

/// The offset of element (i, j, k) in the first three dims of x.
std::int64_t offset(const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k) {
  return i * x.strides()[0] + j * x.strides()[1] + k * x.strides()[2];
}

template <class T>
void merge_head(const T* part, accumulate_t<T> part_lse, std::int64_t width, accumulate_t<T>* out,
                accumulate_t<T>& lse) {
  using A = accumulate_t<T>;
  const A top = std::max(lse, part_lse);
  if (top == -std::numeric_limits<A>::infinity()) return;  // neither saw a key
  const A kept = std::exp(lse - top), added = std::exp(part_lse - top), total = kept + added;
  map<A>(
      width, [a = kept / total, b = added / total](A x, A y) { return a * x + b * y; }, out, out, part);
  lse = top + std::log(total);
}

}  // namespace

void attention_merge(const Tensor& part, const Tensor& part_lse, Tensor& out, Tensor& lse) {
  if (part.count() == 0) return;
  const std::int64_t length = part.size(1), heads = part.size(2), width = part.size(3);
  visit_floating(part.dtype(), "attention_merge", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    parallel_for(part.size(0) * length, row_grain(heads * width, merge_grain),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const std::int64_t b = row / length, t = row % length;
                     for (std::int64_t h = 0; h < heads; ++h) {
                       merge_head(part.data<T>() + offset(part, b, t, h), part_lse.data<A>()[offset(part_lse, b, h, t)],
                                  width, out.data<A>() + offset(out, b, t, h), lse.data<A>()[offset(lse, b, h, t)]);
                     }
                   }
                 });
  });
}

}  // namespace trireme::cpu

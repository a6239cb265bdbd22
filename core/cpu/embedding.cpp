// Embedding lookup in a slice of the vocabulary, and its gradient.
// Bytes: one row of D read and written per token; backward also reads dweight.
#include <cstring>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t embedding_grain = 32768;  // elements worth a thread
constexpr std::int64_t column_block = 16;        // columns; backward is split in multiples of it: a cache line

}  // namespace

void embedding(const Tensor& weight, const Tensor& ids, std::int64_t first, Tensor& y) {
  const std::int64_t tokens = ids.count(), rows = weight.size(0), width = weight.size(1);
  const std::int32_t* id = ids.data<std::int32_t>();
  const auto row_bytes = static_cast<std::size_t>(width) * size_of(weight.dtype());
  const auto* from = static_cast<const std::byte*>(weight.raw());
  auto* to = static_cast<std::byte*>(y.raw());
  parallel_for(tokens, row_grain(width, embedding_grain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      std::byte* row = to + static_cast<std::size_t>(n) * row_bytes;
      const std::int64_t local = id[n] - first;
      if (local >= 0 && local < rows) {
        std::memcpy(row, from + static_cast<std::size_t>(local) * row_bytes, row_bytes);
      } else {
        std::memset(row, 0, row_bytes);  // all-zero bits are 0 in every floating format
      }
    }
  });
}

// Split by columns: every thread walks all tokens in order, so a row hit many times is summed in the order of n.
void embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t first, Tensor& dweight) {
  const std::int64_t tokens = ids.count(), rows = dweight.size(0), width = dweight.size(1);
  const std::int32_t* id = ids.data<std::int32_t>();
  const std::int64_t blocks = (width + column_block - 1) / column_block;
  visit_floating(dy.dtype(), "embedding_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* from = dy.data<T>();
    A* to = dweight.data<A>();
    parallel_for(blocks, row_grain(tokens * column_block, embedding_grain), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t left = begin * column_block, columns = std::min(width, end * column_block) - left;
      for (std::int64_t n = 0; n < tokens; ++n) {
        const std::int64_t local = id[n] - first;
        if (local < 0 || local >= rows) continue;
        A* row = to + local * width + left;
        map<A>(
            columns, [](A total, A d) { return total + d; }, row, row, from + n * width + left);
      }
    });
  });
}

}  // namespace trireme::cpu

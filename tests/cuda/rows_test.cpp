// Embedding and its gradient, rotary positions and dropout against the CPU kernels.
#include <doctest/doctest.h>

#include <cmath>

#include "core/kernels.h"
#include "cuda/kernels/dropout.h"
#include "cuda/kernels/embedding.h"
#include "cuda/kernels/rope.h"
#include "tests/cuda/support.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;
using testing::same_bits;

namespace rows_test {
namespace {

template <class T>
Tensor tensor_of(const Buffer<T>& buffer, const Shape& shape) {
  Tensor x = Tensor::empty(shape, dtype_of<T>);
  std::memcpy(x.raw(), buffer.values().data(), buffer.size() * sizeof(T));
  return x;
}

/// Ids around a slice of `rows` rows that begins at `first`: some outside, some repeated, some -1. Two sizes are
/// special:
/// - With more than 512 rows, most ids are rows 3, 4, 515 and 516, so two blocks of backward add nearly all gradients.
/// - With 2 rows, most ids are the first row. Its block then has more ids than its list holds.
void fill_ids(Buffer<std::int32_t>& ids, std::int64_t first, std::int64_t rows) {
  for (std::size_t n = 0; n < ids.size(); ++n) {
    const float u = random_uniform(11, 1, n);
    ids.set(n, static_cast<std::int32_t>(first - 2 + static_cast<std::int64_t>(u * u * static_cast<float>(rows + 4))));
    if (rows > 512)
      ids.set(n, static_cast<std::int32_t>(first + 3 + static_cast<int>(n % 2) * 512 + (u < 0.3F ? 1 : 0)));
    if (rows == 2) ids.set(n, static_cast<std::int32_t>(first + (u < 0.1F ? 1 : 0)));
    if (n % 9 == 4) ids.set(n, -1);
  }
}

template <class T>
void check_embedding(std::size_t tokens, std::size_t here, std::size_t width, std::int64_t first, std::size_t offset) {
  CAPTURE(fmt::format("{} tokens, {} rows of {} from {}", tokens, here, width, first));
  const auto n = static_cast<std::int64_t>(tokens), v = static_cast<std::int64_t>(here);
  const auto d = static_cast<std::int64_t>(width);
  Buffer<T> weight(here * width, offset), y(tokens * width), dy(tokens * width, offset);
  Buffer<float> dweight(here * width);
  Buffer<std::int32_t> ids(tokens);
  weight.fill_random(1);
  dy.fill_random(2);
  dweight.fill_random(3);
  fill_ids(ids, first, v);
  const Tensor id = tensor_of(ids, {n});
  Tensor rows = Tensor::empty({n, d}, dtype_of<T>), sums = tensor_of(dweight, {v, d});
  kernels(id.device()).embedding(tensor_of(weight, {v, d}), id, first, rows);
  kernels(id.device()).embedding_backward(tensor_of(dy, {n, d}), id, first, sums);
  embedding(weight.data(), ids.data(), first, n, v, d, y.data());
  embedding_backward(dy.data(), ids.data(), first, n, v, d, dweight.data());
  CHECK(same_bits(tensor_of(y, rows.shape()), rows));
  CHECK(same_bits(tensor_of(dweight, sums.shape()), sums));
}

template <class T>
void check_rope(const Shape& shape, double base, bool inverse, std::size_t offset) {
  CAPTURE(shape);
  const auto count = static_cast<std::size_t>(shape.count()), tokens = static_cast<std::size_t>(shape[1]);
  Buffer<T> x(count, offset), before(count);
  Buffer<std::int32_t> positions(tokens);
  Buffer<float> table(tokens * static_cast<std::size_t>(shape[3]));
  x.fill_random(4);
  before.fill_random(4);
  for (std::size_t t = 0; t < tokens; ++t) positions.set(t, static_cast<std::int32_t>(t * t * 5003 % 100000));
  rope<T>({shape[0], shape[1], shape[2], shape[3], base, inverse, x.data(), positions.data(), table.data(), x.data()});
  const std::size_t half = static_cast<std::size_t>(shape[3]) / 2;
  const double unit = std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, bf16> ? 1.0 / 256 : 1.0 / 2048;
  double worst = 0;
  for (std::size_t head = 0; head < count / (2 * half); ++head)
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t t = head / static_cast<std::size_t>(shape[2]) % tokens, low = head * 2 * half + i;
      const double turn = static_cast<double>(positions.value(t)) *
                          std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
      const double angle = inverse ? -turn : turn, a = before.at(low), b = before.at(low + half);
      keep_largest(worst, std::abs(x.at(low) - (a * std::cos(angle) - b * std::sin(angle))));
      keep_largest(worst, std::abs(x.at(low + half) - (b * std::cos(angle) + a * std::sin(angle))));
    }
  CHECK(worst < unit);  // values are below 1.5: one rounding
}

template <class T>
void check_dropout(const Shape& local, const Shape& whole, const Shape& begin, double p, std::size_t offset) {
  CAPTURE(fmt::format("{} of {} from {}, p {}", local, whole, begin, p));
  const auto count = static_cast<std::size_t>(local.count());
  Buffer<T> x(count, offset), y(count);
  x.fill_random(6);
  Tensor expected = Tensor::empty(local, dtype_of<T>);
  constexpr std::uint64_t seed = 0x123456789abcdefU, stream = stream_of("mlp.dropout");
  kernels(expected.device()).dropout(tensor_of(x, local), p, seed, stream, {whole, begin}, expected);
  dropout(x.data(), y.data(), p, seed, stream, dropout_place(local, whole, begin));
  CHECK(same_bits(tensor_of(y, expected.shape()), expected));
  dropout(x.data(), x.data(), p, seed, stream, dropout_place(local, whole, begin));
  CHECK(same_bits(tensor_of(x, expected.shape()), expected));
}

}  // namespace

TEST_CASE_TEMPLATE("cuda embedding: rows and their gradient equal the CPU's bit for bit", T, float, bf16, f16) {
  under_schedules([] {
    check_embedding<T>(1, 1, 1, 0, 0);
    check_embedding<T>(300, 70, 24, 5, 0);
    check_embedding<T>(131, 33, 13, 0, 1);
    check_embedding<T>(5, 3, 600, 1000, 0);
    check_embedding<T>(6200, 2, 8, 0, 0);   // the list is full several times
    check_embedding<T>(40, 3, 1100, 0, 0);  // two stretches of columns
  });
  check_embedding<T>(90, 520, 12, 7, 0);  // several rows of a block
}

TEST_CASE_TEMPLATE("cuda rope: turned and turned back equals f64, in place", T, float, bf16, f16) {
  under_schedules([] {
    for (const bool inverse : {false, true}) {
      check_rope<T>({1, 1, 1, 2}, 10000, inverse, 0);
      check_rope<T>({2, 5, 3, 32}, 10000, inverse, 0);
      check_rope<T>({2, 3, 2, 14}, 500000, inverse, 1);
    }
  });
}

TEST_CASE_TEMPLATE("cuda dropout: any shard of a tensor has the CPU's mask, bit for bit", T, float, bf16, f16) {
  under_schedules([] {
    for (const double p : {0.0, 0.1, 0.5, 1.0}) {
      check_dropout<T>({7, 16}, {7, 16}, {0, 0}, p, 0);
      check_dropout<T>({3, 5}, {9, 11}, {2, 3}, p, 1);
      check_dropout<T>({2, 3, 4}, {4, 3, 9}, {1, 0, 5}, p, 0);
      check_dropout<T>({6, 1}, {6, 5}, {0, 2}, p, 0);
      check_dropout<T>({1}, {1030}, {1027}, p, 0);
      check_dropout<T>({1030}, {1030}, {0}, p, 0);
    }
  });
}

}  // namespace rows_test

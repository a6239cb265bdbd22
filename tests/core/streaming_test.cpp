// Streaming stores. A large result, which is written by them, must have the same bits as its parts, which are not.
#include "core/cpu/streaming.h"

#include <algorithm>
#include <numeric>

#include "core/cpu/channel_kernels.h"
#include "support.h"

using namespace trireme;
using namespace trireme::testing;

namespace streaming_test {

constexpr std::int64_t rows = 4501, columns = 2000;  // 36 MB in f32; a multiple neither of a block nor of a line
using Kernel = std::function<void(const Tensor& a, const Tensor& b, Tensor& y)>;

Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t last) {
  return view::slice(x, 0, first, last - first);
}

/// The kernel on all rows, with 1 and 2 threads, equals the kernel on three parts of them.
void check_like_parts(const Tensor& a, const Tensor& b, const Kernel& kernel) {
  Tensor parts = Tensor::empty({rows, columns}, a.dtype());
  set_threads(1);
  for (std::int64_t first = 0; first < rows; first += 1600) {
    const std::int64_t last = std::min(rows, first + 1600);
    Tensor part = rows_of(parts, first, last);
    REQUIRE_FALSE(cpu::is_streamed(part.bytes()));
    kernel(rows_of(a, first, last), rows_of(b, first, last), part);
  }
  for (const int threads : {1, 2}) {
    set_threads(threads);
    Tensor whole = Tensor::empty({rows, columns}, a.dtype());
    REQUIRE(cpu::is_streamed(whole.bytes()));
    kernel(a, b, whole);
    CHECK(same_bits(whole, parts));
  }
}

}  // namespace streaming_test

using namespace streaming_test;

TEST_CASE("streaming: bytes arrive, and their neighbours stay, for any alignment and length") {
  std::vector<unsigned char> from(512), to(512);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  for (std::size_t x = 0; x < 3; ++x) {
    for (std::size_t y = 0; y < 64; ++y) {
      for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 128U, 300U}) {
        std::fill(to.begin(), to.end(), static_cast<unsigned char>(0));
        std::vector<unsigned char> expected = to;
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(x), count,
                    expected.begin() + static_cast<std::ptrdiff_t>(y));
        for (const auto copy : {cpu::stream, cpu::stream_from_memory}) {
          std::fill(to.begin(), to.end(), static_cast<unsigned char>(0));
          copy(from.data() + x, to.data() + y, static_cast<std::int64_t>(count));
          cpu::end_of_stream();
          REQUIRE(to == expected);
        }
      }
    }
  }
}

TEST_CASE("streaming: a large result has the bits of its parts") {
  const Tensor a = random({rows, columns}, 1, DType::f32), b = random({rows, columns}, 2, DType::f32);
  const Tensor row = random({columns}, 3, DType::f32), ids = random_ids({columns}, 4, 0, columns);
  const std::pair<const char*, Kernel> kernels[] = {
      {"arithmetic", [](const Tensor& p, const Tensor& q, Tensor& y) { table.binary(Binary::multiply, p, q, y); }},
      {"a repeated row", [row](const Tensor& p, const Tensor& /*q*/,
                               Tensor& y) { table.binary(Binary::add, p, view::expand(row, p.shape()), y); }},
      {"in place",
       [](const Tensor& p, const Tensor& q, Tensor& y) {
         copy(p, y);
         table.binary(Binary::multiply, y, q, y);
       }},
      {"where", [](const Tensor& p, const Tensor& q, Tensor& y) { table.where(p, q, p, y); }},
      {"clamp", [](const Tensor& p, const Tensor& /*q*/, Tensor& y) { cpu::channel_kernels().clamp(-0.5, 1, p, y); }},
      {"axpby", [](const Tensor& p, const Tensor& /*q*/, Tensor& y) { table.axpby(1.5, p, 0, y); }},
      {"gather", [ids](const Tensor& p, const Tensor& /*q*/,
                       Tensor& y) { table.gather(p, 1, contiguous(view::expand(ids, p.shape())), y); }},
      {"the gradient of softmax", [](const Tensor& p, const Tensor& q, Tensor& y) { table.softmax_backward(p, q, y); }},
  };
  for (const auto& [name, kernel] : kernels) {
    CAPTURE(name);
    check_like_parts(a, b, kernel);
  }
}

TEST_CASE("streaming: large copies and concatenations") {
  const Tensor x = random_ids({50, 60, 2, 1500}, 4, 0, 1000);  // 36 MB in i32
  for (const Tensor& view : {x, view::transpose(x, 1, 2)}) {
    Tensor whole = Tensor::empty(view.shape(), x.dtype());
    REQUIRE(cpu::copy_is_streamed(whole.bytes()));
    copy(view, whole);
    CHECK(values(whole) == values(view));
    // Into a view whose rows begin anywhere in a line of the cache.
    Tensor wide = Tensor::zeros(view.shape().with(-1, 1507), x.dtype());
    Tensor place = view::slice(wide, -1, 5, 1500);
    copy(view, place);
    CHECK(same_bits(clone(place), whole));
    const Tensor beside = view::slice(wide, -1, 1505, 2);
    CHECK(values(beside) == std::vector<double>(static_cast<std::size_t>(beside.count()), 0));
  }
  const Tensor left = view::slice(x, 3, 0, 333), right = view::slice(x, 3, 333, 1167);
  Tensor joined = Tensor::empty(x.shape(), x.dtype());
  cpu::channel_kernels().concat_dense({clone(left), clone(right)}, 3, joined);
  CHECK(same_bits(joined, x));
}

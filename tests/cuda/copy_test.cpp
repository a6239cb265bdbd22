// Fill and copy against the CPU kernels, whose results they must equal bit for bit.
#include <doctest/doctest.h>

#include "core/kernels.h"
#include "cuda/kernels/copy.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::under_schedules;

namespace copy_test {
namespace {

constexpr std::size_t kZone = 64;  // bytes before and after a tensor that nothing may change

/// A view with its own storage, with zones around it.
struct View {
  DType dtype;
  Shape shape, strides;
  std::size_t reach;  // bytes from the first element to the end of the last
  std::vector<unsigned char> storage;

  View(DType dtype_, const Shape& shape_, const Shape& strides_, std::size_t offset)
      : dtype(dtype_), shape(shape_), strides(strides_), reach(0), offset_(offset * size_of(dtype_)) {
    std::int64_t last = 0;
    for (int dim = 0; dim < shape.dims(); ++dim) last += (shape[dim] - 1) * strides[dim];
    reach = static_cast<std::size_t>(last + 1) * size_of(dtype);
    storage.assign(2 * kZone + offset_ + reach, 0xff);
    fence_ =
        std::make_unique<cuda_test::Fence>(storage.data(), storage.size(), kZone + offset_, kZone + offset_ + reach);
  }
  unsigned char* data() { return storage.data() + kZone + offset_; }
  /// The same memory as a tensor of the CPU.
  Tensor tensor() const {
    const auto count = static_cast<std::int64_t>(reach / size_of(dtype));
    Tensor bytes = Tensor::empty({count}, dtype);
    std::memcpy(bytes.raw(), storage.data() + kZone + offset_, reach);
    return bytes.as_strided(shape, strides, 0);
  }

 private:
  std::size_t offset_;
  std::unique_ptr<cuda_test::Fence> fence_;  // the race build checks accesses to it
};

/// Values in [0, 120), rounded down for integer dtypes, so that every dtype holds their integer part.
void fill_values(View& view) {
  visit_any(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const values = reinterpret_cast<T*>(view.data());
    for (std::size_t i = 0; i < view.reach / sizeof(T); ++i) {
      const float value = 120 * random_uniform(9, 1, i);
      values[i] = static_cast<T>(is_floating(view.dtype) ? value : std::floor(value));
    }
  });
}

void check_copy(DType from, DType to, const Shape& shape, const Shape& x_strides, const Shape& y_strides,
                std::size_t offset) {
  CAPTURE(fmt::format("{} to {}, {} by {} and {}", name(from), name(to), shape, x_strides, y_strides));
  View x(from, shape, x_strides, offset), y(to, shape, y_strides, offset);
  fill_values(x);
  std::vector<unsigned char> expected = y.storage;
  {
    Tensor result = y.tensor();
    kernels(result.device()).copy(x.tensor(), result);
    std::memcpy(expected.data() + (y.data() - y.storage.data()), result.raw(), y.reach);
  }
  copy(x.data(), from, y.data(), to, strided<2>(shape, {x_strides, y_strides}));
  CHECK(y.storage == expected);  // gaps between the elements of y, and the zones, too
}

constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8};

}  // namespace

TEST_CASE("cuda copy: every pair of dtypes, dense, unaligned, sliced and transposed") {
  for (const DType from : kDTypes)
    for (const DType to : kDTypes) {
      const cuda::emu::ScopedSchedule schedule({static_cast<std::uint64_t>(from) % 4});
      check_copy(from, to, {77}, {1}, {1}, 0);
      check_copy(from, to, {33}, {1}, {1}, 1);
      check_copy(from, to, {3, 16}, {20, 1}, {16, 1}, 0);  // a slice of rows
      check_copy(from, to, {3, 5}, {1, 3}, {5, 1}, 0);     // a transpose
      check_copy(from, to, {3, 5}, {0, 2}, {7, 1}, 0);     // a broadcast, into a part of a row
    }
}

TEST_CASE_TEMPLATE("cuda copy: transposes larger than a tile, with other dims around them", T, float, bf16) {
  under_schedules([] {
    check_copy(dtype_of<T>, dtype_of<T>, {40, 70}, {1, 40}, {70, 1}, 0);
    check_copy(dtype_of<T>, DType::f32, {2, 33, 3, 35}, {35 * 99, 1, 33, 99}, {35 * 99, 105, 35, 1}, 1);
    check_copy(dtype_of<T>, dtype_of<T>, {2, 3, 4, 8}, {96, 8, 24, 1}, {96, 32, 8, 1}, 0);  // heads before tokens
    check_copy(dtype_of<T>, dtype_of<T>, {1, 1}, {5, 3}, {2, 9}, 0);
  });
}

TEST_CASE("cuda fill: every dtype, dense and strided, writes what the CPU writes and nothing beside it") {
  under_schedules([] {
    for (const DType dtype : kDTypes)
      for (const auto& [shape, strides] : std::vector<std::pair<Shape, Shape>>{
               {{1}, {1}}, {{70}, {1}}, {{3, 5}, {8, 1}}, {{4, 3}, {1, 4}}, {{2, 3}, {9, 2}}}) {
        CAPTURE(fmt::format("{} {} {}", name(dtype), shape, strides));
        View y(dtype, shape, strides, 1);
        std::vector<unsigned char> expected = y.storage;
        Tensor result = y.tensor();
        kernels(result.device()).fill(result, 3.25);
        std::memcpy(expected.data() + (y.data() - y.storage.data()), result.raw(), y.reach);
        fill(y.data(), dtype, 3.25, strided<1>(shape, {strides}));
        CHECK(y.storage == expected);
      }
  });
}

}  // namespace copy_test

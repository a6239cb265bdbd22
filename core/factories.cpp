// Tensors of given or random numbers: Tensor::from with braces, arange, rand, randn.
#include <cmath>

#include "core/kernels.h"
#include "core/nested_values.h"
#include "core/parallel_for.h"
#include "core/random.h"
#include "core/tensor.h"

namespace trireme {
namespace {

constexpr std::int64_t whole_grain = 32768, random_grain = 2048;  // elements worth a thread

/// Element i is element(i), rounded to dtype. Made on the host.
template <class Element>
Tensor generated(const Shape& shape, DType dtype, Device device, std::int64_t grain, Element element) {
  Tensor result = Tensor::empty(shape, dtype);
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const data = result.data<T>();
    parallel_for(result.count(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_arithmetic_v<T>) {
          data[i] = static_cast<T>(element(i));
        } else {
          data[i] = static_cast<T>(static_cast<float>(element(i)));
        }
      }
    });
  });
  return result.to(device);
}

void require_random_dtype(const char* where, DType dtype) {
  require(is_floating(dtype), where, "random numbers of dtype {}; expected a floating dtype", name(dtype));
}

}  // namespace

void require_whole_number(std::string_view where, double value, DType dtype) {
  if (is_floating(dtype)) return;
  const double low = dtype == DType::u8 ? 0 : dtype == DType::i32 ? -0x1p31 : -0x1p63;
  const double end = dtype == DType::u8 ? 0x1p8 : dtype == DType::i32 ? 0x1p31 : 0x1p63;  // the first beyond
  require(value == std::trunc(value) && value >= low && value < end, where,
          "{} is not a whole number that {} holds; expected one from {} to below {}, or a floating dtype", value,
          name(dtype), low, end);
}

NestedValues::NestedValues(std::initializer_list<NestedValues> values) {
  std::vector<std::int64_t> extents = {static_cast<std::int64_t>(values.size())};
  if (values.size() > 0) {
    const Shape& inner = values.begin()->shape_;
    extents.insert(extents.end(), inner.begin(), inner.end());
    std::size_t row = 0;
    for (const NestedValues& value : values) {
      require(value.shape_ == inner, "Tensor::from",
              "item {} of a list has shape {}, and the first item {}; expected items of one shape", row, value.shape_,
              inner);
      elements_.insert(elements_.end(), value.elements_.begin(), value.elements_.end());
      ++row;
    }
  }
  shape_ = Shape(std::span<const std::int64_t>(extents));
}

Tensor Tensor::from(const NestedValues& values, DType dtype, Device device) {
  const std::vector<double>& elements = values.elements();
  for (const double element : elements) require_whole_number("Tensor::from", element, dtype);
  return generated(values.shape(), dtype, device, whole_grain,
                   [&](std::int64_t i) { return elements[static_cast<std::size_t>(i)]; });
}

Tensor Tensor::ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1.0, dtype, device); }

Tensor Tensor::arange(std::int64_t count, DType dtype, Device device) {
  require(count >= 0, "Tensor::arange", "a count of {}; expected 0 or more", count);
  if (count > 0) require_whole_number("Tensor::arange", static_cast<double>(count - 1), dtype);
  return generated({count}, dtype, device, whole_grain, [](std::int64_t i) { return i; });
}

Tensor Tensor::arange(double first, double end, double step, DType dtype, Device device) {
  require(step != 0 && (end - first) / step >= 0 && (end - first) / step <= 0x1p48, "Tensor::arange",
          "from {} to {} in steps of {}; expected finite numbers, a step that leads from the first to the end, and no "
          "more elements than memory can hold",
          first, end, step);
  const auto count = static_cast<std::int64_t>(std::ceil((end - first) / step));
  return generated({count}, dtype, device, whole_grain,
                   [&](std::int64_t i) { return first + static_cast<double>(i) * step; });
}

Tensor Tensor::rand(const Shape& shape, std::uint64_t seed, std::uint64_t stream, DType dtype, Device device) {
  require_random_dtype("Tensor::rand", dtype);
  return generated(shape, dtype, device, random_grain,
                   [&](std::int64_t i) { return random_uniform(seed, stream, static_cast<std::uint64_t>(i)); });
}

Tensor Tensor::randn(const Shape& shape, std::uint64_t seed, std::uint64_t stream, DType dtype, Device device) {
  require_random_dtype("Tensor::randn", dtype);
  return generated(shape, dtype, device, random_grain,
                   [&](std::int64_t i) { return random_normal(seed, stream, static_cast<std::uint64_t>(i)); });
}

}  // namespace trireme

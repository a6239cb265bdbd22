#include "core/shape.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/extents.h"

namespace trireme {

Shape::Shape(std::span<const std::int64_t> extents) : dims_(static_cast<int>(extents.size())) {
  require(extents.size() <= max_dims, "Shape", "at most {} dims are supported, got {}", max_dims, extents.size());
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

std::size_t Shape::index(int dim) const {
  const int i = dim < 0 ? dim + dims_ : dim;
  if (i < 0 || i >= dims_) [[unlikely]]
    fail(ExitCode::internal, "Shape", "dim {} is out of range for {}", dim, *this);
  return static_cast<std::size_t>(i);
}

std::int64_t Shape::count(std::string_view where) const {
  if (!are_possible({begin(), end()})) [[unlikely]] {
    require(std::all_of(begin(), end(), [](std::int64_t extent) { return extent >= 0; }), where,
            "extents must not be negative, got {}", *this);
    fail(ExitCode::internal, where, "{} has more elements than memory can hold; expected a smaller shape", *this);
  }
  return std::accumulate(begin(), end(), std::int64_t{1}, std::multiplies<>());
}

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

Shape Shape::without(int dim) const {
  Shape result;
  const auto skipped = static_cast<int>(index(dim));
  for (int i = 0; i < dims_; ++i) {
    if (i != skipped) result.extents_[static_cast<std::size_t>(result.dims_++)] = (*this)[i];
  }
  return result;
}

Shape Shape::with(int dim, std::int64_t extent) const {
  Shape result = *this;
  result[dim] = extent;
  return result;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t stride = 1;
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= shape[dim];
  }
  return strides;
}

Shape broadcast_shape(const Shape& a, const Shape& b, const char* where) {
  const Shape& longer = a.dims() >= b.dims() ? a : b;
  const Shape& shorter = a.dims() >= b.dims() ? b : a;
  Shape result = longer;
  for (int i = 1; i <= shorter.dims(); ++i) {
    const std::int64_t x = longer[-i], y = shorter[-i];
    require(x == y || x == 1 || y == 1, where,
            "shapes {} and {} do not broadcast: {} against {} at dim {} from the end", a, b, x, y, i);
    result[-i] = x == 1 ? y : x;
  }
  return result;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.dims(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + "]";
}

}  // namespace trireme

fmt::format_context::iterator fmt::formatter<trireme::Shape>::format(const trireme::Shape& shape,
                                                                     fmt::format_context& context) const {
  const std::string text = trireme::to_string(shape);
  return std::copy(text.begin(), text.end(), context.out());
}

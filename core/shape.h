// Shape: up to six extents, kept inline so that making a view allocates nothing. Strides use the same type.
// Read next: core/tensor.h.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

class Shape {
 public:
  static constexpr int max_dims = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents);

  int dims() const { return dims_; }
  /// The product of the extents; 1 for no dims. Throws, naming `where`, for a negative extent and for more than 2^48
  /// elements, whose strides and bytes could overflow. An extent of 0 counts as 1 here.
  std::int64_t count(std::string_view where = "Shape") const;
  std::int64_t operator[](int dim) const { return extents_[index(dim)]; }  ///< negative dims count from the end
  std::int64_t& operator[](int dim) { return extents_[index(dim)]; }

  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + dims_; }
  std::int64_t* begin() { return extents_.data(); }        ///< to change extents
  std::int64_t* end() { return extents_.data() + dims_; }  ///< to change extents

  bool operator==(const Shape& other) const;
  Shape without(int dim) const;                    ///< the shape with one dim removed
  Shape with(int dim, std::int64_t extent) const;  ///< the shape with one extent replaced

 private:
  std::size_t index(int dim) const;

  std::array<std::int64_t, max_dims> extents_{};
  int dims_ = 0;
};

/// The strides, in elements, of a dense row-major tensor.
Shape row_major_strides(const Shape& shape);

/// The shape that both broadcast to, by NumPy's rule; throws, naming `where`, if they do not broadcast.
Shape broadcast_shape(const Shape& a, const Shape& b, const char* where);

std::string to_string(const Shape& shape);  ///< "[2, 3]"

}  // namespace trireme

/// Formats a Shape only when a message needs it: a check that holds builds no text.
template <>
struct fmt::formatter<trireme::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const trireme::Shape& shape, fmt::format_context& context) const;
};

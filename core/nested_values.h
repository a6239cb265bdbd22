// NestedValues: the numbers of a small tensor as they are written in C++ code, {{1, 2, 3}, {4, 5, 6}}.
// Read next: Tensor::from in core/tensor.h.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <vector>

#include "core/shape.h"

namespace trireme {

/// A number, or a list of such values of one shape. Numbers are kept as f64: whole numbers are exact up to 2^53.
class NestedValues {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> NestedValues(T number) : elements_{static_cast<double>(number)} {}
  /// Throws if the values differ in shape, as the rows of {{1, 2}, {3}} do.
  NestedValues(std::initializer_list<NestedValues> values);

  const Shape& shape() const { return shape_; }
  const std::vector<double>& elements() const { return elements_; }  ///< row-major

 private:
  Shape shape_;
  std::vector<double> elements_;
};

}  // namespace trireme

// Elements of tensors as numbers, read and written one by one without kernels. Tests compute references from them, and
// measure how far results are from these.
// Read next: tests/support/tensors.h; tests/support/gradcheck.h, where roundings decide how far is too far.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/tensor.h"
#include "tests/support/largest.h"

namespace trireme::testing {

/// The offset in memory of element `index`, in row-major order, from the first element.
inline std::int64_t offset_of(const Tensor& x, std::int64_t index) {
  std::int64_t offset = 0;
  for (int dim = x.dims() - 1; dim >= 0; --dim) {
    offset += index % x.size(dim) * x.strides()[dim];
    index /= x.size(dim);
  }
  return offset;
}

/// The elements of any view on the host, row-major.
inline std::vector<double> values(const Tensor& x) {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(x.count()));
  visit_any(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* data = x.data<T>();
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const T element = data[offset_of(x, i)];
      if constexpr (std::is_arithmetic_v<T>) {
        result.push_back(static_cast<double>(element));
      } else {
        result.push_back(static_cast<double>(static_cast<float>(element)));
      }
    }
  });
  return result;
}

/// The reverse of values(): rounds `elements` and writes them into any view.
inline void assign(Tensor& x, const std::vector<double>& elements) {
  REQUIRE(x.count() == static_cast<std::int64_t>(elements.size()));
  visit_any(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = x.data<T>();
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const double element = elements[static_cast<std::size_t>(i)];
      if constexpr (std::is_arithmetic_v<T>) {
        data[offset_of(x, i)] = static_cast<T>(element);
      } else {
        data[offset_of(x, i)] = static_cast<T>(static_cast<float>(element));
      }
    }
  });
}

/// |got - expected| / |expected|, as vectors; |got| if all expected elements are 0.
inline double relative_difference(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}
inline double relative_difference(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.shape() == expected.shape());
  return relative_difference(values(got), values(expected));
}

/// The largest difference of two elements, divided by the largest |expected|; infinite if an element is NaN.
inline double largest_difference(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    keep_largest(worst, std::fabs(got[i] - expected[i]));
    size = std::max(size, std::fabs(expected[i]));
  }
  return worst / size;
}

}  // namespace trireme::testing

// What the product tests share: reading tensors of any dtype and layout as double, and how much rounding may be.
// Read next: tests/support/tensors.h, which makes and compares them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/parallel_for.h"
#include "core/tensor.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

inline double as_double(double x) { return x; }
inline double as_double(float x) { return x; }
template <class T>
double as_double(T x) {
  return static_cast<double>(static_cast<float>(x));
}

/// Half the distance from 1 to the next number: the relative error of one rounding.
inline double rounding(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}
inline DType accumulator(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// The elements of any view, row-major.
inline std::vector<double> values(const Tensor& x) {
  std::vector<double> result(static_cast<std::size_t>(x.count()));
  visit_floating(x.dtype(), "test", [&](auto tag) {
    const auto* data = x.data<typename decltype(tag)::type>();
    for (std::int64_t i = 0; i < x.count(); ++i) {
      std::int64_t rest = i, offset = 0;
      for (int dim = x.dims() - 1; dim >= 0; --dim) {
        offset += rest % x.size(dim) * x.strides()[dim];
        rest /= x.size(dim);
      }
      result[static_cast<std::size_t>(i)] = as_double(data[offset]);
    }
  });
  return result;
}

/// Runs with a team of another size, and puts the old size back.
class TeamOf {
 public:
  explicit TeamOf(int count) : previous_(threads()) { set_threads(count); }
  ~TeamOf() { set_threads(previous_); }
  TeamOf(const TeamOf&) = delete;
  TeamOf& operator=(const TeamOf&) = delete;

 private:
  int previous_;
};

}  // namespace trireme::testing

#include "support.h"

#include <cmath>

namespace trireme::testing {
namespace {

std::int64_t offset_of(const Tensor& x, std::int64_t element) {
  std::int64_t offset = 0;
  for (int dim = x.dims() - 1; dim >= 0; --dim) {
    offset += element % x.size(dim) * x.strides()[dim];
    element /= x.size(dim);
  }
  return offset;
}

}  // namespace

double rounding(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-14;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 1e-6;
  }
}

std::vector<double> values(const Tensor& x) {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(x.count()));
  visit_any(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const T element = x.data<T>()[offset_of(x, i)];
      if constexpr (std::is_arithmetic_v<T>) {
        result.push_back(static_cast<double>(element));
      } else {
        result.push_back(static_cast<double>(static_cast<float>(element)));
      }
    }
  });
  return result;
}

void assign(Tensor& x, const std::vector<double>& elements) {
  REQUIRE(x.count() == static_cast<std::int64_t>(elements.size()));
  visit_any(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const double element = elements[static_cast<std::size_t>(i)];
      if constexpr (std::is_arithmetic_v<T>) {
        x.data<T>()[offset_of(x, i)] = static_cast<T>(element);
      } else {
        x.data<T>()[offset_of(x, i)] = static_cast<T>(static_cast<float>(element));
      }
    }
  });
}

void check_close(const Tensor& got, const std::vector<double>& expected, double rtol, double atol) {
  REQUIRE(got.count() == static_cast<std::int64_t>(expected.size()));
  const std::vector<double> found = values(got);
  const double grid = got.dtype() == DType::f16 ? 0x1p-25 : 0;  // half the spacing of its subnormals
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double want = expected[i], have = found[i];
    const bool same = want == have || (std::isnan(want) && std::isnan(have));
    if (same || std::abs(have - want) <= rtol * std::abs(want) + atol + grid) continue;
    FAIL_CHECK(fmt::format("{} {}: element {}: expected {}, got {}", name(got.dtype()), to_string(got.shape()), i, want,
                           have));
    return;
  }
}

void check_same_for_any_threads(const std::function<Tensor()>& compute) {
  const int before = threads();
  set_threads(1);
  const Tensor one = compute();
  for (const int team : {2, 3}) {
    set_threads(team);
    const Tensor many = compute();
    CAPTURE(team);
    CHECK(same_bits(one, many));
  }
  set_threads(before);
}

}  // namespace trireme::testing

#include "support.h"

#include <cmath>

#include "tests/support/team.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

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

void check_close(const Tensor& got, const std::vector<double>& expected, double rtol, double atol) {
  REQUIRE(got.count() == static_cast<std::int64_t>(expected.size()));
  const std::vector<double> found = values(got);
  const double grid = got.dtype() == DType::f16 ? 0x1p-25 : 0;  // half the spacing of its subnormals
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double want = expected[i], have = found[i];
    const bool same = want == have || (std::isnan(want) && std::isnan(have));
    const bool close = std::isfinite(want) && std::abs(have - want) <= rtol * std::abs(want) + atol + grid;
    if (same || close) continue;
    FAIL_CHECK(fmt::format("{} {}: element {}: expected {}, got {}", name(got.dtype()), to_string(got.shape()), i, want,
                           have));
    return;
  }
}

void check_same_for_any_threads(const std::function<Tensor()>& compute) {
  const auto by = [&](int team) {
    const TeamOf scope(team);
    return compute();
  };
  const Tensor one = by(1);
  for (const int team : {2, 3}) {
    const Tensor many = by(team);
    CAPTURE(team);
    CHECK(same_bits(one, many));
  }
}

}  // namespace trireme::testing

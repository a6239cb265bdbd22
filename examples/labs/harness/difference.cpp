#include "examples/labs/harness/difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::labs {
namespace {

std::vector<double> values(const Tensor& x) {
  const Tensor wide = cast(contiguous(x.detach()), DType::f64);
  const auto elements = wide.span<const double>();
  return {elements.begin(), elements.end()};
}

/// [2, 7] for element 17 of [5, 10, ...]; "17" for one dim.
std::string place(std::size_t element, const Shape& shape) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.dims()));
  auto rest = static_cast<std::int64_t>(element);
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    index[static_cast<std::size_t>(dim)] = rest % shape[dim];
    rest /= shape[dim];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

/// "elements 8 to 15": the first and the last of those that `bad` holds for, if all between them are bad too.
std::string range_of(const std::vector<bool>& bad, const Shape& shape) {
  const auto first = std::ranges::find(bad, true);
  const auto count = std::ranges::count(bad, true);
  const bool run = std::all_of(first, first + count, [](bool b) { return b; });
  const auto begin = first - bad.begin();
  if (count == static_cast<std::ptrdiff_t>(bad.size())) return "every element";
  if (count == 1) return fmt::format("element {}", begin);
  if (run) return fmt::format("elements {} to {}", begin, begin + count - 1);
  return fmt::format("{} of {} elements, the first at {},", count, bad.size(),
                     place(static_cast<std::size_t>(begin), shape));
}

/// got / want, if it is the same number for all elements that are not tiny.
double common_ratio(const std::vector<double>& got, const std::vector<double>& want, double largest) {
  double ratio = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(want[i]) < 1e-2 * largest) continue;
    const double here = got[i] / want[i];
    if (ratio != 0 && std::abs(here - ratio) > 1e-3 * std::abs(ratio)) return 0;
    ratio = here;
  }
  return ratio;
}

}  // namespace

std::string difference(std::string_view name, const Tensor& got, const Tensor& want, const Comparison& comparison) {
  if (!got.defined()) return fmt::format("{}: no tensor; expected {}", name, want.shape());
  if (got.shape() != want.shape()) return fmt::format("{}: shape {}; expected {}", name, got.shape(), want.shape());
  const std::vector<double> have = values(got), wanted = values(want);
  double largest = 0, off = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  const double allowed = comparison.tolerance * std::max(comparison.scale, largest);
  std::vector<bool> bad(have.size());
  std::size_t worst = 0;
  bool any = false, nan = false, zero = true;
  for (std::size_t i = 0; i < have.size(); ++i) {
    const double distance = std::abs(have[i] - wanted[i]);
    bad[i] = !(distance <= allowed);
    any = any || bad[i];
    if (bad[i]) zero = zero && have[i] == 0;
    if (std::isnan(have[i]) && !nan) {
      nan = true;
      worst = i;
    }
    if (!nan && distance > off) {
      off = distance;
      worst = i;
    }
  }
  if (!any) return {};
  const std::string where = range_of(bad, got.shape());
  const std::string example =
      fmt::format("at {}: {:.6g}, expected {:.6g}", place(worst, got.shape()), have[worst], wanted[worst]);
  if (nan) return fmt::format("{}: not a number {}", name, example);
  if (std::isinf(have[worst]) && !std::isinf(wanted[worst])) return fmt::format("{}: not finite {}", name, example);
  if (zero) return fmt::format("{}: {} of {} zero, and should not be; {}", name, where, got.shape(), example);
  if (comparison.before.defined() && comparison.before.shape() == got.shape()) {
    const std::vector<double> before = values(comparison.before);
    bool same = true;
    for (std::size_t i = 0; i < have.size(); ++i) same = same && (!bad[i] || have[i] == before[i]);
    if (same) return fmt::format("{}: {} of {} as before, not written; {}", name, where, got.shape(), example);
  }
  if (const double ratio = common_ratio(have, wanted, largest); ratio != 0 && std::abs(ratio - 1) > 0.01)
    return fmt::format("{}: every element is {:.4g} times what it should be; {}", name, ratio, example);
  return fmt::format("{}: {} of {} wrong, by up to {:.2g} of the largest; {}", name, where, got.shape(),
                     largest > 0 ? off / largest : off, example);
}

}  // namespace trireme::labs

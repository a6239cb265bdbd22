#include "parallel/checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace trireme::checkpoint {
namespace {

std::string describe(const StoredTensor& tensor) {
  return fmt::format("{} {}", name(tensor.dtype), to_string(tensor.shape));
}

double distance(double x, double y) {
  if (std::isnan(x) && std::isnan(y)) return 0;
  const double d = std::abs(x - y);
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

/// Of two tensors of one dtype and shape.
Difference compare_elements(const std::string& name, const Tensor& a, const Tensor& b) {
  Difference result{.name = name, .what = {}};
  if (std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0) return result;
  const Tensor x = cast(a, DType::f64), y = cast(b, DType::f64);
  const auto *first = static_cast<const std::byte*>(a.raw()), *second = static_cast<const std::byte*>(b.raw());
  const std::size_t size = size_of(a.dtype());
  for (std::int64_t i = 0; i < a.count(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(first + at, second + at, size) == 0) continue;
    if (result.elements++ == 0) result.first = i;
    result.largest = std::max(result.largest, distance(x.data<double>()[i], y.data<double>()[i]));
  }
  return result;
}

}  // namespace

std::vector<Difference> compare(Checkpoint& a, Checkpoint& b) {
  std::set<std::string> names;
  for (const Checkpoint* checkpoint : {&a, &b}) {
    for (const std::string& name : checkpoint->names()) names.insert(name);
  }
  std::vector<Difference> differences;
  for (const std::string& name : names) {
    if (!a.contains(name) || !b.contains(name)) {
      differences.push_back({.name = name, .what = a.contains(name) ? "only in the first" : "only in the second"});
      continue;
    }
    const StoredTensor &first = a.find(name), &second = b.find(name);
    if (first.dtype != second.dtype || first.shape != second.shape) {
      differences.push_back({.name = name, .what = fmt::format("{} and {}", describe(first), describe(second))});
      continue;
    }
    Difference difference = compare_elements(name, a.read(name), b.read(name));
    if (difference.elements > 0) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace trireme::checkpoint

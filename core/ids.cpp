#include "core/ids.h"

#include <algorithm>
#include <limits>
#include <span>

namespace trireme {
namespace {

/// The place of element i of a dense tensor of this shape: "[1, 3]".
Shape place(const Shape& shape, std::int64_t i) {
  Shape result = shape;
  for (int dim = shape.dims() - 1; dim >= 0; i /= shape[dim], --dim) result[dim] = i % shape[dim];
  return result;
}

struct Extremes {
  std::int32_t low = std::numeric_limits<std::int32_t>::max(), high = std::numeric_limits<std::int32_t>::min();
};

Extremes extremes(std::span<const std::int32_t> ids) {
  Extremes found;
  for (const std::int32_t id : ids) {
    found.low = std::min(found.low, id);
    found.high = std::max(found.high, id);
  }
  return found;
}

}  // namespace

void note_extremes(const Tensor& ids, const Tensor& copy) {
  const Tensor dense = contiguous(ids);
  const Extremes found = extremes(dense.span<const std::int32_t>());
  copy.set_extremes(found.low, found.high);
}

void check_ids(std::string_view where, std::string_view what, const Tensor& ids, const IdRange& range,
               std::string_view remedy) {
  require(ids.dtype() == DType::i32, where, "expected each {} in i32, got {}; convert with cast(ids, DType::i32)", what,
          name(ids.dtype()));
  if (ids.count() == 0) return;
  constexpr std::int64_t smallest = std::numeric_limits<std::int32_t>::min(), largest = -(smallest + 1);
  const auto low = static_cast<std::int32_t>(range.negative ? smallest : std::clamp(range.first, smallest, largest));
  const auto high = static_cast<std::int32_t>(std::clamp(range.end - 1, smallest, largest));
  if (ids.device() != Device::cpu) {
    const auto known = ids.extremes();
    if (known && known->low >= low && known->high <= high) return;
    return check_ids(where, what, ids.to(Device::cpu), range, remedy);
  }
  const Tensor dense = contiguous(ids);
  const std::span<const std::int32_t> all = dense.span<const std::int32_t>();
  if (const Extremes found = extremes(all); found.low >= low && found.high <= high) return;
  const auto first = std::find_if(all.begin(), all.end(), [&](std::int32_t id) { return id < low || id > high; });
  fail(ExitCode::data, where, "{} {} at {} of {} is out of range; expected {} to {}{}; {}", what, *first,
       place(ids.shape(), first - all.begin()), ids.shape(), range.first, range.end - 1,
       range.negative ? ", or a negative one" : "", remedy);
}

}  // namespace trireme

#include "core/ids.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "core/parallel_for.h"

namespace trireme {
namespace {

constexpr std::int64_t ids_grain = 1 << 18;  // ids worth a thread

/// The place of element i of a dense tensor of this shape: "[1, 3]".
Shape place(const Shape& shape, std::int64_t i) {
  Shape result = shape;
  for (int dim = shape.dims() - 1; dim >= 0; i /= shape[dim], --dim) result[dim] = i % shape[dim];
  return result;
}

}  // namespace

void check_ids(std::string_view where, std::string_view what, const Tensor& ids, const IdRange& range,
               std::string_view remedy) {
  require(ids.dtype() == DType::i32, where, "expected a {} in i32, got {}; convert with cast(ids, DType::i32)", what,
          name(ids.dtype()));
  if (ids.device() != Device::cpu || ids.count() == 0) return;
  const Tensor dense = contiguous(ids);
  const std::span<const std::int32_t> all = dense.span<std::int32_t>();
  constexpr std::int64_t smallest = std::numeric_limits<std::int32_t>::min(), largest = -(smallest + 1);
  const auto low = static_cast<std::int32_t>(range.negative ? smallest : std::clamp(range.first, smallest, largest));
  const auto high = static_cast<std::int32_t>(std::clamp(range.end - 1, smallest, largest));
  std::atomic<bool> found = false;
  parallel_for(static_cast<std::int64_t>(all.size()), ids_grain, [&](std::int64_t begin, std::int64_t end) {
    int outside = 0;
    for (const std::int32_t id : all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)))
      outside |= static_cast<int>(id < low) | static_cast<int>(id > high);  // without a branch: 16 at once
    if (outside != 0) found = true;
  });
  if (!found) return;
  const auto first = std::find_if(all.begin(), all.end(), [&](std::int32_t id) { return id < low || id > high; });
  fail(ExitCode::data, where, "{} {} at {} of {} is out of range; expected {} to {}{}; {}", what, *first,
       place(ids.shape(), first - all.begin()), ids.shape(), range.first, range.end - 1,
       range.negative ? ", or a negative one" : "", remedy);
}

}  // namespace trireme

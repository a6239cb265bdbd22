// What cuTensorMapEncodeTiled requires of a map (cuda.h, the comment above that function), for maps without interleave
// and with element strides of 1. See cuda/emu/async.h.
#include "core/error.h"
#include "cuda/emu/async.h"

namespace trireme::cuda::emu {

namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 32, kStrideEnd = std::int64_t{1} << 40;

template <class... Arguments>
[[noreturn]] void refuse(const char* where, const char* name, fmt::format_string<Arguments...> what,
                         Arguments&&... arguments) {
  fail(ExitCode::usage, where, "cuTensorMapEncodeTiled refuses {}: {}", name,
       fmt::format(what, std::forward<Arguments>(arguments)...));
}

/// Of a row of the swizzle's pattern; 0: any.
int span_bytes(Swizzle swizzle) {
  constexpr int spans[] = {0, 32, 64, 128};
  return spans[static_cast<int>(swizzle)];
}

void check_dim(const char* where, const char* name, const TensorMap& map, std::size_t d) {
  if (map.size[d] < 1 || map.size[d] > kMostElements)
    refuse(where, name, "dim {} has {} elements; expected 1 to 2^32; do not launch without elements", d, map.size[d]);
  if (map.box[d] < 1 || map.box[d] > 256)
    refuse(where, name, "dim {} of the box has {} elements; expected 1 to 256; copy the tile in parts", d, map.box[d]);
  if (d == 0) return;
  if (map.stride[d] < 0 || map.stride[d] % 16 != 0 || map.stride[d] >= kStrideEnd)
    refuse(where, name, "the stride of dim {} is {} bytes; expected a multiple of 16 below 2^40; pad the rows", d,
           map.stride[d]);
}

}  // namespace

void check_tensor_map(const char* where, const char* name, const TensorMap& map) {
  if (map.rank < 1 || map.rank > 4)
    refuse(where, name, "{} dims; expected 1 to 4 (the driver has 5, the device header 4); join dims", map.rank);
  if (const auto address = reinterpret_cast<std::uintptr_t>(map.base); address % 16 != 0)
    refuse(where, name, "it begins {} bytes after a multiple of 16; expected 0; move it", address % 16);
  for (std::size_t d = 0; d < static_cast<std::size_t>(map.rank); ++d) check_dim(where, name, map, d);
  const int row = map.box[0] * map.element_bytes, span = span_bytes(map.swizzle);
  if (row % 16 != 0)
    refuse(where, name, "a row of the box has {} bytes; expected a multiple of 16; make the box wider", row);
  if (span > 0 && row > span)
    refuse(where, name,
           "a row of the box has {} bytes; expected at most {}, the span of its swizzle; copy the tile in "
           "parts",
           row, span);
}

}  // namespace trireme::cuda::emu

// Lists of tensors as kernel parameters: one launch works on many tensors without an upload.
//
// A tensor is cut into tiles, and each block takes one. The list is a parameter of the kernel, 4 KiB at most; a longer
// one takes several launches. Read next: cuda/kernels/optimizer.cu.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// Item: a kernel's data for one tensor, including `count`, its elements. Tile: elements per block.
template <class Item, int kMost, int kTile>
struct TensorList {
  Item items[kMost];
  std::uint32_t first_tile[kMost];  ///< number of tiles of all items before
  int count;

  struct Place {
    int item;
    std::int64_t begin, end;  ///< elements of it
  };
  /// The item and the range that the calling block works on.
  __device__ __forceinline__ Place my_place() const {
    int item = 0;  // the last item that begins at or before this tile
    for (int end = count; end - item > 1;) {
      const int middle = (item + end) / 2;
      (first_tile[middle] <= blockIdx.x ? item : end) = middle;
    }
    const std::int64_t begin = std::int64_t{blockIdx.x - first_tile[item]} * kTile;
    return {item, begin, begin + kTile < items[item].count ? begin + kTile : items[item].count};
  }
};

constexpr std::int64_t tiles_of(std::int64_t count, int tile) { return (count + tile - 1) / tile; }

/// Calls start(list, tiles) for as many lists as needed. Skips tensors without elements.
template <class Item, int kMost, int kTile, class Start>
void for_each_list(std::span<const Item> items, const Start& start) {
  static_assert(sizeof(TensorList<Item, kMost, kTile>) <= 4032, "parameters of a launch take 4 KiB");
  TensorList<Item, kMost, kTile> list = {};
  std::int64_t tiles = 0;
  const auto flush = [&] {
    if (list.count > 0) start(list, static_cast<unsigned>(tiles));
    list.count = 0;
    tiles = 0;
  };
  for (const Item& item : items) {
    const std::int64_t more = tiles_of(item.count, kTile);
    if (more == 0) continue;
    if (list.count == kMost || tiles + more > std::numeric_limits<int>::max()) flush();
    list.items[list.count] = item;
    list.first_tile[list.count] = static_cast<std::uint32_t>(tiles);
    ++list.count;
    tiles += more;
  }
  flush();
}

}  // namespace trireme::cuda

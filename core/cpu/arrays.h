// Work on many arrays at once: threads share the elements of all of them, so that the team starts once, not once for
// each small array. Read next: core/cpu/optimizer.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/parallel_for.h"

namespace trireme::cpu {

/// Calls body(array, first, last) for every block: elements [first, last) of array `array`, which has counts[array]
/// elements and is cut at multiples of `block` for any number of threads. Each thread gets consecutive blocks of about
/// the same number of elements, at least `grain`.
template <class Body>
void parallel_arrays(std::span<const std::int64_t> counts, std::int64_t block, std::int64_t grain, Body&& body) {
  std::vector<std::int64_t> starts = {0};  // offsets when all arrays stand in a row
  for (const std::int64_t count : counts) starts.push_back(starts.back() + count);
  parallel_for(starts.back(), grain, [&](std::int64_t begin, std::int64_t end) {  // the blocks that begin in it
    auto array = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    std::int64_t first = (begin - starts[array] + block - 1) / block * block;
    for (; array < counts.size(); ++array, first = 0) {
      for (; first < counts[array]; first += block) {
        if (starts[array] + first >= end) return;
        body(array, first, std::min(counts[array], first + block));
      }
    }
  });
}

}  // namespace trireme::cpu

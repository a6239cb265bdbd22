// One number or record of each rank, on all ranks. Read next: parallel/comm/texts.h (the same of texts).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "parallel/comm/process_group.h"

namespace trireme {

/// Every rank's value, by rank, on all ranks of the group. Collective. T is moved as bytes, so it has no pointers.
template <class T>
std::vector<T> all_gather_values(ProcessGroup& group, const T& mine) {
  constexpr std::size_t word = 8;  // bytes of an i64
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % word == 0);
  constexpr auto words = static_cast<std::int64_t>(sizeof(T) / word);
  const Tensor own = Tensor::empty({words}, DType::i64), all = Tensor::empty({group.size(), words}, DType::i64);
  std::memcpy(own.raw(), &mine, sizeof(T));
  group.all_gather(own, all).wait();
  std::vector<T> values(static_cast<std::size_t>(group.size()));
  std::memcpy(values.data(), all.raw(), values.size() * sizeof(T));
  return values;
}

}  // namespace trireme

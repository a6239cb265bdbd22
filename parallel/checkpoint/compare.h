// Two checkpoints compared as global tensors, whatever meshes wrote them. Read next: examples/checkpoint.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/checkpoint/checkpoint.h"

namespace trireme::checkpoint {

/// A tensor of two checkpoints that is not the same.
struct Difference {
  std::string name;           ///< of a tensor
  std::string what;           ///< "only in the first", "f32 [2, 3] and f32 [2, 4]"; empty: elements differ
  std::int64_t elements = 0;  ///< how many differ, by their bits
  std::int64_t first = -1;    ///< the row-major index of the first of them
  double largest = 0;         ///< largest absolute difference; infinite if only one of two elements is NaN
};

/// Every tensor that differs, by name. Reads and verifies all of both, one tensor at a time.
std::vector<Difference> compare(Checkpoint& a, Checkpoint& b);

}  // namespace trireme::checkpoint

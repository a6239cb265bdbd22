// Ids that name rows: tokens, labels, indices. Operations check them on entry, because a kernel
// would compute a plausible result from an id out of range.
// Read next: autograd/embedding.cpp, nn/cross_entropy.cpp.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace trireme {

/// The ids that are allowed: first .. end - 1, and all negative ones if `negative`.
struct IdRange {
  std::int64_t first = 0, end = 0;
  bool negative = false;
};

/// Throws ExitCode::internal unless ids are i32, and ExitCode::data unless each is in the range; names the first that
/// is not, and its place. `what` names one id, `remedy` says what to change. The host waits for ids that a device
/// computed; of those that to() copied there, it knows the smallest and the largest.
void check_ids(std::string_view where, std::string_view what, const Tensor& ids, const IdRange& range,
               std::string_view remedy);

/// Notes the smallest and the largest of `ids`, in host memory, on their copy: Tensor::set_extremes().
void note_extremes(const Tensor& ids, const Tensor& copy);

}  // namespace trireme

// Ids that name rows: tokens, labels, indices. An operation checks them where they come in, as a kernel that is given
// an id out of range computes something plausible.
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
/// is not, and its place. `what` names one id, `remedy` says what to change. It reads each id once, in host memory. Ids
/// in a device's memory are not checked, as that would make the host wait: check them before they are copied there.
void check_ids(std::string_view where, std::string_view what, const Tensor& ids, const IdRange& range,
               std::string_view remedy);

}  // namespace trireme

// The output of examples/checkpoint.cpp. Read next: parallel/checkpoint/compare.h.
#pragma once

#include <string>
#include <vector>

#include "parallel/checkpoint/compare.h"

namespace trireme {

/// Step, loss, date, mesh, files, model and progress, on one screen. With `tensors`, also every tensor with its pieces.
/// With `configuration`, all files, long texts whole, and the flags of the run.
std::string describe_checkpoint(const checkpoint::Checkpoint& saved, bool tensors, bool configuration);
std::string verified_line(const checkpoint::Checkpoint& saved);
/// One line for each tensor that differs, and a last line with their number.
std::string describe_differences(const checkpoint::Checkpoint& a, const checkpoint::Checkpoint& b,
                                 const std::vector<checkpoint::Difference>& differences);

}  // namespace trireme

// The output of examples/checkpoint.cpp. Read next: parallel/checkpoint/compare.h.
#pragma once

#include <string>
#include <vector>

#include "parallel/checkpoint/compare.h"

namespace trireme {

/// Step, loss, date, mesh, files, model and progress, on one screen. With `tensors`, also every tensor with its pieces.
/// With `configuration`, all files, long texts whole, and the flags of the run. Wrapped to `columns`; 0: any width.
std::string describe_checkpoint(const checkpoint::Checkpoint& saved, bool tensors, bool configuration, int columns = 0);
/// One line: what was read and verified.
std::string verified_line(const checkpoint::Checkpoint& saved);
/// How many tensors differ, and a table of them: weights first, then optimizer state. Names are cut to `columns`.
std::string describe_differences(const checkpoint::Checkpoint& a, const checkpoint::Checkpoint& b,
                                 const std::vector<checkpoint::Difference>& differences, int columns = 0);

}  // namespace trireme

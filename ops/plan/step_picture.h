// Pictures of a simulated step (plan --page): what each rank of a pipeline does when, and the memory of its fullest rank.
// Read next: ops/plan/step_picture.cpp, ops/plan/page.h.
#pragma once

#include <string>

#include "ops/plan/predict.h"

namespace trireme::plan {

/// An SVG document: for each rank a row of its forwards and backwards with the numbers of their micro-batches, its
/// waits for other ranks, and below it the collectives that run in the background.
std::string draw_timeline(const Recording& recording);

/// An SVG document: bytes in use by category over the step, of the rank that needs most.
std::string draw_memory(const Recording& recording);

}  // namespace trireme::plan

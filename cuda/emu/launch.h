// Starts a kernel under emulation: the clusters of a grid on OS threads, in an order that depends on the seed.
#pragma once

#include <functional>

#include "cuda/emu/block.h"

namespace trireme::cuda::emu {

/// Runs body() as every thread of every block. Throws the Error of the first block (by index) that misbehaves.
void run_grid(const BlockShape& shape, const std::function<void()>& body);

}  // namespace trireme::cuda::emu

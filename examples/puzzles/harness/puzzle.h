// What every puzzle's puzzle.h builds upon: the device header, with which kernels are written, and the grading that
// puzzles share with the labs.
// Read next: examples/puzzles/01_map/puzzle.h; examples/puzzles/harness/trial.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "cuda/device/device.h"
#include "examples/labs/harness/grading.h"

namespace trireme::puzzles {

// What kernels call; they write cuda::NAME for all else.
using cuda::load_vector;
using cuda::Pack;
using cuda::shuffle;
using cuda::shuffle_down;
using cuda::shuffle_xor;
using cuda::store_vector;
using cuda::sync_threads;
using cuda::sync_warp;

using labs::Answer;
using labs::at;
using labs::Grading;
using labs::Registered;

/// An answer to puzzle `number`, "01". `expected`: of a wrong one, a part of the message with which it must fail.
inline Answer answer_to(std::string number, std::string name, std::function<void(Grading&)> grade,
                        std::string expected = {}) {
  return {std::move(number), std::move(name), std::move(grade), std::move(expected), "puzzle"};
}

}  // namespace trireme::puzzles

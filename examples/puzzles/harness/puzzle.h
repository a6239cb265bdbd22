// What every puzzle's puzzle.h builds upon: the device header, with which kernels are written, and the grading that
// puzzles share with the labs.
// Read next: examples/puzzles/01_map/puzzle.h; examples/puzzles/harness/trial.h.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "cuda/device/device.h"
#include "examples/labs/harness/grading.h"

namespace trireme::puzzles {

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

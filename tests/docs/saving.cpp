// The code around the snippet in docs/writing_a_model.md that saves a model: see snippets_test.py.
#include <fmt/core.h>

#include "nn/build.h"
#include "optim/optimizer.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/saver.h"

using namespace trireme;

void save_and_resume(const nn::Build& b, const std::shared_ptr<optim::Optimizer>& optimizer, const DeviceMesh* mesh,
                     std::int64_t step) {
  // SNIPPET
}

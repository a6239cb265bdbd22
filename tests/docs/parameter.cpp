// The code around the snippet in docs/tutorials.md that makes a parameter: see snippets_test.py.
#include "nn/build.h"

using namespace trireme;

void make_parameter(const nn::Build& b, std::int64_t out, std::int64_t in) {
  // SNIPPET
}

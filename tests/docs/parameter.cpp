// Context of the parameter in docs/tutorials.md: see snippets_test.py.
#include "nn/build.h"

using namespace trireme;

void make_parameter(const nn::Build& b, std::int64_t out, std::int64_t in) {
  // SNIPPET
}

// The code around the snippet in docs/contributing.md that throws an error: see snippets_test.py.
#include "core/error.h"

using namespace trireme;

void refuse(int heads, int tp) {
  // SNIPPET
}

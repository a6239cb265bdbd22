// Context of the error in docs/contributing.md: see snippets_test.py.
#include "core/error.h"

using namespace trireme;

void refuse(int heads, int tp) {
  // SNIPPET
}

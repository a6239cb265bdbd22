// The code around snippets that are a module: see snippets_test.py.
#include "nn/mlp.h"

using namespace trireme;

// SNIPPET

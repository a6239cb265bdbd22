// The code around snippets that are a module: see snippets_test.py.
#include "nn/containers.h"
#include "nn/mlp.h"

using namespace trireme;

// SNIPPET

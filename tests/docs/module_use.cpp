// The code around the snippets in docs/writing_a_model.md that use a module: see snippets_test.py.
#include <fmt/core.h>

#include "autograd/autocast.h"
#include "autograd/engine.h"
#include "data/dlpack.h"
#include "data/npy.h"
#include "nn/mlp.h"
#include "nn/summary.h"
#include "nn/weights.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/gradient_norm.h"

using namespace trireme;

struct Block : nn::Module {
  nn::LayerNorm norm;
  nn::Mlp mlp;
  explicit Block(const nn::Build& b) : Module(b), norm(b / "norm", 8), mlp(b / "mlp", {.width = 8, .hidden = 32}) {}
  Tensor forward(const Tensor& x) override { return x + mlp(norm(x)); }
};

void use_module(const nn::Build& b, const Tensor& x) {
  Block block(b / "block");
  // SNIPPET
}

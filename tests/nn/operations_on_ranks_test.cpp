// Operations know no mesh: what a rank computes from its part of a batch adds up to what one rank computes from all.
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace operations_on_ranks_test {
namespace {

/// A sum over samples x [B, T, D] that uses masks, parts, reductions and indices of each sample by itself.
Tensor loss_of(const Tensor& x, const Tensor& weight) {
  const Tensor h = einsum("btd,ed->bte", {x, weight});
  const Tensor masked = masked_fill(h, x > 0.5, -3.0);
  const std::vector<Tensor> steps = unbind(masked, 1);  // T of [B, D]
  Tensor state = steps[0];
  for (std::size_t t = 1; t < steps.size(); ++t) state = maximum(steps[t], 0.5 * state) + 1.0 / (2.0 + square(state));
  const Tensor spread = logsumexp(cumsum(masked, 1), 1) + var(h, 1) + norm(masked, 1);  // [B, D]
  return sum(where(state < spread, state * 2.0, spread)) + sum(topk(masked, 2).values) + sum(pad(flip(h, 1), 1, 1, 0));
}

Tensor weight_gradient(const Tensor& x, const Tensor& start) {
  Tensor weight = clone(start);
  require_grad(weight);
  backward(loss_of(x, weight));
  return grad(weight);
}

}  // namespace

TEST_CASE("the gradients of ranks with parts of a batch add up to those of one rank") {
  const Tensor x = random({6, 5, 4}, 1), weight = random({4, 4}, 2), expected = weight_gradient(x, weight);
  for (const std::string mesh_text : {"dp=2", "dp=3"}) {
    CAPTURE(mesh_text);
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      const int ranks = mesh->size(Axis::dp), rank = mesh->coord(Axis::dp);
      const Tensor part = view::slice(x, 0, rank * 6 / ranks, 6 / ranks);
      const Tensor sum_over_ranks = weight_gradient(part, weight);
      mesh->group(Axis::dp).all_reduce(sum_over_ranks).wait();
      CHECK(relative_difference(sum_over_ranks, expected) < 1e-13);
    });
  }
}

}  // namespace operations_on_ranks_test

// Every move of redistribute(): its value, and its gradient against the same computation on one rank.
//
// The check of gradients needs no table of backward moves. One global tensor is the output's gradient, placed as the
// output's placement requires. The input's gradient, assembled from the placement that the input's placement requires,
// must be the same global tensor.
#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "parallel/mesh/redistribute.h"
#include "tests/support/largest.h"
#include "tests/support/tensors.h"

using namespace trireme;
using testing::random;
using Kind = Placement::Kind;

namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  REQUIRE(x.shape() == y.shape());
  double largest = 0;
  for (std::int64_t i = 0; i < x.count(); ++i)
    testing::keep_largest(largest, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  return largest;
}

/// This rank's local tensor of the global `x` under a placement. If it is partial: terms that sum to x, different on
/// every rank.
Tensor place(const Tensor& x, Placement placement, int rank, int n) {
  if (placement.sharded()) {
    const std::int64_t piece = x.size(placement.dim) / n;
    return clone(view::slice(x, placement.dim, rank * piece, piece));
  }
  if (placement.kind != Kind::partial) return clone(x);
  const Tensor noise = random(x.shape(), 50);  // rank r has noise * (r + 1), the last rank x minus all others
  const double factor = rank < n - 1 ? rank + 1 : -n * (n - 1) / 2.0;
  const Tensor share = noise * factor;
  return rank < n - 1 ? share : share + x;
}

/// The global tensor that the local ones stand for.
Tensor assemble(const Tensor& local, Placement placement, ProcessGroup& group) {
  if (placement.kind == Kind::partial) {
    Tensor sum = clone(local);
    group.all_reduce(sum).wait();
    return sum;
  }
  if (!placement.sharded()) return local.detach();
  std::vector<std::int64_t> extents = {group.size()};
  extents.insert(extents.end(), local.shape().begin(), local.shape().end());
  Tensor pieces = Tensor::empty(Shape(std::span<const std::int64_t>(extents)), DType::f64);
  group.all_gather(contiguous(local), pieces).wait();
  std::vector<Tensor> parts;
  for (int i = 0; i < group.size(); ++i) parts.push_back(view::select(pieces, 0, i));
  return concat(parts, placement.dim);
}

Placement gradient_of(Placement value) {
  if (value.kind == Kind::replicated) return placement::P;
  if (value.kind == Kind::partial) return placement::I;
  return value;
}

struct Move {
  Placement from, to;
};
using placement::I, placement::P, placement::R, placement::S;
const std::vector<Move> moves = {{I, R},    {P, I},       {S(0), R},    {S(1), R},    {S(2), R},   {P, S(0)},
                                 {P, S(1)}, {P, S(2)},    {S(0), I},    {S(1), I},    {I, S(0)},   {I, S(2)},
                                 {P, R},    {S(0), S(1)}, {S(1), S(2)}, {S(2), S(0)}, {S(1), S(1)}};

}  // namespace

TEST_CASE("every move keeps the value, and its backward keeps the gradient") {
  for (const int n : {1, 2, 4}) {
    run_thread_ranks(n, 1, ProcessGroup::Deadline(1800), [n](const std::shared_ptr<ProcessGroup>& world) {
      const DeviceMesh mesh(world, parse_mesh(fmt::format("tp={}", n), n));
      ProcessGroup& group = mesh.group(Axis::tp);
      const Tensor x = random({4, 8, 4}, 1), w = random({4, 8, 4}, 2);  // d(sum x w)/dx = w
      for (const Move& move : moves) {
        CAPTURE(n);
        CAPTURE(to_string(move.from));
        CAPTURE(to_string(move.to));
        Tensor local = place(x, move.from, group.rank(), n);
        require_grad(local);
        const Tensor moved = redistribute(local, mesh, Axis::tp, move.from, move.to);
        CHECK(largest_difference(assemble(moved.detach(), move.to, group), x) < 1e-12);
        if (n == 1 || move.from == move.to) {  // the same tensor: nothing is recorded
          CHECK(leaf_of(moved) == leaf_of(local));
          continue;
        }
        REQUIRE(moved.requires_grad());
        REQUIRE(leaf_of(moved) == nullptr);
        backward(moved, place(w, gradient_of(move.to), group.rank(), n));
        CHECK(largest_difference(assemble(grad(local), gradient_of(move.from), group), w) < 1e-12);
      }
    });
  }
}

TEST_CASE("an axis of size 1 records nothing") {
  const DeviceMesh mesh(self_group(), MeshShape{});
  Tensor x = random({2, 2}, 1);
  require_grad(x);
  CHECK(redistribute(x, mesh, Axis::tp, P, I).node() == x.node());
}

TEST_CASE("a pair that is not in the table is refused") {
  const DeviceMesh mesh(self_group(), MeshShape{});
  CHECK_THROWS_WITH_AS(redistribute(random({2}, 1), mesh, Axis::tp, R, S(0)),
                       doctest::Contains("no move from R to S(0) on tp"), Error);
  CHECK_THROWS_WITH_AS(redistribute(random({2}, 1), mesh, Axis::tp, S(0), P),
                       doctest::Contains("no move from S(0) to P on tp"), Error);
}

#include "parallel/mesh/redistribute.h"

#include "autograd/op.h"
#include "autograd/ops.h"
#include "core/columns.h"
#include "core/profile.h"
#include "parallel/comm/call_site.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

using Kind = Placement::Kind;

/// The group of a move, and the order of its sums.
struct MoveOptions {
  ProcessGroup& group;
  SumOrder order;
};

Tensor all_reduced(const Tensor& x, const MoveOptions& options) {
  Tensor y = clone(x);
  options.group.all_reduce(y, ReduceOp::sum, Launch::lazy, options.order).wait();
  return y;
}

/// [.., n d, ..] as [n, .., d, ..]: the pieces along dim, each dense, in rank order.
Tensor split_pieces(const Tensor& x, int dim, int n) {
  const std::int64_t piece = x.size(dim) / n;
  require(piece * n == x.size(dim), "redistribute", "dim {} of {} does not divide over {} ranks", dim, x.shape(), n);
  std::vector<std::int64_t> extents = {n};
  for (const std::int64_t extent : x.shape().with(dim, piece)) extents.push_back(extent);
  Tensor pieces = Tensor::empty(Shape(std::span<const std::int64_t>(extents)), x.dtype(), x.device());
  for (int i = 0; i < n; ++i) {
    Tensor to = view::select(pieces, 0, i);
    copy(view::slice(x, dim, i * piece, piece), to);
  }
  return pieces;
}

/// The inverse of split_pieces.
Tensor join_pieces(const Tensor& pieces, int dim) {
  const std::int64_t n = pieces.size(0), piece = pieces.size(dim + 1);
  const Tensor whole = Tensor::empty(pieces.shape().without(0).with(dim, n * piece), pieces.dtype(), pieces.device());
  for (std::int64_t i = 0; i < n; ++i) {
    Tensor to = view::slice(whole, dim, i * piece, piece);
    copy(view::select(pieces, 0, i), to);
  }
  return whole;
}

Shape stacked(const Shape& shape, int n) {
  std::vector<std::int64_t> extents = {n};
  extents.insert(extents.end(), shape.begin(), shape.end());
  return Shape(std::span<const std::int64_t>(extents));
}

Tensor gathered(const Tensor& x, int dim, ProcessGroup& group) {
  Tensor pieces = Tensor::empty(stacked(x.shape(), group.size()), x.dtype(), x.device());
  group.all_gather(contiguous(x), pieces).wait();
  return dim == 0 ? view::reshape(pieces, x.shape().with(0, x.size(0) * group.size())) : join_pieces(pieces, dim);
}

Tensor reduce_scattered(const Tensor& x, int dim, const MoveOptions& options) {
  const Tensor pieces = split_pieces(x, dim, options.group.size());
  Tensor y = Tensor::empty(pieces.shape().without(0), x.dtype(), x.device());
  options.group.reduce_scatter(pieces, y, Launch::lazy, options.order).wait();
  return y;
}

Tensor own_slice(const Tensor& x, int dim, ProcessGroup& group) {
  const std::int64_t piece = x.size(dim) / group.size();
  require(piece * group.size() == x.size(dim), "redistribute", "dim {} of {} does not divide over {} ranks", dim,
          x.shape(), group.size());
  return clone(view::slice(x, dim, group.rank() * piece, piece));
}

Tensor exchanged(const Tensor& x, int from, int to, ProcessGroup& group) {
  const Tensor pieces = split_pieces(x, to, group.size());
  Tensor received = Tensor::empty(pieces.shape(), x.dtype(), x.device());
  group.all_to_all(pieces, received).wait();
  return join_pieces(received, from);
}

/// Converts a value with placement `from` to placement `to`.
Tensor move(const Tensor& x, Placement from, Placement to, const MoveOptions& options) {
  if (from.kind == Kind::partial) {
    return to.sharded() ? reduce_scattered(x, to.dim, options) : all_reduced(x, options);
  }
  ProcessGroup& group = options.group;
  if (from.sharded()) { return to.sharded() ? exchanged(x, from.dim, to.dim, group) : gathered(x, from.dim, group); }
  return to.sharded() ? own_slice(x, to.dim, group) : x;  // replicated: take a slice, or do nothing
}

/// The placement of the gradient of a tensor with this placement.
Placement placement_of_gradient(Placement value) {
  switch (value.kind) {
    case Kind::replicated:
      return placement::P;  // each rank has its part of the sum
    case Kind::partial:
      return placement::I;  // d(sum)/d(part) is the same on every rank
    default:
      return value;
  }
}

/// y = x placed `to` instead of `from`;  dx: dy, placed as the gradient of `to`, placed as the gradient of `from`
struct Redistribute : Op {
  static constexpr const char* name = "redistribute";
  static constexpr bool keeps_f32 = true;
  Placement from, to;
  ProcessGroup* group = nullptr;
  SumOrder order = SumOrder::ranks;
  std::string site;  // of the forward, for messages
  SavedInput part;   // of S -> R, while RepeatCheapInputs is active
  Tensor forward(const Tensor& x) {
    if (gathers() && !producers.empty()) part = SavedInput(*this, 0, x);
    if (group->size() > 1) site = fmt::format("backward of {}", CallSite::current());
    if (group->verifies()) verify(x, from, "the input");
    const Tensor y = move(x, from, to, {*group, order});
    if (group->verifies()) verify(y, to, "the output");
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    const CallSite scope(site.empty() ? CallSite::current() : std::string_view(site));
    const Placement of_dy = placement_of_gradient(to), of_dx = placement_of_gradient(from);
    if (group->verifies()) verify(dy, of_dy, "the gradient of the output");
    const Tensor dx = move(dy, of_dy, of_dx, {*group, order});
    if (group->verifies()) verify(dx, of_dx, "the gradient of the input");
    return {dx};
  }
  void verify(const Tensor& x, Placement placement, const char* what) const {
    const bool same_everywhere = placement.kind == Kind::replicated || placement.kind == Kind::invariant;
    if (same_everywhere) require_same(x, *group, fmt::format("{} of {} -> {}", what, to_string(from), to_string(to)));
  }
  bool gathers() const { return from.sharded() && to.kind == Kind::replicated; }
  /// Where the move is the identity, the producer of its input can recompute its output. A gathered output is gathered
  /// again, so that a rank keeps only its own part (Korthikanti et al. 2022, section 4.2.2).
  bool cheap_to_repeat() const {
    if (producers.empty()) return false;
    return gathers() || (from.kind == Kind::invariant && to.kind == Kind::replicated && producers[0] != nullptr &&
                         producers[0]->cheap_to_repeat());
  }
  Tensor repeat() const {
    if (!gathers()) return producers[0]->repeat();
    const CallSite scope(site.empty() ? CallSite::current() : std::string_view(site));
    return move(part.get(), from, to, {*group, order});
  }
};

/// Says of y, which is x moved, what is known of x's columns (Tensor::set_columns).
void move_columns(const Tensor& x, const Tensor& y, Placement from, Placement to, int ranks) {
  const int last = x.dims() - 1;
  if (last < 0 || columns_dim(x) != last) return;
  MemoryPool::Columns columns = x.columns();
  if (from.sharded() && from.dim == last && columns.parts == ranks) columns.parts = 1;
  if (to.sharded() && to.dim == last && columns.parts == 1) columns.parts = ranks;
  columns.width = y.size(last);
  if (columns.padded() || columns.split()) y.set_columns(columns);
}

/// The table in redistribute.h.
bool allowed(Placement from, Placement to) {
  const Kind f = from.kind, t = to.kind;
  return (f == Kind::invariant && (t == Kind::replicated || t == Kind::sharded)) ||
         (f == Kind::partial && t != Kind::partial) || (f == Kind::sharded && t != Kind::partial);
}

}  // namespace

Tensor redistribute(const Tensor& x, const DeviceMesh& mesh, Axis axis, Placement from, Placement to) {
  require(allowed(from, to) || from == to, "redistribute", "no move from {} to {} on {}", to_string(from),
          to_string(to), name(axis));
  if (mesh.size(axis) == 1 || from == to) return x;
  Redistribute op;
  op.from = from;
  op.to = to;
  op.group = &mesh.group(axis);
  // On tp, x is an activation: other tp groups have other samples, positions or layers. On another axis, tp ranks may
  // hold copies of x, which must stay equal.
  op.order = axis == Axis::tp ? SumOrder::any : SumOrder::ranks;
  const ProfileScope event([&] {
    return ProfileEvent{.category = "placement",
                        .name = fmt::format("{} -> {} over {}", to_string(from), to_string(to), name(axis)),
                        .detail = to_string(x.shape())};
  });
  Tensor y = apply(op, x);
  move_columns(x, y, from, to, mesh.size(axis));
  return y;
}

}  // namespace trireme

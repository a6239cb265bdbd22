#include "cuda/libraries/sdpa_graph.h"

#include <array>
#include <utility>

namespace trireme::cuda {
namespace {

using Node = std::size_t;
using Dims = std::array<std::int64_t, 4>;

/// k [B, Hkv, Tk, D] as k^T [B, Hkv, D, Tk].
SdpaTensor transposed(SdpaTensor tensor) {
  std::swap(tensor.dims[2], tensor.dims[3]);
  std::swap(tensor.strides[2], tensor.strides[3]);
  return tensor;
}

SdpaTensor dense(const Dims& dims) { return {dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}}; }

class Builder {
 public:
  explicit Builder(const SdpaProblem& problem)
      : p_(problem),
        type_(p_.type == SdpaType::bf16 ? SdpaElement::bf16 : SdpaElement::f16),
        scores_{p_.q.dims[0], p_.q.dims[1], p_.q.dims[2], p_.k.dims[2]},
        columns_{p_.q.dims[0], p_.q.dims[1], p_.q.dims[2], 1} {}

  SdpaGraph forward() {
    const Node q = memory(SdpaId::q, p_.q);               // [B, H, Tq, D]
    const Node kt = memory(SdpaId::k, transposed(p_.k));  // [B, Hkv, D, Tk]
    const Node products = apply(SdpaOp::matmul, {q, kt}, inside(scores_));
    const Node scores = mask(apply(SdpaOp::multiply, {products, scalar(SdpaId::scale)}, inside(scores_)));

    const Node largest = apply(SdpaOp::reduce_max, {scores}, inside(columns_));  // [B, H, Tq, 1]
    const Node distances = apply(SdpaOp::subtract, {scores, largest}, inside(scores_));
    const Node powers = apply(SdpaOp::exponential, {distances}, inside(scores_));
    const Node sum = apply(SdpaOp::reduce_sum, {powers}, inside(columns_));
    const Node log = apply(SdpaOp::logarithm, {sum}, inside(columns_));
    apply(SdpaOp::add, {largest, log}, memory(SdpaId::lse, p_.lse, SdpaElement::f32));
    const Node p = apply(SdpaOp::divide, {powers, sum}, inside(scores_, type_));
    apply(SdpaOp::matmul, {p, memory(SdpaId::v, p_.v)}, memory(SdpaId::out, p_.out));
    return std::move(graph_);
  }

  SdpaGraph backward() {
    const Node q = memory(SdpaId::q, p_.q);               // [B, H, Tq, D]
    const Node kt = memory(SdpaId::k, transposed(p_.k));  // [B, Hkv, D, Tk]
    const Node vt = memory(SdpaId::v, transposed(p_.v));
    const Node out = memory(SdpaId::out, p_.out);  // [B, H, Tq, D]
    const Node dout = memory(SdpaId::dout, p_.dout);
    const Node scale = scalar(SdpaId::scale);

    const Node products = apply(SdpaOp::multiply, {dout, out}, inside(p_.q.dims));
    const Node row_sums = apply(SdpaOp::reduce_sum, {products}, inside(columns_));
    const Node delta = apply(SdpaOp::multiply, {row_sums, scalar(SdpaId::one)},
                             memory(SdpaId::delta, p_.lse, SdpaElement::f32));  // [B, H, Tq, 1]

    const Node scores = apply(SdpaOp::matmul, {q, kt}, inside(scores_));  // [B, H, Tq, Tk]
    const Node scaled = apply(SdpaOp::multiply, {scores, scale}, inside(scores_));
    const Node lse = memory(SdpaId::lse, p_.lse, SdpaElement::f32);
    const Node logs = mask(apply(SdpaOp::subtract, {scaled, lse}, inside(scores_)));
    const Node p = apply(SdpaOp::exponential, {logs}, inside(scores_));
    key_gradient(memory(SdpaId::dv, p_.dv), p, dout);

    const Node dp = apply(SdpaOp::matmul, {dout, vt}, inside(scores_));
    const Node centred = apply(SdpaOp::subtract, {dp, delta}, inside(scores_));
    const Node weighted = apply(SdpaOp::multiply, {centred, p}, inside(scores_));
    const Node ds = apply(SdpaOp::multiply, {weighted, scale}, inside(scores_));
    key_gradient(memory(SdpaId::dk, p_.dk), ds, q);

    const Node k = apply(SdpaOp::reshape, {kt}, inside(p_.k, type_));  // [B, Hkv, Tk, D]
    apply(SdpaOp::matmul, {ds, k}, memory(SdpaId::dq, p_.dq));
    return std::move(graph_);
  }

 private:
  Node add(SdpaId id, SdpaElement type, const SdpaTensor& at) {
    graph_.nodes.push_back({id, type, at});
    return graph_.nodes.size() - 1;
  }
  Node memory(SdpaId id, const SdpaTensor& at) { return add(id, type_, at); }
  Node memory(SdpaId id, const SdpaTensor& at, SdpaElement type) { return add(id, type, at); }
  Node inside(const SdpaTensor& at, SdpaElement type) { return add(SdpaId::none, type, at); }
  Node inside(const Dims& dims, SdpaElement type = SdpaElement::f32) { return inside(dense(dims), type); }
  Node scalar(SdpaId id, SdpaElement type = SdpaElement::f32) { return add(id, type, dense({1, 1, 1, 1})); }

  Node apply(SdpaOp op, std::initializer_list<Node> operands, Node result, SdpaElement precision = SdpaElement::f32,
             int dim = 0) {
    graph_.operations.push_back({op, operands, result, precision, dim});
    return result;
  }

  /// Minus infinity where query i does not see key j: unless i + keys - queries >= j.
  Node mask(Node scores) {
    if (!p_.causal) return scores;
    constexpr SdpaElement i32 = SdpaElement::i32;
    Node row = apply(SdpaOp::index, {scores}, inside(scores_, i32), SdpaElement::f32, 2);
    const Node column = apply(SdpaOp::index, {scores}, inside(scores_, i32), SdpaElement::f32, 3);
    if (p_.q.dims[2] != p_.k.dims[2]) {
      row = apply(SdpaOp::add, {row, scalar(SdpaId::keys, i32)}, inside(scores_, i32), i32);
      row = apply(SdpaOp::subtract, {row, scalar(SdpaId::queries, i32)}, inside(scores_, i32), i32);
    }
    const Node seen =
        apply(SdpaOp::greater_equal, {row, column}, inside(scores_, SdpaElement::boolean), SdpaElement::boolean);
    return apply(SdpaOp::select, {scores, scalar(SdpaId::minus_infinity), seen}, inside(scores_));
  }

  /// gradient [B, Hkv, Tk, D] = x^T y, with x [B, H, Tq, Tk] and y [B, H, Tq, D]; summed over the heads of a group.
  void key_gradient(Node gradient, Node x, Node y) {
    const SdpaTensor xt = transposed(dense(scores_));  // [B, H, Tk, Tq]
    const Node left = apply(SdpaOp::reshape, {x}, inside(xt, type_));
    if (graph_.nodes[gradient].at.dims[1] == scores_[1]) {
      apply(SdpaOp::matmul, {left, y}, gradient);
      return;
    }
    const Node of_heads = inside(Dims{scores_[0], scores_[1], scores_[3], p_.q.dims[3]}, type_);
    apply(SdpaOp::reduce_sum, {apply(SdpaOp::matmul, {left, y}, of_heads)}, gradient);
  }

  const SdpaProblem& p_;
  SdpaElement type_;
  Dims scores_, columns_;  ///< [B, H, Tq, Tk], [B, H, Tq, 1]
  SdpaGraph graph_;
};

}  // namespace

SdpaGraph sdpa_graph(const SdpaProblem& problem) {
  Builder builder(problem);
  return problem.backward ? builder.backward() : builder.forward();
}

}  // namespace trireme::cuda

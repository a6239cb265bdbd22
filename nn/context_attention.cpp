#include "nn/context_attention.h"

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "nn/ring_attention.h"
#include "nn/sequence_order.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

using placement::S;

Tensor ulysses_attention(const Tensor& q, const Tensor& k, const Tensor& v, const DeviceMesh& mesh,
                         const Tensor& document_starts, const ScoreRule& rule) {
  const int cp = mesh.size(Axis::cp);
  require(q.size(2) % cp == 0 && k.size(2) % cp == 0, "ulysses attention",
          "{} heads and {} kv heads of a tp rank must both divide by cp={}", q.size(2), k.size(2), cp);
  const auto whole_sequence = [&](const Tensor& x) {  // [B, T/cp, H, Dh] -> [B, T, H/cp, Dh]
    return to_sequence_order(redistribute(x, mesh, Axis::cp, S(1), S(2)), cp);
  };
  const Tensor out = attention(whole_sequence(q), whole_sequence(k), whole_sequence(v), true, rule.scale,
                               document_starts, rule.softcap);              // [B, T, H/cp, Dh]
  return redistribute(to_rank_order(out, cp), mesh, Axis::cp, S(2), S(1));  // [B, T/cp, H, Dh]
}

}  // namespace

Tensor context_attention(const Tensor& queries, const Tensor& keys, const Tensor& values, const DeviceMesh& mesh,
                         ContextParallel method, const Tensor& document_starts, const ScoreRule& rule) {
  const Tensor q = for_product(queries), k = for_product(keys), v = for_product(values);
  if (mesh.size(Axis::cp) == 1) return attention(q, k, v, true, rule.scale, document_starts, rule.softcap);
  if (method == ContextParallel::ulysses) return ulysses_attention(q, k, v, mesh, document_starts, rule);
  return ring_attention(q, k, v, mesh.group(Axis::cp), document_starts, rule);
}

}  // namespace trireme::nn

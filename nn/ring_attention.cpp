#include "nn/ring_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "nn/documents.h"
#include "nn/positions.h"

namespace trireme::nn {
namespace {

constexpr int keys_tag = 0, gradients_tag = 1;

/// A tensor on its way to the next rank, and one on its way here. A tensor that was sent is never written to again.
struct Shift {
  Work sent, received;
  Tensor arriving;

  Tensor wait() {
    received.wait();
    sent.wait();
    return arriving;
  }
};

Shift shift(const Tensor& x, ProcessGroup& ring, int tag) {
  const int n = ring.size();
  const MemoryScope scope(MemoryCategory::communication);
  Shift moving;
  moving.arriving = empty_like(x);
  moving.received = ring.recv(moving.arriving, (ring.rank() + n - 1) % n, tag);
  moving.sent = ring.send_final(x, (ring.rank() + 1) % n, tag);
  return moving;
}

/// A part of the local tokens: dim 1 of q, k, v.
struct Part {
  std::int64_t begin = 0, length = 0;
  Tensor of(const Tensor& x, int dim = 1) const { return view::slice(x, dim, begin, length); }
};

/// A block of one rank's queries against a block of another's keys.
struct Block {
  Part queries, keys;
  bool causal = false;
  Tensor first_key;    // [B, queries] i32, or undefined
  bool empty = false;  // no query sees a key

  void set_first_key(const Tensor& first, Device device) {
    const auto all = first.span<std::int32_t>();
    empty = std::all_of(all.begin(), all.end(), [&](std::int32_t key) { return key >= keys.length; });
    first_key = first.to(device);
  }
};

/// to += from, views of one shape whose rows [T, H, Dh] are dense.
void add_to(const Tensor& from, const Tensor& to) {
  for (std::int64_t b = 0; b < to.size(0); ++b) {
    Tensor row = view::select(to, 0, b);
    kernels(to.device()).axpby(1, view::select(from, 0, b), 1, row);
  }
}

/// out = softmax(scores of q k^T) v and its gradients as in autograd/attention.cpp, block after block of keys. Forward
/// merges the blocks by log-sum-exp. Backward computes each block's terms of dq, dk and dv from the merged lse and out.
struct RingAttention : Op {
  static constexpr const char* name = "ring_attention";
  ProcessGroup* ring = nullptr;
  ScoreRule rule = 1;
  Tensor document_starts;  // [B, T] i32, or undefined
  Tensor q, kv, out, lse;  // [B, T/n, H, Dh], [2, B, T/n, Hkv, Dh], as q, [B, H, T/n]

  Block block(int step) const {
    const int n = ring->size();
    const std::int64_t local = q.size(1);
    const RingStep s = ring_step(step, ring->rank(), n, local);
    Block b{.queries = {s.first_query, s.queries}, .keys = {s.first_key, s.keys}, .causal = s.causal, .first_key = {}};
    if (document_starts.defined()) {
      PositionRuns queries = zigzag(local * n, n, ring->rank()), keys = zigzag(local * n, n, s.source);
      if (s.queries < local) queries = part(queries, 2, 1);
      if (s.keys < local) keys = part(keys, 2, 0);
      b.set_first_key(first_keys(document_starts, queries, keys), q.device());
    }
    return b;
  }

  /// The early (0) or the late (1) half of this rank's queries against those of its own keys that they see.
  Block own_half(int which) const {
    const std::int64_t local = q.size(1), half = local / 2;
    const PositionRuns here = zigzag(local * ring->size(), ring->size(), ring->rank());
    Block b{.queries = {which * half, half}, .keys = {0, (which + 1) * half}, .causal = true, .first_key = {}};
    if (document_starts.defined())
      b.set_first_key(first_keys(document_starts, part(here, 2, which), which == 0 ? part(here, 2, 0) : here),
                      q.device());
    return b;
  }

  /// Keys and values in one tensor, so that they travel in one message.
  static Tensor pack(const Tensor& k, const Tensor& v) {
    Tensor both = Tensor::empty({2, k.size(0), k.size(1), k.size(2), k.size(3)}, k.dtype(), k.device());
    Tensor keys = view::select(both, 0, 0), values = view::select(both, 0, 1);
    copy(k, keys);
    copy(v, values);
    return both;
  }

  Tensor forward(const Tensor& queries, const Tensor& keys, const Tensor& values) {
    q = contiguous(queries);
    kv = pack(keys, values);
    const int n = ring->size();
    Tensor held = kv, merged;  // merged: out in the dtype of sums
    for (int step = 0; step < n; ++step) {
      const bool more = step + 1 < n;
      Shift next = more ? shift(held, *ring, keys_tag) : Shift{};
      attend(block(step), held, merged);
      if (more) held = next.wait();
    }
    out = cast(merged, q.dtype());
    return out;
  }

  void attend(const Block& b, const Tensor& held, Tensor& merged) {
    if (b.empty) return;
    const KernelTable& table = kernels(q.device());
    const Tensor k = b.keys.of(view::select(held, 0, 0)), v = b.keys.of(view::select(held, 0, 1));
    const Tensor some = b.queries.of(q);  // [B, queries, H, Dh]
    Tensor part_out = Tensor::empty(some.shape(), q.dtype(), q.device());
    Tensor part_lse = Tensor::empty({q.size(0), q.size(2), b.queries.length}, accumulate_dtype(q), q.device());
    table.attention(some, k, v, rule, b.causal, b.first_key, part_out, part_lse);
    if (!merged.defined()) {  // the first block has all queries, and each sees at least itself
      merged = cast(part_out, accumulate_dtype(q));
      lse = std::move(part_lse);
      return;
    }
    Tensor out_here = b.queries.of(merged), lse_here = b.queries.of(lse, 2);
    table.attention_merge(part_out, part_lse, out_here, lse_here);
  }

  Gradients backward(const Tensor& gradient) const {
    const Tensor dout = contiguous(gradient);
    const DType sum_dtype = accumulate_dtype(q);
    const Tensor dq = Tensor::zeros(q.shape(), sum_dtype, q.device());
    const int n = ring->size();
    Tensor held = kv;
    Shift sums;  // the gradient of the block held next, from the ranks that held it before
    for (int step = 0; step < n; ++step) {
      const bool more = step + 1 < n;
      Shift next = more ? shift(held, *ring, keys_tag) : Shift{};
      const Block b = step == 0 ? own_half(1) : block(step);
      const Tensor terms = b.empty ? Tensor() : add_gradients(b, held, dout, dq);  // [2, B, keys, Hkv, Dh]
      const Tensor sum = step == 0 ? Tensor::zeros(kv.shape(), sum_dtype, q.device()) : sums.wait();
      if (!b.empty) add_terms(b, terms, sum);
      sums = shift(sum, *ring, gradients_tag);
      if (more) held = next.wait();
    }
    const Block rest = own_half(0);  // computed while the sums return
    const Tensor terms = add_gradients(rest, kv, dout, dq);
    const Tensor sum = sums.wait();
    add_terms(rest, terms, sum);
    const Tensor dkv = cast(sum, q.dtype());
    return {cast(dq, q.dtype()), view::select(dkv, 0, 0), view::select(dkv, 0, 1)};
  }

  // terms [2, B, keys, ...], sum [2, B, T/n, ...]
  static void add_terms(const Block& b, const Tensor& terms, const Tensor& sum) {
    for (int i = 0; i < 2; ++i) add_to(view::select(terms, 0, i), b.keys.of(view::select(sum, 0, i)));
  }

  /// One block's terms of dk and dv; adds those of dq.
  Tensor add_gradients(const Block& b, const Tensor& held, const Tensor& dout, const Tensor& dq) const {
    const Tensor k = b.keys.of(view::select(held, 0, 0)), v = b.keys.of(view::select(held, 0, 1));
    const Tensor some = b.queries.of(q);
    Tensor dq_term = Tensor::empty(some.shape(), q.dtype(), q.device());
    const Tensor terms = Tensor::empty({2, k.size(0), k.size(1), k.size(2), k.size(3)}, k.dtype(), k.device());
    Tensor dk = view::select(terms, 0, 0), dv = view::select(terms, 0, 1);
    kernels(q.device())
        .attention_backward(some, k, v, b.queries.of(out), contiguous(b.queries.of(lse, 2)), b.queries.of(dout), rule,
                            b.causal, b.first_key, dq_term, dk, dv);
    add_to(dq_term, b.queries.of(dq));
    return terms;
  }
};

}  // namespace

RingStep ring_step(int step, int rank, int ranks, std::int64_t local) {
  const std::int64_t half = local / 2;
  RingStep s{.source = (rank + ranks - step) % ranks,
             .first_query = 0,
             .queries = local,
             .first_key = 0,
             .keys = local,
             .causal = step == 0};
  if (s.source < rank) s.keys = half;
  if (s.source > rank) s.first_query = half, s.queries = half;
  return s;
}

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, ProcessGroup& ring,
                      const Tensor& document_starts, const ScoreRule& rule) {
  if (ring.size() == 1) return attention(q, k, v, true, rule.scale, document_starts, rule.softcap);
  require(q.dims() == 4 && k.dims() == 4 && v.shape() == k.shape() && q.size(0) == k.size(0) &&
              q.size(1) == k.size(1) && q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
          "ring attention",
          "expected q [B, T, H, Dh] and k, v [B, T, Hkv, Dh] with H a multiple of Hkv, got {}, {}, {}", q.shape(),
          k.shape(), v.shape());
  require(q.size(1) % 2 == 0, "ring attention", "a rank holds two chunks of one length, got {} tokens", q.size(1));
  RingAttention op;
  op.ring = &ring;
  op.rule = {rule.scale != 0 ? rule.scale : 1.0 / std::sqrt(static_cast<double>(q.size(-1))), rule.softcap};
  op.document_starts = document_starts;
  op.saved.add(document_starts, "document_starts");
  return apply(std::move(op), q, k, v);
}

}  // namespace trireme::nn

// Scaled dot-product attention (Vaswani et al. 2017) as one operation: the T x T scores exist only as tiles inside the
// kernel (Dao et al. 2022), and backward computes them again from the saved log-sum-exp.
#include <cmath>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// The kernel reads rows of Dh contiguous elements.
Tensor with_dense_rows(const Tensor& x) { return x.strides()[-1] == 1 ? x : contiguous(x); }

/// out = softmax(s) v, with s = scale q k^T, or with a softcap c: s = c tanh(scale q k^T / c). With p the
/// probabilities: dv = p^T dout, dp = dout v^T, ds = p (dp - rowsum(out dout)), dq = scale ds k, dk = scale ds^T q;
/// with a softcap ds has the factor 1 - (s / c)^2
struct Attention : Op {
  static constexpr const char* name = "attention";
  ScoreRule rule = 1;
  bool causal = true;
  Tensor first_key;  // [B, Tq] i32, or undefined
  Tensor q, k, v;    // [B, T, H, Dh]; k and v may have fewer heads
  Tensor out, lse;   // [B, T, H, Dh], [B, H, T]

  Tensor run(const Tensor& queries, const Tensor& keys, const Tensor& values) {
    q = with_dense_rows(queries);
    k = with_dense_rows(keys);
    v = with_dense_rows(values);
    out = Tensor::empty(q.shape(), q.dtype(), q.device());
    lse = Tensor::empty({q.size(0), q.size(2), q.size(1)}, accumulate_dtype(q), q.device());
    kernels(q.device()).attention(q, k, v, rule, causal, first_key, out, lse);
    return out;
  }
  void gradients(const Tensor& dout, Tensor& dq, Tensor& dk, Tensor& dv) const {
    kernels(q.device()).attention_backward(q, k, v, out, lse, contiguous(dout), rule, causal, first_key, dq, dk, dv);
  }

  Tensor forward(const Tensor& queries, const Tensor& keys, const Tensor& values) { return run(queries, keys, values); }
  Gradients backward(const Tensor& dout) const {
    Tensor dq = empty_like(q), dk = empty_like(k), dv = empty_like(v);
    gradients(dout, dq, dk, dv);
    return {dq, dk, dv};
  }
};

/// The same, reading q, k and v from one projection and writing one gradient for it.
struct AttentionPacked : Attention {
  static Tensor part(const Tensor& qkv, int i) { return view::select(qkv, 2, i); }

  Tensor forward(const Tensor& qkv) { return run(part(qkv, 0), part(qkv, 1), part(qkv, 2)); }
  Gradients backward(const Tensor& dout) const {
    const Tensor dqkv = Tensor::empty({q.size(0), q.size(1), 3, q.size(2), q.size(3)}, q.dtype(), q.device());
    Tensor dq = part(dqkv, 0), dk = part(dqkv, 1), dv = part(dqkv, 2);
    gradients(dout, dq, dk, dv);
    return {dqkv};
  }
};

ScoreRule score_rule(const Tensor& q, double scale, double softcap) {
  require(softcap >= 0, "attention", "a softcap of {}; expected a number above 0, or 0 for none", softcap);
  return {scale != 0 ? scale : 1.0 / std::sqrt(static_cast<double>(q.size(-1))), softcap};
}

/// Checks first_key, and makes it the operation's.
void set_first_key(Attention& op, const Tensor& first_key, std::int64_t batch, std::int64_t queries, Device device) {
  if (!first_key.defined()) return;
  require(first_key.shape() == Shape{batch, queries} && first_key.contiguous() && first_key.dtype() == DType::i32,
          "attention", "expected a dense first_key [B, Tq] = [{}, {}] in i32, got {} {}", batch, queries,
          first_key.shape(), name(first_key.dtype()));
  op.first_key = first_key.to(device);
  op.saved.add(op.first_key, "first_key");
}

}  // namespace

Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values, bool causal, double scale,
                 const Tensor& first_key, double softcap) {
  const Tensor q = for_product(queries), k = for_product(keys), v = for_product(values);
  for (const Tensor* x : {&q, &k, &v}) x->require_defined("attention");
  require(q.dims() == 4 && k.dims() == 4 && v.shape() == k.shape() && q.size(0) == k.size(0) &&
              q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
          "attention", "expected q [B, Tq, H, Dh] and k, v [B, Tk, Hkv, Dh] with H a multiple of Hkv, got {}, {}, {}",
          q.shape(), k.shape(), v.shape());
  require(!causal || k.size(1) >= q.size(1), "attention",
          "causal attention needs at least as many keys as queries, got {} and {}", k.size(1), q.size(1));
  require(k.dtype() == q.dtype() && v.dtype() == q.dtype(), "attention",
          "dtypes differ: q {}, k {}, v {}; expected one dtype; cast_to it", name(q.dtype()), name(k.dtype()),
          name(v.dtype()));
  Attention op;
  op.causal = causal;
  set_first_key(op, first_key, q.size(0), q.size(1), q.device());
  op.rule = score_rule(q, scale, softcap);
  return apply(std::move(op), q, k, v);
}

Tensor attention_packed(const Tensor& projection, bool causal, double scale, const Tensor& first_key, double softcap) {
  const Tensor qkv = for_product(projection);
  qkv.require_defined("attention");
  require(qkv.dims() == 5 && qkv.size(2) == 3, "attention", "expected qkv [B, T, 3, H, Dh], got {}", qkv.shape());
  AttentionPacked op;
  op.causal = causal;
  set_first_key(op, first_key, qkv.size(0), qkv.size(1), qkv.device());
  op.rule = score_rule(qkv, scale, softcap);
  return apply(std::move(op), qkv);
}

}  // namespace trireme

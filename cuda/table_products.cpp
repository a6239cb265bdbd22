// Matrix products and attention of the kernel table, by cuda/kernels/gemm_sm80.cu and attention_sm80.cu.
#include "cuda/kernels/attention.h"
#include "cuda/kernels/gemm.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

/// A matrix in memory: rows `pitch` elements apart, or, transposed, columns.
struct Operand {
  bool transposed;
  std::int64_t pitch;
};

Operand operand(const Tensor& x) {
  const std::int64_t row = x.strides()[-2], column = x.strides()[-1];
  if (column == 1 || x.size(-1) == 1) return {false, row};
  require(row == 1 || x.size(-2) == 1, "gemm", "{} with strides {}; expected 1 as one of the last two", x.shape(),
          x.strides());
  return {true, column};
}

/// The leading dims as one of `count` matrices, `stride` apart.
struct Batch {
  std::int64_t count = 1, stride = 0;
};

Batch batch(const Tensor& x) {
  Batch result;
  for (int dim = x.dims() - 3; dim >= 0; --dim) {
    if (x.size(dim) == 1) continue;
    if (result.count == 1)
      result.stride = x.strides()[dim];
    else if (x.strides()[dim] != result.stride * result.count)
      no_kernel("gemm", "the leading dims of {} with strides {}: they are not one batch", x.shape(), x.strides());
    result.count *= x.size(dim);
  }
  return result;
}

template <class T, class Out>
void multiply(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  constexpr const char* entry = "gemm";
  if (options.alpha != 1.0) no_kernel(entry, "alpha = {}", options.alpha);
  if (options.beta != 0.0 && options.beta != 1.0) no_kernel(entry, "beta = {}", options.beta);
  require(c.strides()[-1] == 1 || c.size(-1) == 1, entry, "c with strides {}; expected 1 as the last", c.strides());
  const Operand left = operand(a), right = operand(b);
  if (left.transposed && right.transposed) no_kernel(entry, "a product of two transposed views");
  const Batch of_a = batch(a), of_b = batch(b), of_c = batch(c);
  require(of_a.count == of_c.count && of_b.count == of_c.count, entry, "{} @ {} into {}: leading dims differ",
          a.shape(), b.shape(), c.shape());
  gemm_sm80<T, Out>({.form = left.transposed    ? Form::tn
                             : right.transposed ? Form::nt
                                                : Form::nn,
                     .m = size(entry, c.size(-2)),
                     .n = size(entry, c.size(-1)),
                     .k = size(entry, a.size(-1)),
                     .a = address<T>(entry, a),
                     .a_pitch = left.pitch,
                     .b = address<T>(entry, b),
                     .b_pitch = right.pitch,
                     .c = address<Out>(entry, c),
                     .c_pitch = c.strides()[-2],
                     .epilogue = {.bias = dense<T>(entry, options.bias), .accumulate = options.beta == 1.0},
                     .batch = size(entry, of_c.count),
                     .a_stride = of_a.stride,
                     .b_stride = of_b.stride,
                     .c_stride = of_c.stride},
                    stream());
}

/// The pitch of tokens in [B, T, H, D] whose heads lie side by side, and whose sequences follow each other.
std::int64_t token_pitch(const Tensor& x) {
  const Shape& s = x.strides();
  const std::int64_t pitch = x.size(1) > 1 ? s[1] : x.size(0) > 1 ? s[0] : x.size(2) * x.size(3);
  if (s[3] != 1 || (x.size(2) > 1 && s[2] != x.size(3)) || (x.size(0) > 1 && s[0] != x.size(1) * pitch))
    no_kernel("attention", "{} with strides {}; heads must lie side by side and sequences follow each other", x.shape(),
              s);
  return pitch;
}

}  // namespace

void gemm(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  visit_half("gemm", a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (c.dtype() == DType::f32)
      multiply<T, float>(a, b, c, options);
    else
      multiply<T, T>(a, b, c, options);
  });
}

void attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale, bool causal, const Tensor& first_key,
               Tensor& out, Tensor& lse) {
  constexpr const char* entry = "attention";
  if (first_key.defined()) no_kernel(entry, "documents kept apart (--document-mask on)");
  if (q.size(3) % 8 != 0 || q.size(3) > 128)
    no_kernel(entry, "head dims of {}, only for multiples of 8 up to 128", q.size(3));
  if (token_pitch(k) != token_pitch(v)) no_kernel(entry, "k and v with different strides");
  visit_half(entry, q.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    attention_forward_sm80<T>({.batch = size(entry, q.size(0)),
                               .heads = size(entry, q.size(2)),
                               .kv_heads = size(entry, k.size(2)),
                               .head_dim = size(entry, q.size(3)),
                               .queries = size(entry, q.size(1)),
                               .keys = size(entry, k.size(1)),
                               .causal = causal,
                               .scale = static_cast<float>(scale),
                               .q = address<T>(entry, q),
                               .q_pitch = token_pitch(q),
                               .k = address<T>(entry, k),
                               .v = address<T>(entry, v),
                               .kv_pitch = token_pitch(k),
                               .out = address<T>(entry, out),
                               .out_pitch = token_pitch(out),
                               .lse = dense<float>(entry, lse)},
                              stream());
  });
}

}  // namespace trireme::cuda

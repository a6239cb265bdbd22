// Every differentiable operation. Each is one struct in the file named above its group, formula first, forward and
// backward side by side. Shapes are checked with messages that start with the operation's name.
//
// dtypes: inputs of one operation share a floating dtype, and the output has it; reductions and statistics are kept in
// f32 (f64 for f64). Ids are i32. The cross-entropy, which may be split over ranks, is in nn/cross_entropy.h.
// Read next: nn/module.h.
#pragma once

#include <functional>
#include <vector>

#include "core/kernels.h"
#include "core/tensor.h"

namespace trireme {

// ---- elementwise.cpp: shapes broadcast by NumPy's rule --------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, double factor);
Tensor add_scalar(const Tensor& x, double value);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator*(const Tensor& x, double factor) { return scale(x, factor); }
inline Tensor operator+(const Tensor& x, double value) { return add_scalar(x, value); }

Tensor apply_unary(Unary op, const Tensor& x);
#define TRIREME_UNARY(name) \
  inline Tensor name(const Tensor& x) { return apply_unary(Unary::name, x); }
TRIREME_EVERY_UNARY(TRIREME_UNARY)  // exp(x), gelu(x), ...
#undef TRIREME_UNARY
inline Tensor operator-(const Tensor& x) { return negate(x); }
Tensor cast_to(const Tensor& x, DType dtype);  ///< the gradient is cast back

// ---- dropout.cpp -------------------------------------------------------------------------------------------------
/// Zero with probability p, else x / (1 - p). The mask is a pure function of (seed, stream, global index): `where`
/// places x in the global tensor.
Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where);

// ---- shape.cpp ---------------------------------------------------------------------------------------------------
Tensor reshape(const Tensor& x, const Shape& shape);  ///< one extent may be -1; copies when x is not dense
Tensor transpose(const Tensor& x, int a, int b);      ///< a view
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length);  ///< a view
Tensor select(const Tensor& x, int dim, std::int64_t index);                      ///< one dim less
Tensor expand(const Tensor& x, const Shape& shape);                               ///< a view that broadcasts
Tensor concat(const std::vector<Tensor>& parts, int dim);

// ---- reduce.cpp --------------------------------------------------------------------------------------------------
Tensor sum(const Tensor& x);  ///< all elements: shape []
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keep_dim = false);
Tensor max(const Tensor& x, int dim, bool keep_dim = false);  ///< ties share the gradient equally
Tensor softmax(const Tensor& x);                              ///< over the last dim

// ---- matmul.cpp --------------------------------------------------------------------------------------------------
/// a [.., M, K] @ b [.., K, N]; leading dims broadcast; views (transposes) are used as they are.
Tensor matmul(const Tensor& a, const Tensor& b);
/// y = x weight^T + bias + residual; x [.., in], weight [.., in] with leading dims flattened to out, bias of out
/// elements or undefined, residual [.., out] or undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual = {});

// ---- mlp.cpp -----------------------------------------------------------------------------------------------------
struct MlpWeights {
  Tensor in, in_bias;    ///< [F, in], [F] or undefined
  Tensor out, out_bias;  ///< [out, F], [out] or undefined
};
/// y = activation(x in^T + in_bias) out^T + out_bias + residual; x [.., in] -> [.., out]. The same as two linear() with
/// the activation between them, but the products apply the activation, forward and backward. residual [.., out] or
/// undefined.
Tensor mlp(const Tensor& x, const MlpWeights& weights, Unary activation, const Tensor& residual = {});

// ---- norm.cpp ----------------------------------------------------------------------------------------------------
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double eps = 1e-5);  ///< beta may be undefined
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps = 1e-5);

// ---- embedding.cpp -----------------------------------------------------------------------------------------------
/// Rows of weight [V, D] (global ids first .. first + V) picked by ids [..] i32 -> [.., D]; ids outside give zeros. If
/// the vocabulary is split over a mesh axis, a P -> I redistribute over it completes the rows.
Tensor embedding(const Tensor& weight, const Tensor& ids, std::int64_t first = 0);

// ---- attention.cpp -----------------------------------------------------------------------------------------------
/// q [B, Tq, H, Dh], k, v [B, Tk, Hkv, Dh] -> [B, Tq, H, Dh]. scale 0 means 1 / sqrt(Dh). first_key [B, Tq] i32: the
/// first key that a query sees, where its document begins; undefined: key 0.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true, double scale = 0,
                 const Tensor& first_key = {});
/// The same on a packed projection qkv [B, T, 3, H, Dh]: one gradient tensor, no concatenation.
Tensor attention_packed(const Tensor& qkv, bool causal = true, double scale = 0, const Tensor& first_key = {});

// ---- rope.cpp ----------------------------------------------------------------------------------------------------
/// Rotary positions (Su et al. 2021) on x [B, T, H, Dh], positions [T] i32: each head's pair (x[i], x[i + Dh/2]) is
/// rotated by the angle positions[t] base^(-2 i / Dh). The pairs are those of the two halves of a head ("rotate half",
/// as in GPT-NeoX and Hugging Face's Llama), not of neighbours (as in the paper): a permutation of the head's features.
Tensor rope(const Tensor& x, const Tensor& positions, double base = 10000);

// ---- swiglu.cpp --------------------------------------------------------------------------------------------------
/// silu(gate) * up of x [.., 2 F], whose last dim is [gate, up] -> [.., F] (Shazeer 2020).
Tensor swiglu(const Tensor& x);

// ---- gather_rows.cpp ---------------------------------------------------------------------------------------------
/// x [N, D], index [..] i32 -> [S, D], S the number of indices: row index[s] of x, or zeros for a negative one.
Tensor gather_rows(const Tensor& x, const Tensor& index);
/// x [N, E], columns [N, K] i32 -> [N, K]: the named elements of each row.
Tensor pick(const Tensor& x, const Tensor& columns);

// ---- grouped.cpp -------------------------------------------------------------------------------------------------
/// Rows starts[g] .. starts[g + 1] of x [R, in] through weight[g] [out.., in] and bias[g] (out elements; may be
/// undefined) -> [R, out], out flattened. A group may be empty.
Tensor grouped_linear(const Tensor& x, const std::vector<std::int64_t>& starts, const Tensor& weight,
                      const Tensor& bias);

// ---- auxiliary_loss.cpp ------------------------------------------------------------------------------------------
/// Returns x. Its backward also starts backward from `loss` (one element, computed from the same tensors as x), so both
/// gradients are added. So a layer can have a loss of its own, on any pipeline stage.
Tensor with_auxiliary_loss(const Tensor& x, const Tensor& loss);

// ---- recompute.cpp -----------------------------------------------------------------------------------------------
/// f(x) without keeping what f records: backward runs f again. Gradients of what f captures (parameters) are collected
/// as usual. Other state that f reads (the micro-batch that dropout is keyed by) must be captured by value.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace trireme

// Every differentiable operation. Each is one struct in the file named above its group, formula first, forward and
// backward side by side. Shapes are checked with messages that start with the operation's name.
//
// dtypes: inputs of one operation share a floating dtype, and the output has it; reductions and statistics are kept in
// f32 (f64 for f64). Ids are i32. The cross-entropy, which may be split over ranks, is in nn/cross_entropy.h.
//
//   const Tensor mask = x > 0.5;                              // 1 or 0, [B, T]
//   const Tensor y = where(mask, 1.0 - x, 2.0 * x);           // [B, T]
//   const std::vector<Tensor> steps = unbind(y, 1);           // T tensors [B]
//   fmt::print("{}\n", logsumexp(stack(steps, 1), 1));        // [B]
// Read next: nn/module.h.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/kernels.h"
#include "core/tensor.h"

namespace trireme {

// ---- elementwise.cpp: shapes broadcast by NumPy's rule --------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);       ///< a + b
Tensor subtract(const Tensor& a, const Tensor& b);  ///< a - b
Tensor multiply(const Tensor& a, const Tensor& b);  ///< a * b
Tensor divide(const Tensor& a, const Tensor& b);    ///< a / b
Tensor scale(const Tensor& x, double factor);       ///< factor * x
Tensor add_scalar(const Tensor& x, double value);   ///< x + value
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
Tensor subtract(double value, const Tensor& x);
Tensor divide(const Tensor& x, double value);
Tensor divide(double value, const Tensor& x);
inline Tensor operator*(const Tensor& x, double factor) { return scale(x, factor); }
inline Tensor operator*(double factor, const Tensor& x) { return scale(x, factor); }
inline Tensor operator+(const Tensor& x, double value) { return add_scalar(x, value); }
inline Tensor operator+(double value, const Tensor& x) { return add_scalar(x, value); }
inline Tensor operator-(const Tensor& x, double value) { return add_scalar(x, -value); }
inline Tensor operator-(double value, const Tensor& x) { return subtract(value, x); }
inline Tensor operator/(const Tensor& x, double value) { return divide(x, value); }
inline Tensor operator/(double value, const Tensor& x) { return divide(value, x); }

Tensor apply_unary(Unary op, const Tensor& x);  ///< a function of each element
/// Functions of each element, named as in core/kernels.h: exp(x), gelu(x), ...
#define TRIREME_UNARY(name) \
  inline Tensor name(const Tensor& x) { return apply_unary(Unary::name, x); }
TRIREME_EVERY_UNARY(TRIREME_UNARY)
#undef TRIREME_UNARY
inline Tensor operator-(const Tensor& x) { return negate(x); }  ///< -x
Tensor cast_to(const Tensor& x, DType dtype);                   ///< the gradient is cast back

// ---- in_place.cpp ------------------------------------------------------------------------------------------------
// x += y and the like write into the memory of x, which all tensors with this storage see. They are not recorded: they
// throw while recording if x or y requires a gradient. Write x = x + y there, or put the update of a weight inside
// NoGrad: { const NoGrad guard; w -= 0.1 * grad(w); }. They are writes: if an operation saved x for its backward,
// that backward throws (autograd/saved_versions.h). y broadcasts to x's shape, x does not broadcast.
Tensor& operator+=(Tensor& x, const Tensor& y);
Tensor& operator-=(Tensor& x, const Tensor& y);
Tensor& operator*=(Tensor& x, const Tensor& y);
Tensor& operator/=(Tensor& x, const Tensor& y);
Tensor& operator+=(Tensor& x, double y);
Tensor& operator-=(Tensor& x, double y);
Tensor& operator*=(Tensor& x, double y);
Tensor& operator/=(Tensor& x, double y);

// ---- dropout.cpp -------------------------------------------------------------------------------------------------
/// Zero with probability p, else x / (1 - p). The mask is a pure function of (seed, stream, global index): `where`
/// places x in the global tensor.
Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where);

// ---- shape.cpp ---------------------------------------------------------------------------------------------------
Tensor reshape(const Tensor& x, const Shape& shape);  ///< one extent may be -1; copies when x is not dense
Tensor transpose(const Tensor& x, int a, int b);      ///< a view
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length);  ///< a view
Tensor select(const Tensor& x, int dim, std::int64_t index);                      ///< one dim less; index from 0
Tensor expand(const Tensor& x, const Shape& shape);                               ///< a view that broadcasts
Tensor permute(const Tensor& x, const std::vector<int>& dims);                    ///< a view; dim i is dim dims[i] of x
Tensor unsqueeze(const Tensor& x, int dim);                     ///< a view with a dim of size 1 before dim
Tensor squeeze(const Tensor& x, int dim);                       ///< a view without a dim of size 1
Tensor flatten(const Tensor& x, int first = 0, int last = -1);  ///< dims first to last become one; copies as reshape
/// `before` and `after` new indices at the ends of dim, which hold `value`.
Tensor pad(const Tensor& x, int dim, std::int64_t before, std::int64_t after, double value = 0);
Tensor flip(const Tensor& x, int dim);  ///< a copy with the indices of dim in reverse order

// ---- concat.cpp --------------------------------------------------------------------------------------------------
/// Tensors of one shape but for `dim`, one after the other along it.
Tensor concat(const std::vector<Tensor>& parts, int dim);
Tensor stack(const std::vector<Tensor>& parts, int dim = 0);  ///< along a new dim: n of [A, B] -> [n, A, B]

// ---- parts.cpp: views, whose backward together is one pass over x ------------------------------------------------
// T calls of select or slice cost T passes over x in backward. As one backward collects the gradients of all parts, a
// second backward that reaches x through another part is refused, unless the first had retain_graph.
std::vector<Tensor> unbind(const Tensor& x, int dim = 0);                      ///< each index: T of [T, A] -> [A]
std::vector<Tensor> split(const Tensor& x, std::int64_t length, int dim = 0);  ///< the last may be shorter
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& lengths, int dim = 0);
std::vector<Tensor> chunk(const Tensor& x, std::int64_t count, int dim = 0);  ///< equal parts

// ---- compare.cpp -------------------------------------------------------------------------------------------------
// Masks: a comparison is 1 where it holds, else 0, in the dtype of what it compares (f32 for ids and other whole
// numbers), so that a mask can be summed and multiplied. NaN is equal to nothing. No gradient flows through a
// comparison. There are operators < <= > >=, but not == and !=.
Tensor compare(Binary op, const Tensor& a, const Tensor& b);  ///< shapes broadcast
Tensor compare(Binary op, const Tensor& a, double b);
Tensor compare(Binary op, double a, const Tensor& b);
inline Tensor equal(const Tensor& a, const Tensor& b) { return compare(Binary::equal, a, b); }
inline Tensor equal(const Tensor& a, double b) { return compare(Binary::equal, a, b); }
inline Tensor not_equal(const Tensor& a, const Tensor& b) { return compare(Binary::not_equal, a, b); }
inline Tensor not_equal(const Tensor& a, double b) { return compare(Binary::not_equal, a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return compare(Binary::less, a, b); }
inline Tensor operator<(const Tensor& a, double b) { return compare(Binary::less, a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return compare(Binary::less_equal, a, b); }
inline Tensor operator<=(const Tensor& a, double b) { return compare(Binary::less_equal, a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return compare(Binary::less, b, a); }
inline Tensor operator>(const Tensor& a, double b) { return compare(Binary::less, b, a); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return compare(Binary::less_equal, b, a); }
inline Tensor operator>=(const Tensor& a, double b) { return compare(Binary::less_equal, b, a); }
/// a where the mask is not 0, else b; shapes broadcast; the mask may have any dtype. What is not chosen may be NaN or
/// infinite: its gradient is 0.
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& mask, const Tensor& a, double b);
Tensor where(const Tensor& mask, double a, const Tensor& b);
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);  ///< value where the mask is not 0
/// The larger, or smaller, of two elements; NaN if one is NaN. Equal elements share the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& x, double value);
/// The smaller of two elements; NaN if one is NaN. Equal elements share the gradient.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& x, double value);
Tensor clamp(const Tensor& x, double low, double high);  ///< the gradient is 0 at and outside low and high
Tensor pow(const Tensor& x, double exponent);            ///< NaN for x < 0 unless the exponent is a whole number

// ---- reduce.cpp --------------------------------------------------------------------------------------------------
Tensor sum(const Tensor& x);  ///< all elements: shape []
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keep_dims = false);
Tensor mean(const Tensor& x);  ///< all elements: shape []; the sum over their number
Tensor mean(const Tensor& x, int dim, bool keep_dim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keep_dims = false);
Tensor max(const Tensor& x);  ///< ties share the gradient equally
Tensor max(const Tensor& x, int dim, bool keep_dim = false);
Tensor max(const Tensor& x, const std::vector<int>& dims, bool keep_dims = false);
Tensor min(const Tensor& x);  ///< as max
Tensor min(const Tensor& x, int dim, bool keep_dim = false);
Tensor min(const Tensor& x, const std::vector<int>& dims, bool keep_dims = false);
Tensor softmax(const Tensor& x, int dim = -1);  ///< fastest over the last dim
Tensor cumsum(const Tensor& x, int dim);        ///< y[i] = x[0] + ... + x[i] along dim

// ---- log_softmax.cpp ---------------------------------------------------------------------------------------------
Tensor log_softmax(const Tensor& x, int dim = -1);                       ///< x - logsumexp(x), along dim
Tensor logsumexp(const Tensor& x, int dim = -1, bool keep_dim = false);  ///< log of the sum of exp(x)

// ---- statistics.cpp ----------------------------------------------------------------------------------------------
/// The variance: the sum of (x - mean)^2 over n elements, divided by n - correction.
Tensor var(const Tensor& x);
Tensor var(const Tensor& x, int dim, double correction = 1, bool keep_dim = false);
Tensor var(const Tensor& x, const std::vector<int>& dims, double correction = 1, bool keep_dims = false);
/// sqrt(sum of x^2). The gradient at 0 is 0.
Tensor norm(const Tensor& x);
Tensor norm(const Tensor& x, int dim, bool keep_dim = false);
Tensor norm(const Tensor& x, const std::vector<int>& dims, bool keep_dims = false);
/// i32: where the largest (smallest) element along dim is, the first of equal ones. NaN counts as the largest, for
/// both. No gradient.
Tensor argmax(const Tensor& x, int dim = -1, bool keep_dim = false);
Tensor argmin(const Tensor& x, int dim = -1, bool keep_dim = false);  ///< where the smallest element is, as argmax
/// The result of topk().
struct TopK {
  Tensor values;   ///< as x, with k in place of the size of dim; the largest first
  Tensor indices;  ///< i32, of the same shape
};
/// The k largest elements along dim, and where they are; gradients flow to the values.
TopK topk(const Tensor& x, std::int64_t k, int dim = -1);

// ---- matmul.cpp --------------------------------------------------------------------------------------------------
/// a [.., M, K] @ b [.., K, N]; leading dims broadcast; views (transposes) are used as they are.
Tensor matmul(const Tensor& a, const Tensor& b);
/// y = x weight^T + bias + residual; x [.., in], weight [.., in] with leading dims flattened to out, bias of out
/// elements or undefined, residual [.., out] or undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual = {});

// ---- mlp.cpp -----------------------------------------------------------------------------------------------------
/// The weights of mlp(): of its first and its second product.
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
/// x / sqrt(mean(x^2) + eps) gamma, over the last dim.
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps = 1e-5);

// ---- embedding.cpp -----------------------------------------------------------------------------------------------
/// Rows of weight [V, D] picked by ids [..] i32 -> [.., D]. Throws ExitCode::data for an id outside 0 .. V - 1.
///
/// For this check, and those of other operations with ids, the host waits if a device computed the ids: core/ids.h.
Tensor embedding(const Tensor& weight, const Tensor& ids);
/// The same with a part of a weight, its rows first .. first + V; other ids give zeros, and are not checked. If the
/// vocabulary is split over a mesh axis, a P -> I redistribute over it completes the rows.
Tensor embedding(const Tensor& weight, const Tensor& ids, std::int64_t first);

// ---- attention.cpp -----------------------------------------------------------------------------------------------
/// q [B, Tq, H, Dh], k, v [B, Tk, Hkv, Dh] -> [B, Tq, H, Dh]. scale 0 means 1 / sqrt(Dh). first_key [B, Tq] i32: the
/// first key that a query sees, where its document begins; undefined: key 0. softcap c > 0: a score s becomes
/// c tanh(s / c), after the scale and before the masks (Gemma 2 report, section 2); not on a GPU.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true, double scale = 0,
                 const Tensor& first_key = {}, double softcap = 0);
/// The same on a packed projection qkv [B, T, 3, H, Dh]: one gradient tensor, no concatenation.
Tensor attention_packed(const Tensor& qkv, bool causal = true, double scale = 0, const Tensor& first_key = {},
                        double softcap = 0);

// ---- rope.cpp ----------------------------------------------------------------------------------------------------
/// Rotary positions (Su et al. 2021) on x [B, T, H, Dh], positions [T] i32, or [B, T] if they differ between sequences:
/// each head's pair (x[i], x[i + Dh/2]) is rotated by the angle positions[t] base^(-2 i / Dh). The pairs are those of
/// the two halves of a head ("rotate half", as in GPT-NeoX and Hugging Face's Llama); with `interleaved`, neighbours
/// (x[2 i], x[2 i + 1]), as in the paper, GPT-J and Llama's own files: a permutation of the head's features.
/// `frequencies` [Dh/2] f64 takes the place of the powers of base: nn/rotary.h has those of Llama 3 and YaRN.
Tensor rope(const Tensor& x, const Tensor& positions, const RopeOptions& options);
inline Tensor rope(const Tensor& x, const Tensor& positions, double base = 10000) {
  return rope(x, positions, RopeOptions{.base = base});
}

// ---- swiglu.cpp --------------------------------------------------------------------------------------------------
/// silu(gate) * up of x [.., 2 F], whose last dim is [gate, up] -> [.., F] (Shazeer 2020).
Tensor swiglu(const Tensor& x);
/// The same with any function instead of silu: gelu or gelu_tanh make it GeGLU (Shazeer 2020; Gemma).
Tensor gated_unit(const Tensor& x, Unary gate);

// ---- softcap.cpp -------------------------------------------------------------------------------------------------
/// cap tanh(x / cap): keeps numbers within -cap and cap (Gemma 2 report, section 2).
Tensor softcap(const Tensor& x, double cap);

// ---- gather_rows.cpp ---------------------------------------------------------------------------------------------
/// x [N, D], index [..] i32 -> [S, D], S the number of indices: row index[s] of x, or zeros for a negative one. Throws
/// ExitCode::data for an index of N or more.
Tensor gather_rows(const Tensor& x, const Tensor& index);
/// x [N, E], columns [N, K] i32 -> [N, K]: the named elements of each row. Throws ExitCode::data for a column outside
/// 0 .. E - 1.
Tensor pick(const Tensor& x, const Tensor& columns);

// ---- gather.cpp --------------------------------------------------------------------------------------------------
// An index in host memory is checked. In a GPU's memory, one that is out of range picks 0, and adds nothing.
/// y[i][j][k] = x[i][index[i][j][k]][k] for dim 1 of three. index i32 has as many dims as x; its other dims may be
/// smaller than those of x. Throws ExitCode::data for an index outside 0 .. size(dim) - 1.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// x with values[i][j][k] added to element [i][index[i][j][k]][k] for dim 1 of three. values and index have one shape.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& values);
/// ids [..] i32 -> [.., classes]: 1 at the id, else 0. Throws ExitCode::data for an id outside 0 .. classes - 1.
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = DType::f32);

// ---- einsum.cpp --------------------------------------------------------------------------------------------------
/// Sums of products by the letters of dims: einsum("bqhd,bkhd->bhqk", {q, k}). A letter that is missing on the right is
/// summed over. Without "->", the letters that occur once stay, in alphabetical order. Made of permute, sum, multiply
/// and matmul. A letter may not be repeated within one tensor, and there is no "...". Operands are taken from left to
/// right: put first the two whose product is small.
Tensor einsum(std::string_view expression, const std::vector<Tensor>& operands);

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
/// Do not write to a tensor that f reads before backward has run: a captured copy shares its elements.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace trireme

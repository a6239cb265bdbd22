// The kernel table: one function pointer per primitive kernel, with its contract beside it.
//
// `kernels(device)` returns the table of a device; the CPU's is filled in core/cpu/level.cpp, CUDA's in cuda/table.cpp.
// An operation (autograd/) allocates outputs and calls kernels; a kernel never allocates results and never touches the
// tape.
//
// Words used below. "dense": contiguous row-major. "T": one floating dtype shared by the tensors named so. "acc": the
// dtype of sums, f64 for f64 and f32 for everything else. Shapes are checked by the operation, not here.
// Every kernel gives the same bits for any number of threads: how work is cut depends on shapes only.
// Read next: core/cpu/kernels.h, autograd/ops.h (the operations that call kernels).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/exact_sum.h"
#include "core/tensor.h"

namespace trireme {

// The elementwise functions; core/formulas.h has their formulas and derivatives.
#define TRIREME_EVERY_UNARY(f)                                                                                      \
  f(negate) f(exp) f(log) f(sqrt) f(square) f(tanh) f(relu) f(sigmoid) f(silu) f(gelu) f(gelu_tanh) f(abs) f(relu2) \
      f(sin) f(cos)
// Comparisons are 1 where they hold, else 0. maximum and minimum are NaN where a or b is; power is a^b.
#define TRIREME_EVERY_BINARY(f) \
  f(add) f(subtract) f(multiply) f(divide) f(equal) f(not_equal) f(less) f(less_equal) f(maximum) f(minimum) f(power)

// 0 TRIREME_EVERY_UNARY(TRIREME_COUNT): how many there are
#define TRIREME_COUNT(name) +1  // NOLINT(bugprone-macro-parentheses)
#define TRIREME_NAME(name) name,
enum class Unary : std::uint8_t { TRIREME_EVERY_UNARY(TRIREME_NAME) };
enum class Binary : std::uint8_t { TRIREME_EVERY_BINARY(TRIREME_NAME) };
#undef TRIREME_NAME
enum class Reduction : std::uint8_t { sum, max };

/// c = alpha * a @ b + beta * c + bias.
struct GemmOptions {
  double alpha = 1.0;
  double beta = 0.0;         ///< 0 ignores what c holds, even NaN
  Tensor bias{};             ///< [N], dtype of a; undefined: none
  bool b_is_weight = false;  ///< b keeps its values while a PackedWeights lives (core/packed_weights.h)
  /// [M], acc, dense: is overwritten with the sums of a's rows, before alpha. a has no leading dims. With a = dy^T, the
  /// product is the gradient of a layer's weight, and these are that of its bias.
  Tensor row_sums{};

  // The epilogue: follows alpha a @ b + bias, in this order. It requires beta = 0 and a dense c of a's dtype. On the
  // CPU it gives the same bits as separate kernels (core/gemm_steps.h).
  std::optional<Unary> activation{};  ///< is applied to the sum
  bool derivative = false;  ///< multiplies by its derivative at pre_activation instead: the gradient of its input
  Tensor pre_activation{};  ///< shaped as c: receives the activation's input; with derivative, is read
  Tensor residual{};        ///< shaped as c: is added
};

/// A local tensor as a rectangle of a global one: random kernels address elements by their global index.
struct Rectangle {
  Shape global;  ///< the global shape
  Shape start;   ///< where the local tensor begins in it, per dim
};

/// Rows of logits over a slice of the vocabulary; see cross_entropy_* below.
struct VocabSlice {
  std::int64_t first = 0;   ///< global id of local column 0
  std::int64_t valid = 0;   ///< the first `valid` local columns are real tokens; the rest is padding: probability 0
  std::int64_t global = 0;  ///< real tokens over all slices
};

/// What attention does to the products q k^T: they are scaled, and then, if softcap > 0, a score s becomes
/// softcap tanh(s / softcap) (Gemma 2 report, section 2). Then come the masks and the softmax.
struct ScoreRule {
  double scale = 1, softcap = 0;
  ScoreRule(double scale_of_scores, double cap = 0) : scale(scale_of_scores), softcap(cap) {}  // NOLINT(*explicit*)
};

/// How rope() turns the pairs of a head of Dh features.
struct RopeOptions {
  double base = 10000;  ///< pair i turns by position base^(-2 i / Dh)
  Tensor
      frequencies{};  ///< f64 [Dh/2], on the device of x: pair i turns by position frequencies[i]; undefined: by base
  bool interleaved = false;  ///< pairs are (x[2 i], x[2 i + 1]), neighbours; else (x[i], x[i + Dh/2])
};

struct AdamWOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double gradient_scale = 1;  ///< multiplies the gradients first: clipping and loss scaling folded in
  std::int64_t step = 1;      ///< 1 for the first update: bias correction
  /// f32 [1], on the tensors' device; if defined, it takes the place of gradient_scale. If it is NaN, weights and
  /// moments stay as they are; the copies in 16 bits are written all the same, from the weights.
  Tensor scale_there{};
};
/// One parameter's update: dense tensors of one shape. All but the gradient are written.
struct AdamWUpdate {
  Tensor gradient, weight, m, v;  ///< f32
  Tensor low{};                   ///< bf16/f16 copy of the new weight; undefined: none
  double weight_decay = 0;
};

/// What sgd() does with the momentum v. g is the scaled gradient, G = g + decay w.
enum class SgdRule : std::uint8_t {
  momentum,  ///< v = momentum v + G; w -= lr v
  nesterov,  ///< v = momentum v + G; w -= lr (G + momentum v)
  lion,      ///< w -= lr (sign(blend v + (1 - blend) g) + decay w); v = momentum v + (1 - momentum) g
};
struct SgdOptions {
  double lr = 0, momentum = 0;
  double gradient_scale = 1;  ///< as for AdamW
  Tensor scale_there{};       ///< as for AdamW
  SgdRule rule = SgdRule::momentum;
  double blend = 0;  ///< lion's beta1; its beta2 is `momentum`
};
struct SgdUpdate {
  Tensor gradient, weight;  ///< f32
  Tensor momentum{};        ///< f32; undefined: plain SGD, with SgdRule::momentum only
  Tensor low{};             ///< as for AdamW
  double weight_decay = 0;
};

struct KernelTable {
  // ---- memory ----------------------------------------------------------------------------------------------------
  /// y = value, any dtype and strides.
  void (*fill)(Tensor& y, double value);
  /// y = x with conversion; same shape, any dtypes, any strides; no overlap.
  void (*copy)(const Tensor& x, Tensor& y);

  // ---- elementwise -----------------------------------------------------------------------------------------------
  /// y = op(x); x, y dense T of one shape; y may be x.
  void (*unary)(Unary op, const Tensor& x, Tensor& y);
  /// dx = op'(x) * dy; all dense T of one shape; dx may be dy.
  void (*unary_backward)(Unary op, const Tensor& x, const Tensor& dy, Tensor& dx);
  /// y = op(a, b); a and b T already expanded to y's shape (any strides, 0 for broadcast); y dense T, may be a or b if
  /// that is dense.
  void (*binary)(Binary op, const Tensor& a, const Tensor& b, Tensor& y);
  /// y = mask != 0 ? a : b; all T; mask, a and b already expanded to y's shape (any strides, 0 for broadcast); y dense.
  void (*where)(const Tensor& mask, const Tensor& a, const Tensor& b, Tensor& y);
  /// y = a * x + b * y; x, y dense, same shape, floating dtypes may differ; y may be x; b = 0 ignores what y holds;
  /// computed in acc of y.
  void (*axpby)(double a, const Tensor& x, double b, Tensor& y);
  /// x = factor * x. factor has one element, acc, on the device of x: the host need not know it. x dense T; it is
  /// neither read nor written if the factor is 1.
  void (*multiply_by)(const Tensor& factor, Tensor& x);
  /// y = x / (1 - p) for the elements that are kept, else 0. Kept are those with random_uniform(seed, stream, global
  /// index) >= p. Dense T, y may be x.
  void (*dropout)(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where,
                  Tensor& y);
  /// y = x rounded up or down at random, so that the expected value is x: stochastic_bf16() of core/half.h, with
  /// random_word(seed, stream, global index). x dense f32, y dense bf16, of one shape.
  void (*round_at_random)(const Tensor& x, std::uint64_t seed, std::uint64_t stream, const Rectangle& where, Tensor& y);

  // ---- reductions ------------------------------------------------------------------------------------------------
  /// y = reduction of x over the dims where y has extent 1; x any strides, y dense; y is T, or acc so that sums are not
  /// rounded; sums are kept in acc.
  void (*reduce)(Reduction op, const Tensor& x, Tensor& y);
  /// y[n, i] = sum of x[n, j] over j <= i, or over j >= i if `reverse`; x, y dense [N, L, D], T; sums are kept in acc
  /// and added in the order of j (of falling j if `reverse`).
  void (*cumsum)(const Tensor& x, bool reverse, Tensor& y);
  /// Sum of squares of all elements of dense tensors; each may have its own floating dtype. A row is a run along the
  /// last dim; in a tensor of one dim, one element. Squares of a row are added in f64 in an order that depends on its
  /// length only, and rows are added exactly: the sum depends on the rows alone, not on which tensors they are in. On
  /// CUDA tiles of tensors take the place of rows, and the host waits once for all tensors.
  ExactSum (*sum_squares)(std::span<const Tensor> xs);
  /// sum = the value of sum_squares(xs); f64 [1], on the device of the tensors, where the host does not wait.
  void (*squares_to)(std::span<const Tensor> xs, Tensor& sum);

  // ---- products --------------------------------------------------------------------------------------------------
  /// c = alpha a @ b + beta c + bias; a [.., M, K], b [.., K, N], c [.., M, N] with the same leading dims (any number,
  /// any strides; 0 to broadcast a or b). In the last two dims a and b may have any strides with one of them 1 (a
  /// transpose is a view); c's last stride is 1. a and b have one dtype; c has it too, or is f32. Products accumulate
  /// in acc. Then what GemmOptions ask for.
  void (*gemm)(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options);
  /// The products of a mixture of experts. The R rows are sorted by group: group g has rows [starts[g], starts[g + 1]),
  /// possibly none. starts [G + 1] rises from 0 to R. Products accumulate in acc.
  /// For each group, on its rows: y = x @ matrices[g] + bias[g]; x [R, K], y [R, N] dense, matrices [G, K, N] with one
  /// of the last two strides 1, bias [G, N] dense or undefined; T.
  void (*grouped_gemm)(const Tensor& x, const Tensor& matrices, const Tensor& bias,
                       std::span<const std::int64_t> starts, Tensor& y);
  /// For each group, over its rows: c[g] = a^T @ b, or c[g] += a^T @ b; no rows give 0. a [R, M], b [R, N] dense T;
  /// c [G, M, N] dense, T or f32.
  void (*grouped_gemm_tn)(const Tensor& a, const Tensor& b, std::span<const std::int64_t> starts, bool accumulate,
                          Tensor& c);

  // ---- rows: x [N, D], dense --------------------------------------------------------------------------------------
  /// y = softmax over the last dim; T; y may be x.
  void (*softmax)(const Tensor& x, Tensor& y);
  /// dx = y * (dy - sum(y * dy)); T; dx may be dy.
  void (*softmax_backward)(const Tensor& y, const Tensor& dy, Tensor& dx);
  /// chosen[n] = the columns of the K largest of x[n], largest first; among equals the lower column comes first. NaN
  /// counts as larger than any number, so there are always K columns. x T; chosen [N, K] i32, 1 <= K <= D; dense.
  void (*top_k)(const Tensor& x, Tensor& chosen);
  /// y = (x - mean) * rstd * gamma + beta; gamma, beta [D] T, beta may be undefined; mean, rstd [N] acc are outputs.
  void (*layer_norm)(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, Tensor& y, Tensor& mean,
                     Tensor& rstd);
  /// dx [N, D] T includes `added` [N, D] T, unless that is undefined; dgamma, dbeta [D] acc are overwritten; dbeta may
  /// be undefined. dx may be dy.
  void (*layer_norm_backward)(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd,
                              const Tensor& dy, const Tensor& added, Tensor& dx, Tensor& dgamma, Tensor& dbeta);
  /// y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps); rstd [N] acc is an output.
  void (*rms_norm)(const Tensor& x, const Tensor& gamma, double eps, Tensor& y, Tensor& rstd);
  void (*rms_norm_backward)(const Tensor& x, const Tensor& gamma, const Tensor& rstd, const Tensor& dy,
                            const Tensor& added, Tensor& dx, Tensor& dgamma);

  // ---- embedding --------------------------------------------------------------------------------------------------
  /// y[n] = weight[ids[n] - first] or 0 when that row is not here; weight [V, D] T, ids [N] i32, y [N, D] T; dense.
  void (*embedding)(const Tensor& weight, const Tensor& ids, std::int64_t first, Tensor& y);
  /// dweight[ids[n] - first] += dy[n], in the order of n; dweight [V, D] acc.
  void (*embedding_backward)(const Tensor& dy, const Tensor& ids, std::int64_t first, Tensor& dweight);

  /// y[i, j, k] = x[i, index[i, j, k], k] for dim 1 of three, and so on for other dims and numbers of dims; 0 if the
  /// index is not in 0 .. x.size(dim) - 1. x T, any strides; index i32, y T, dense, of one shape, whose other dims are
  /// at most those of x.
  void (*gather)(const Tensor& x, int dim, const Tensor& index, Tensor& y);
  /// y[i, index[i, j, k], k] += x[i, j, k], in the order of j; nothing for an index not in 0 .. y.size(dim) - 1.
  /// x T, index i32, dense, of one shape; y acc, dense, whose other dims are at least those of x.
  void (*scatter_add)(const Tensor& x, int dim, const Tensor& index, Tensor& y);

  // ---- attention ---------------------------------------------------------------------------------------------------
  /// out = softmax(scores of q k^T by ScoreRule, causal mask) v, tile by tile with an online softmax: no T x T buffer.
  /// q, out [B, Tq, H, Dh], k, v [B, Tk, Hkv, Dh], H a multiple of Hkv (query head h reads kv head h * Hkv / H); last
  /// stride 1, others any; T. lse [B, H, Tq] acc, dense: log-sum-exp of the scores. Causal: query i sees keys up
  /// to i + Tk - Tq. first_key [B, Tq] i32, dense, or undefined: query i sees keys from first_key[i] on (which may be
  /// below 0 or beyond Tk); this keeps the documents of one sequence apart. A query that sees no key gets 0 and lse
  /// -infinity. CUDA has no softcap, and refuses it.
  void (*attention)(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
                    const Tensor& first_key, Tensor& out, Tensor& lse);
  /// dq, dk, dv with the shapes of q, k, v, last stride 1, overwritten. k and v may be a part of the keys from which
  /// out and lse were computed. The result is then the contribution of that part: the gradient of a score needs no
  /// other keys.
  void (*attention_backward)(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                             const Tensor& dout, const ScoreRule& rule, bool causal, const Tensor& first_key,
                             Tensor& dq, Tensor& dk, Tensor& dv);
  /// Merges attention over two disjoint sets of keys. out and lse hold the result for one set and receive that for
  /// both; part and part_lse hold the result for the other set. part, out [B, T, H, Dh], part T, out acc, last stride
  /// 1, others any; lse and part_lse [B, H, T] acc, any strides.
  void (*attention_merge)(const Tensor& part, const Tensor& part_lse, Tensor& out, Tensor& lse);

  // ---- Llama-style blocks ------------------------------------------------------------------------------------------
  /// Rotates every pair of a head by an angle that grows with the token's position. `inverse` rotates back, which is
  /// also the gradient. x, y dense [B, T, H, Dh] T, Dh even; positions [T] or [B, T] i32, dense; y may be x.
  void (*rope)(const Tensor& x, const Tensor& positions, const RopeOptions& options, bool inverse, Tensor& y);
  /// y = silu(gate) up, where a row of x [N, 2 F] is [gate, up]; y [N, F]; dense T.
  void (*swiglu)(const Tensor& x, Tensor& y);
  /// dx [N, 2 F]; dense T; dx may be x.
  void (*swiglu_backward)(const Tensor& x, const Tensor& dy, Tensor& dx);

  // ---- cross-entropy over a slice of the vocabulary: logits [N, V] T, targets [N] i32 (negative: ignored) --------
  /// Per row, over the slice's valid columns: maximum; sum of exp(x - maximum); the target's logit (0 when it is not in
  /// this slice); sum of logits (label smoothing). All [N] acc.
  void (*cross_entropy_stats)(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, Tensor& maximum,
                              Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum);
  /// loss = scale * the sum over the rows that are not ignored of log(sum_exp) + maximum - (1 - smoothing) target_logit
  /// - smoothing logit_sum / vocab; the statistics are over all slices. Computed in f64, rounded once; loss: one
  /// element, acc.
  void (*cross_entropy_loss)(const Tensor& targets, const Tensor& maximum, const Tensor& sum_exp,
                             const Tensor& target_logit, const Tensor& logit_sum, double smoothing, std::int64_t vocab,
                             double scale, Tensor& loss);
  /// dlogits = scale * dloss * (softmax - (1 - smoothing) onehot - smoothing / global), 0 for ignored rows and padded
  /// columns; maximum and sum_exp over all slices. dloss: one element, acc. dlogits may be logits.
  void (*cross_entropy_backward)(const Tensor& logits, const Tensor& targets, const VocabSlice& slice,
                                 const Tensor& maximum, const Tensor& sum_exp, double smoothing, double scale,
                                 const Tensor& dloss, Tensor& dlogits);
  /// cross_entropy_stats and cross_entropy_backward at once, with the same bits; the slice is the whole vocabulary.
  void (*cross_entropy_one_pass)(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, double smoothing,
                                 double scale, Tensor& maximum, Tensor& sum_exp, Tensor& target_logit,
                                 Tensor& logit_sum, Tensor& dlogits);

  // ---- optimizer: one pass over many parameters ---------------------------------------------------------
  /// scale = scale_of_update() of core/update_scale.h, for scale_there: of the loss and of sqrt(squares) / loss_scale.
  /// loss and squares f64 [1], scale f32 [1].
  void (*update_scale)(const Tensor& loss, const Tensor& squares, double loss_scale, double max_norm, Tensor& scale);
  /// AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2).
  void (*adamw)(const AdamWOptions& options, std::span<const AdamWUpdate> updates);
  /// Optimizers with one moment or none: SgdRule. SGD with momentum (Sutskever et al. 2013, section 2, in PyTorch's
  /// form), Lion (Chen et al. 2023, algorithm 2). sign(0) = 0.
  void (*sgd)(const SgdOptions& options, std::span<const SgdUpdate> updates);
};

/// The entries of KernelTable once more, by name. The tables of the CPU, of CUDA and of the profiler, and the
/// declarations of their kernels, are made from this list: with a missing kernel they do not compile or link.
// clang-format off
#define TRIREME_EVERY_KERNEL(f)                                                                                 \
  f(fill) f(copy)                                                                                               \
  f(unary) f(unary_backward) f(binary) f(where) f(axpby) f(multiply_by) f(dropout) f(round_at_random)           \
  f(reduce) f(cumsum) f(sum_squares) f(squares_to)                                                              \
  f(gemm) f(grouped_gemm) f(grouped_gemm_tn)                                                                    \
  f(softmax) f(softmax_backward) f(top_k) f(layer_norm) f(layer_norm_backward) f(rms_norm) f(rms_norm_backward) \
  f(embedding) f(embedding_backward) f(gather) f(scatter_add)                                                   \
  f(attention) f(attention_backward) f(attention_merge)                                                         \
  f(rope) f(swiglu) f(swiglu_backward)                                                                          \
  f(cross_entropy_stats) f(cross_entropy_loss) f(cross_entropy_backward) f(cross_entropy_one_pass)              \
  f(update_scale) f(adamw) f(sgd)
// clang-format on

/// In a namespace: declares a function of every entry's name and type.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define TRIREME_DECLARE_KERNEL(name) std::remove_pointer_t<decltype(KernelTable::name)> name;
/// In braces: a KernelTable of the functions of those names.
#define TRIREME_KERNEL_ENTRY(name) .name = name,  // NOLINT(bugprone-macro-parentheses)

static_assert(sizeof(KernelTable) == (0 TRIREME_EVERY_KERNEL(TRIREME_COUNT)) * sizeof(void (*)()),
              "TRIREME_EVERY_KERNEL must name every entry of KernelTable");

/// The table of `device`. Throws ExitCode::usage if no backend of that device is set.
const KernelTable& kernels(Device device);

/// Names of the CPU's gemm implementations: our own first, then Eigen's, then those of optional libraries. select_gemm
/// sets the one that the CPU's table uses, for the whole process; call it before ranks start. It throws for an unknown
/// name, listing the known ones, and for a library that is not installed. CUDA's are in cuda/selection.h.
std::vector<std::string_view> gemm_names();
bool gemm_installed(std::string_view name);  ///< loads the library, if there is one
void select_gemm(std::string_view name);
std::string_view selected_gemm();

}  // namespace trireme

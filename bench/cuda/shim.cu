// The kernels behind a C interface, so that bench/cuda/compare.py can call them on PyTorch's tensors, in one process
// with the libraries that it compares. Arguments are pointers and sizes only. A call returns 0, or 1 on failure; then
// trireme_error() returns the message.
// Read next: bench/cuda/compare.py.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/cross_entropy.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/norm.h"
#include "cuda/kernels/optimizer.h"
#include "examples/cuda_lab/array.h"
#include "examples/cuda_lab/ladders.h"

namespace {

using namespace trireme;
using namespace trireme::cuda;

std::string& last_error() {
  static std::string message;
  return message;
}

template <class Call>
int guarded(const Call& call) {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return 1;
  }
}

template <class T>
T* as(void* pointer) {
  return static_cast<T*>(pointer);
}

AttentionForward<bf16> dense_attention(int batch, int heads, int dim, int tokens, int causal, float scale, void* q,
                                       void* k, void* v, void* out, void* lse) {
  return {.batch = batch,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = dim,
          .queries = tokens,
          .keys = tokens,
          .causal = causal != 0,
          .scale = scale,
          .q = as<bf16>(q),
          .q_pitch = heads * dim,
          .k = as<bf16>(k),
          .v = as<bf16>(v),
          .kv_pitch = heads * dim,
          .out = as<bf16>(out),
          .out_pitch = heads * dim,
          .lse = as<float>(lse)};
}

/// Memory that is kept from call to call, as a program's allocator would: calls are timed.
float* workspace(std::int64_t floats) {
  static std::unique_ptr<lab::Array<float>> memory;
  if (memory == nullptr || memory->size() < static_cast<std::size_t>(floats))
    memory = std::make_unique<lab::Array<float>>(static_cast<std::size_t>(floats));
  return memory->data();
}

/// The ladder that was opened last, with its arrays in device memory.
std::unique_ptr<lab::Trial>& opened() {
  static std::unique_ptr<lab::Trial> trial;
  return trial;
}

}  // namespace

extern "C" {

const char* trireme_error() { return last_error().c_str(); }

/// c [m, n] = a b in bf16, form 0 NN, 1 NT, 2 TN; all dense. bias [n] may be null, as may residual [m, n]. hopper: the
/// kernel of sm_90a, otherwise that of sm_80.
int trireme_gemm(int hopper, int form, int m, int n, int k, void* a, void* b, void* c, void* bias, int gelu,
                 void* residual, void* stream) {
  return guarded([&] {
    Gemm<bf16, bf16> p{static_cast<Form>(form), m,           n, k, as<bf16>(a), form == 2 ? m : k, as<bf16>(b),
                       form == 1 ? k : n,       as<bf16>(c), n};
    p.epilogue.bias = as<bf16>(bias);
    p.epilogue.activation = gelu != 0 ? Activation::gelu_tanh : Activation::none;
    p.epilogue.residual = as<bf16>(residual);
    if (hopper != 0)
      gemm_sm90(p, static_cast<Stream>(stream), Tile90::automatic, &workspace);
    else
      gemm_sm80(p, static_cast<Stream>(stream));
  });
}

/// Products of groups of rows, in bf16, all dense; offsets [groups + 1] i32 in device memory. form 0, 1: a [m, k] and
/// c [m, n] are cut along m, b [groups, k, n] or [groups, n, k]. 2: a [k, m] and b [k, n] are cut along k, c is
/// [groups, m, n].
int trireme_grouped_gemm(int hopper, int form, int groups, int m, int n, int k, void* offsets, void* a, void* b,
                         void* c, void* stream) {
  return guarded([&] {
    Gemm<bf16, bf16> p{static_cast<Form>(form), m,           n, k, as<bf16>(a), form == 2 ? m : k, as<bf16>(b),
                       form == 1 ? k : n,       as<bf16>(c), n};
    p.b_stride = std::int64_t{k} * n;
    p.c_stride = std::int64_t{m} * n;
    const GroupedGemm<bf16, bf16> products{p, groups, as<int>(offsets)};
    if (hopper != 0)
      grouped_gemm_sm90(products, static_cast<Stream>(stream));
    else
      grouped_gemm_sm80(products, static_cast<Stream>(stream));
  });
}

/// q, k, v, out [batch, tokens, heads, dim] in bf16, dense; lse [batch, heads, tokens] f32. hopper: as above, or the
/// queries of its tile.
int trireme_attention_forward(int hopper, int batch, int heads, int dim, int tokens, int causal, float scale, void* q,
                              void* k, void* v, void* out, void* lse, void* stream) {
  return guarded([&] {
    const auto p = dense_attention(batch, heads, dim, tokens, causal, scale, q, k, v, out, lse);
    if (hopper > 1)
      attention_forward_sm90_by(hopper, p, static_cast<Stream>(stream));
    else if (hopper != 0)
      attention_forward_sm90(p, static_cast<Stream>(stream));
    else
      attention_forward_sm80(p, static_cast<Stream>(stream));
  });
}

/// dout, dq, dk, dv as q; delta as lse, scratch. out and lse are those of the forward call.
int trireme_attention_backward(int hopper, int batch, int heads, int dim, int tokens, int causal, float scale, void* q,
                               void* k, void* v, void* out, void* lse, void* dout, void* dq, void* dk, void* dv,
                               void* delta, void* stream) {
  return guarded([&] {
    const int pitch = heads * dim;
    const AttentionBackward<bf16> p{
        .forward = dense_attention(batch, heads, dim, tokens, causal, scale, q, k, v, out, lse),
        .dout = as<bf16>(dout),
        .dout_pitch = pitch,
        .dlse = nullptr,
        .dq = as<bf16>(dq),
        .dq_pitch = pitch,
        .dk = as<bf16>(dk),
        .dv = as<bf16>(dv),
        .dkv_pitch = pitch,
        .delta = as<float>(delta),
        .first_tile = nullptr};
    if (hopper != 0)
      attention_backward_sm90(p, static_cast<Stream>(stream));
    else
      attention_backward_sm80(p, static_cast<Stream>(stream));
  });
}

int trireme_layer_norm(int rows, int width, void* x, void* residual, void* sum, void* gamma, void* beta, void* y,
                       void* mean, void* rstd, void* stream) {
  return guarded([&] {
    norm_forward<bf16>({Norm::layer, rows, width, as<bf16>(x), as<bf16>(residual), as<bf16>(sum), as<bf16>(gamma),
                        as<bf16>(beta), 1e-5F, as<bf16>(y), as<float>(mean), as<float>(rstd)},
                       static_cast<Stream>(stream));
  });
}

/// Loss and gradient; logits [rows, columns] in bf16 become gradients; targets i32; losses [rows] f64. workspace: 4
/// rows floats.
int trireme_cross_entropy(int rows, int columns, int valid, void* logits, void* targets, void* workspace, void* losses,
                          void* stream) {
  return guarded([&] {
    float* const w = as<float>(workspace);
    const CrossEntropy<bf16> p{.rows = rows,
                               .columns = columns,
                               .valid = valid,
                               .first = 0,
                               .vocabulary = valid,
                               .smoothing = 0,
                               .logits = as<bf16>(logits),
                               .targets = as<std::int32_t>(targets),
                               .maximum = w,
                               .sum_exp = w + rows,
                               .target_logit = w + 2 * rows,
                               .logit_sum = w + 3 * rows};
    cross_entropy_one_pass(p, 1.0 / rows, as<bf16>(logits), static_cast<Stream>(stream));
    cross_entropy_losses(p, as<double>(losses), static_cast<Stream>(stream));
  });
}

int trireme_adamw(void* weight, void* m, void* v, void* gradient, void* low, int count, float decay, float lr,
                  float beta1, float beta2, float eps, int step, void* stream) {
  return guarded([&] {
    double power1 = 1, power2 = 1;
    for (int i = 0; i < step; ++i) {
      power1 *= static_cast<double>(beta1);
      power2 *= static_cast<double>(beta2);
    }
    const AdamWSettings settings{
        lr, beta1, beta2, eps, static_cast<float>(1 / (1 - power1)), static_cast<float>(1 / (1 - power2)), 1.0F};
    const AdamWTensor<bf16> tensor{as<float>(weight), as<float>(m), as<float>(v), as<bf16>(gradient),
                                   as<bf16>(low),     count,        decay};
    adamw<bf16, bf16>({&tensor, 1}, settings, nullptr, static_cast<Stream>(stream));
  });
}

// ---- the ladders of examples/cuda_lab -------------------------------------------------------------------------------

// Each makes its own problem: compare.py names a ladder and a level.

/// Null after the last ladder.
const char* trireme_ladder_name(int ladder) {
  const auto all = lab::ladders<lab::Array>();
  const auto at = static_cast<std::size_t>(ladder);
  return at < all.size() ? all[at].name : nullptr;
}

/// Null after the last level.
const char* trireme_ladder_level(int ladder, int level) {
  const auto all = lab::ladders<lab::Array>();
  const auto& levels = all[static_cast<std::size_t>(ladder)].levels;
  const auto at = static_cast<std::size_t>(level);
  return at < levels.size() ? levels[at].name : nullptr;
}

/// What the last level does with the large problem: FLOPs of products, or 0.
double trireme_ladder_flops(int ladder) { return lab::ladders<lab::Array>()[static_cast<std::size_t>(ladder)].flops; }
/// The bytes that it moves, or 0.
double trireme_ladder_bytes(int ladder) { return lab::ladders<lab::Array>()[static_cast<std::size_t>(ladder)].bytes; }

/// large: for timing; otherwise the last of the ragged sizes, for comparison with f64. ladder -1: closes.
int trireme_ladder_open(int ladder, int large) {
  return guarded([&] {
    opened().reset();  // frees its memory first
    if (ladder < 0) return;
    const auto all = lab::ladders<lab::Array>();
    const auto& chosen = all[static_cast<std::size_t>(ladder)];
    opened() = chosen.make(large != 0 ? chosen.timed : chosen.ragged.back());
  });
}

int trireme_ladder_run(int level, void* stream) {
  return guarded([&] { opened()->run(static_cast<std::size_t>(level), static_cast<Stream>(stream)); });
}

/// Error of a level's result against f64, relative to the accepted error, on a small problem.
int trireme_ladder_error(int level, double* error) {
  return guarded([&] {
    opened()->reset();
    opened()->run(static_cast<std::size_t>(level), nullptr);
    *error = opened()->error();
  });
}

}  // extern "C"

#include "cuda/choices.h"

#include "core/error.h"
#include "cuda/implementations.h"

namespace trireme::cuda {
namespace {

constexpr std::string_view kOfFloats = "f32";  // gemm_f32, attention_f32

template <class T, class Out>
std::string_view product_choice(Form form, std::int64_t m, std::int64_t n, std::int64_t k) {
  Gemm<T, Out> call{};
  call.form = form;
  call.m = static_cast<int>(m);
  call.n = static_cast<int>(n);
  call.k = static_cast<int>(k);
  call.a_pitch = form == Form::tn ? m : k;
  call.b_pitch = form == Form::nt ? k : n;
  call.c_pitch = n;
  return implementation_for(call).name;
}

template <class T>
LayerChoice layer_of(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.forward = product_choice<T, T>(Form::nt, rows, out, in),
          .dx = product_choice<T, T>(Form::nn, rows, in, out),
          .dw = product_choice<T, float>(Form::tn, out, in, rows)};
}

/// q, k and v are parts of one projection. Head dims that are not a multiple of 8 are padded in a copy.
template <class T>
AttentionChoice attention_of(std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  const std::int64_t padded = (head_dim + 7) / 8 * 8;
  const std::int64_t pitch = padded * (padded == head_dim ? heads + 2 * kv_heads : heads);
  AttentionBackward<T> call{};
  AttentionForward<T>& forward = call.forward;
  forward.batch = 1;
  forward.heads = static_cast<int>(heads);
  forward.kv_heads = static_cast<int>(kv_heads);
  forward.head_dim = static_cast<int>(padded);
  forward.queries = forward.keys = static_cast<int>(tokens);
  forward.causal = true;
  forward.scale = 1;
  forward.q_pitch = forward.kv_pitch = call.dq_pitch = call.dkv_pitch = pitch;
  forward.out_pitch = call.dout_pitch = padded * heads;
  return {.forward = implementation_for(forward).name, .backward = implementation_for(call).name};
}

}  // namespace

LayerChoice layer_choice(DType dtype, std::int64_t rows, std::int64_t in, std::int64_t out) {
  switch (dtype) {
    case DType::bf16:
      return layer_of<bf16>(rows, in, out);
    case DType::f16:
      return layer_of<f16>(rows, in, out);
    default:
      return {kOfFloats, kOfFloats, kOfFloats};
  }
}

AttentionChoice attention_choice(DType dtype, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                                 std::int64_t head_dim) {
  switch (dtype) {
    case DType::bf16:
      return attention_of<bf16>(tokens, heads, kv_heads, head_dim);
    case DType::f16:
      return attention_of<f16>(tokens, heads, kv_heads, head_dim);
    default:
      return {kOfFloats, kOfFloats};
  }
}

}  // namespace trireme::cuda

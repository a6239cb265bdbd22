// Translates our attention structs to cuDNN's tensors, or gives the reason why it cannot.
//
// We keep a token's heads side by side, [B, T, H, D], with a pitch from token to token. cuDNN orders the dims [B, H, T,
// D] and takes any strides. Ours are T pitch, D, pitch and 1, also if q, k and v are parts of one packed tensor.
// Read next: cuda/libraries/cudnn_attention.h; tests/cuda/cudnn_problem_test.cpp executes the described attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "cuda/kernels/attention.h"
#include "cuda/libraries/sdpa_problem.h"

namespace trireme::cuda {

inline SdpaTensor sdpa_tensor(int batch, int heads, int tokens, int head_dim, std::int64_t pitch) {
  return {.dims = {batch, heads, tokens, head_dim}, .strides = {tokens * pitch, head_dim, pitch, 1}};
}

/// Translates attention for which cudnn_attention_cannot returned an empty text.
template <class T>
SdpaCall translate(const AttentionForward<T>& p) {
  const auto query_like = [&](std::int64_t pitch) {
    return sdpa_tensor(p.batch, p.heads, p.queries, p.head_dim, pitch);
  };
  SdpaCall call;
  SdpaProblem& to = call.problem;
  to.type = std::is_same_v<T, bf16> ? SdpaType::bf16 : SdpaType::f16;
  to.causal = p.causal && p.queries > 1;  // a single query is the last one and sees all keys
  to.q = query_like(p.q_pitch);
  to.out = query_like(p.out_pitch);
  to.k = to.v = sdpa_tensor(p.batch, p.kv_heads, p.keys, p.head_dim, p.kv_pitch);
  to.lse = {{p.batch, p.heads, p.queries, 1}, {std::int64_t{p.heads} * p.queries, p.queries, 1, 1}};
  call.scale = p.scale;
  call.q = p.q;
  call.k = p.k;
  call.v = p.v;
  call.out = p.out;
  call.lse = p.lse;
  return call;
}

template <class T>
SdpaCall translate(const AttentionBackward<T>& p) {
  const AttentionForward<T>& f = p.forward;
  SdpaCall call = translate(f);
  call.problem.backward = true;
  call.problem.dout = sdpa_tensor(f.batch, f.heads, f.queries, f.head_dim, p.dout_pitch);
  call.problem.dq = sdpa_tensor(f.batch, f.heads, f.queries, f.head_dim, p.dq_pitch);
  call.problem.dk = sdpa_tensor(f.batch, f.kv_heads, f.keys, f.head_dim, p.dkv_pitch);
  call.problem.dv = call.problem.dk;
  call.dout = p.dout;
  call.delta = p.delta;
  call.dq = p.dq;
  call.dk = p.dk;
  call.dv = p.dv;
  return call;
}

inline constexpr const char* unaligned_reason =
    "an address that is no multiple of 16 bytes, which the plans here promise";
inline bool aligned_to_16(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; });
}

/// Why cuDNN cannot do this attention; empty when it can.
template <class T>
std::string cudnn_attention_cannot(const AttentionForward<T>& p) {
  if constexpr (std::is_same_v<T, float>) return "f32: cuDNN's fused attention is for 16-bit types";
  if (p.first_key != nullptr) return "documents kept apart: a first key of each query has no form in cuDNN's graphs";
  if (p.causal && p.queries > p.keys)
    return fmt::format("causal attention of {} queries over {} keys: the first queries see none, which cuDNN excludes",
                       p.queries, p.keys);
  if (p.head_dim % 8 != 0 || p.head_dim > 128)
    return fmt::format("a head dim of {}; expected a multiple of 8 up to 128", p.head_dim);
  if (p.kv_heads <= 0 || p.heads % p.kv_heads != 0)
    return fmt::format("{} heads over {} of keys: not a multiple", p.heads, p.kv_heads);
  if (p.lse == nullptr) return "no place for lse: the plans here always write it";
  if (p.keys == 0) return "no keys";
  if (!aligned_to_16({p.q, p.k, p.v, p.out, p.lse})) return unaligned_reason;
  if (p.q_pitch % 8 != 0 || p.kv_pitch % 8 != 0 || p.out_pitch % 8 != 0)
    return fmt::format("pitches {}, {} and {} of q, of k and v, and of out; expected multiples of 8", p.q_pitch,
                       p.kv_pitch, p.out_pitch);
  return {};
}

template <class T>
std::string cudnn_attention_cannot(const AttentionBackward<T>& p) {
  if (std::string reason = cudnn_attention_cannot(p.forward); !reason.empty()) return reason;
  if (p.dlse != nullptr) return "a gradient of lse: cuDNN's backward has no place for it";
  if (p.forward.queries == 1 && p.forward.keys == 1) return "one query and one key, which cuDNN's backward excludes";
  if (!aligned_to_16({p.dout, p.dq, p.dk, p.dv, p.delta})) return unaligned_reason;
  if (p.dout_pitch % 8 != 0 || p.dq_pitch % 8 != 0 || p.dkv_pitch % 8 != 0)
    return fmt::format("pitches {}, {} and {} of dout, of dq, and of dk and dv; expected multiples of 8", p.dout_pitch,
                       p.dq_pitch, p.dkv_pitch);
  return {};
}

}  // namespace trireme::cuda

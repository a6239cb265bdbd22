// Attention ("scaled dot-product attention", SDPA) in the terms of cuDNN, as plain values, so that the translation can
// be tested without the library and without a GPU.
// Read next: cuda/libraries/sdpa_translate.h.
#pragma once

#include <fmt/format.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace trireme::cuda {

/// Always [batch, heads, tokens, elements of a head]; element (b, h, t, d) lies at the sum of index times stride.
struct SdpaTensor {
  std::array<std::int64_t, 4> dims{}, strides{};
  auto operator<=>(const SdpaTensor&) const = default;
};

enum class SdpaType : std::uint8_t { bf16, f16 };

/// All that a plan depends on: the key of the cache.
struct SdpaProblem {
  SdpaType type = SdpaType::bf16;
  bool backward = false;
  bool causal = false;    ///< query i sees keys up to i + keys - queries
  SdpaTensor q{}, out{};  ///< [B, H, Tq, D]
  SdpaTensor k{}, v{};    ///< [B, Hkv, Tk, D]
  SdpaTensor lse{};       ///< [B, H, Tq, 1], f32
  // Backward only:
  SdpaTensor dout{}, dq{};  ///< as q
  SdpaTensor dk{}, dv{};    ///< as k
  auto operator<=>(const SdpaProblem&) const = default;
};

/// A problem with its operands: one call. Forward writes out and lse, backward delta [B, H, Tq], dq, dk and dv.
struct SdpaCall {
  SdpaProblem problem;
  float scale = 1;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  void* lse = nullptr;
  const void* dout = nullptr;
  void* delta = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

/// For errors.
inline std::string to_string(const SdpaProblem& p) {
  return fmt::format("{} attention {} in {}: batch {}, heads {} over {}, queries {}, keys {}, head dim {}",
                     p.causal ? "causal" : "full", p.backward ? "backward" : "forward",
                     p.type == SdpaType::bf16 ? "bf16" : "f16", p.q.dims[0], p.q.dims[1], p.k.dims[1], p.q.dims[2],
                     p.k.dims[2], p.q.dims[3]);
}

}  // namespace trireme::cuda

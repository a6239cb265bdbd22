// A matrix product in the terms of cuBLASLt, as plain values, so that the translation can be tested without the library
// and without a GPU: d = epilogue(alpha op(a) op(b) + beta c), all matrices column-major.
// Read next: cuda/libraries/lt_translate.h.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <string>

namespace trireme::cuda {

enum class LtType : std::uint8_t { bf16, f16, f32 };

/// In this order: + bias, store aux, GELU (its tanh form). dgelu: times GELU's derivative at what aux holds.
enum class LtEpilogue : std::uint8_t { none, bias, gelu, gelu_bias, gelu_aux, gelu_aux_bias, dgelu };

/// As stored, before op(). Column-major: element (i, j) at i + j ld.
struct LtMatrix {
  std::int64_t rows = 0, columns = 0;
  std::int64_t ld = 0;
  std::int64_t stride = 0;  ///< from matrix to matrix of a batch
  int alignment = 0;        ///< power of two that divides the address, at most 256
  auto operator<=>(const LtMatrix&) const = default;
};

/// All that the choice of an algorithm depends on: the key of the cache.
struct LtProblem {
  LtType in = LtType::bf16, out = LtType::bf16;  ///< of a and b; of c, d, bias and aux
  bool transpose_a = false, transpose_b = false;
  LtMatrix a, b, c, d;
  int batch = 1;
  LtEpilogue epilogue = LtEpilogue::none;
  int bias_alignment = 0;                   ///< the bias has d.rows elements, for every column the same
  std::int64_t aux_ld = 0, aux_stride = 0;  ///< aux is as large as d
  int aux_alignment = 0;
  auto operator<=>(const LtProblem&) const = default;
};

/// A problem with its operands: one call.
struct LtCall {
  LtProblem problem;
  float alpha = 1, beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
};

inline bool adds_bias(LtEpilogue epilogue) {
  return epilogue == LtEpilogue::bias || epilogue == LtEpilogue::gelu_bias || epilogue == LtEpilogue::gelu_aux_bias;
}
/// True if the epilogue writes aux, or, with dgelu, reads it.
inline bool uses_aux(LtEpilogue epilogue) { return epilogue >= LtEpilogue::gelu_aux; }

/// For errors, in the library's column-major terms.
inline std::string to_string(const LtProblem& p) {
  const auto name = [](LtType type) { return type == LtType::bf16 ? "bf16" : type == LtType::f16 ? "f16" : "f32"; };
  const auto matrix = [](const LtMatrix& m) {
    return fmt::format("{} x {} (ld {}, stride {}, aligned to {})", m.rows, m.columns, m.ld, m.stride, m.alignment);
  };
  return fmt::format("{} to {}, a{} {}, b{} {}, c {}, d {}, batch {}, epilogue {}", name(p.in), name(p.out),
                     p.transpose_a ? "^T" : "", matrix(p.a), p.transpose_b ? "^T" : "", matrix(p.b), matrix(p.c),
                     matrix(p.d), p.batch, static_cast<int>(p.epilogue));
}

}  // namespace trireme::cuda

// Translates our row-major product to cuBLASLt's column-major one, or gives the reason why it cannot.
//
// A row-major matrix [R, C] with a pitch is, in the same memory, the column-major matrix C x R with that leading
// dimension: its transpose. So instead of c [M, N] = a b the library computes, without moving anything,
//
//   c^T = b^T a^T        d (N x M) = op(a') op(b')        a' our b, b' our a
//
//   form   our b             as a'          our a             as b'
//   NN     [K, N]            N x K          [M, K]            K x M
//   NT     [N, K]            K x N, T       [M, K]            K x M
//   TN     [K, N]            N x K          [K, M]            M x K, T
//
// The library adds a bias of d.rows = N elements to every column of d, that is, to every row of our c.
// Read next: cuda/libraries/cublaslt.h; tests/cuda/cublaslt_problem_test.cpp computes these products naively.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "cuda/kernels/gemm.h"
#include "cuda/libraries/lt_problem.h"

namespace trireme::cuda {

template <class T>
inline constexpr LtType lt_type = std::is_same_v<T, float> ? LtType::f32
                                  : std::is_same_v<T, f16> ? LtType::f16
                                                           : LtType::bf16;

/// The largest power of two up to 256 that divides the address; 0 for null.
inline int lt_alignment(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t lowest = bits & (~bits + 1);
  return static_cast<int>(lowest < 256 ? lowest : 256) * (address != nullptr ? 1 : 0);
}

/// The row-major matrix [rows, columns] as the column-major one. The pitch of a single row is ignored.
inline LtMatrix lt_matrix(const void* address, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                          std::int64_t stride, int batch) {
  return {.rows = columns,
          .columns = rows,
          .ld = rows > 1 ? pitch : columns,
          .stride = batch > 1 ? stride : 0,
          .alignment = lt_alignment(address)};
}

/// Translates a product for which cublaslt_cannot returned an empty text.
template <class T, class Out>
LtCall translate(const Gemm<T, Out>& p) {
  // All members are named here, so that a new member breaks the build until this file handles it.
  const auto& [alpha, bias, pre_activation, activation, derivative, residual, accumulate] = p.epilogue;
  const void* const added = residual != nullptr ? static_cast<const void*>(residual) : p.c;
  const bool nt = p.form == Form::nt, tn = p.form == Form::tn;
  const int a_rows = tn ? p.k : p.m, a_columns = tn ? p.m : p.k;
  const int b_rows = nt ? p.n : p.k, b_columns = nt ? p.k : p.n;

  LtCall call;
  LtProblem& to = call.problem;
  to.in = lt_type<T>;
  to.out = lt_type<Out>;
  to.transpose_a = nt;
  to.transpose_b = tn;
  to.a = lt_matrix(p.b, b_rows, b_columns, p.b_pitch, p.b_stride, p.batch);
  to.b = lt_matrix(p.a, a_rows, a_columns, p.a_pitch, p.a_stride, p.batch);
  to.c = lt_matrix(added, p.m, p.n, p.c_pitch, p.c_stride, p.batch);
  to.d = lt_matrix(p.c, p.m, p.n, p.c_pitch, p.c_stride, p.batch);
  to.batch = p.batch;
  to.bias_alignment = lt_alignment(bias);
  to.aux_alignment = lt_alignment(pre_activation);
  if (derivative)
    to.epilogue = LtEpilogue::dgelu;
  else if (activation == Activation::none)
    to.epilogue = bias != nullptr ? LtEpilogue::bias : LtEpilogue::none;
  else if (pre_activation == nullptr)
    to.epilogue = bias != nullptr ? LtEpilogue::gelu_bias : LtEpilogue::gelu;
  else
    to.epilogue = bias != nullptr ? LtEpilogue::gelu_aux_bias : LtEpilogue::gelu_aux;
  if (uses_aux(to.epilogue)) {
    to.aux_ld = p.c_pitch;
    to.aux_stride = to.d.stride;
  }
  call.alpha = alpha;
  call.beta = residual != nullptr || accumulate ? 1.0F : 0.0F;
  call.a = p.b;
  call.b = p.a;
  call.c = added;
  call.d = p.c;
  call.bias = bias;
  call.aux = pre_activation;
  return call;
}

/// Why the library cannot do this product; empty when it can. The library adds c and the bias before the activation,
/// takes only one c, and needs c, d, bias and aux in one type.
template <class T, class Out>
std::string cublaslt_cannot(const Gemm<T, Out>& p) {
  const auto& [alpha, bias, pre_activation, activation, derivative, residual, accumulate] = p.epilogue;
  constexpr bool mixed = !std::is_same_v<T, Out>;
  if (p.k == 0) return "K = 0: an empty sum; cuBLASLt wants at least one term";
  if (p.row_sums != nullptr) return "row sums: with cuBLASLt they are a sum of their own";
  if (activation != Activation::none && activation != Activation::gelu_tanh)
    return "an activation other than GELU's tanh form, the only one of ours that cuBLASLt has";
  if (derivative && (activation == Activation::none || pre_activation == nullptr))
    return "a derivative without an activation or without what it is taken at";
  if (derivative && bias != nullptr) return "a bias before a derivative: cuBLASLt adds none there";
  if (residual != nullptr && accumulate) return "a residual and accumulation: cuBLASLt adds one matrix only";
  if ((residual != nullptr || accumulate) && activation != Activation::none)
    return "a residual or accumulation after an activation: cuBLASLt adds before it";
  if (mixed && bias != nullptr) return "a 16-bit bias to an f32 result: cuBLASLt wants one type for both";
  if (mixed && residual != nullptr) return "a 16-bit residual to an f32 result: cuBLASLt wants one type for both";
  if (pre_activation != nullptr) {
    if (activation == Activation::none) return "a stored pre-activation without an activation";
    if (mixed) return "a 16-bit pre-activation beside an f32 result: cuBLASLt stores both in one type";
    if (p.c_pitch % 8 != 0 || (p.batch > 1 && p.c_stride % 8 != 0) || (p.m == 1 && p.c_pitch < p.n))
      return fmt::format(
          "a pre-activation with pitch {} and batch stride {}; cuBLASLt wants multiples of 8, and the "
          "pitch at least N = {}",
          p.c_pitch, p.c_stride, p.n);
  }
  const auto overlaps = [](std::int64_t rows, std::int64_t columns, std::int64_t pitch) {
    return rows > 1 && pitch < columns;
  };
  const bool nt = p.form == Form::nt, tn = p.form == Form::tn;
  if (overlaps(tn ? p.k : p.m, tn ? p.m : p.k, p.a_pitch) || overlaps(nt ? p.n : p.k, nt ? p.k : p.n, p.b_pitch) ||
      overlaps(p.m, p.n, p.c_pitch))
    return fmt::format(
        "rows that overlap: pitches {}, {} and {} of a, b and c, shorter than a row; as for broadcast "
        "operands",
        p.a_pitch, p.b_pitch, p.c_pitch);
  return {};
}

}  // namespace trireme::cuda

// Detects, when the program runs, the processor's instructions for products of bf16, beyond the vectors that kernels
// are compiled for (core/cpu/level.h). So one build is fast on every processor. The environment variable TRIREME_ISA
// selects less, to test what other machines do: "vectors", "avx512-bf16" or "amx". Read next: core/cpu/bf16_tiles.h.
#pragma once

#include <string_view>
#include <vector>

namespace trireme::cpu {

/// How products of bf16 are computed.
enum class Bf16Unit {
  vectors,  ///< widened to f32 as they are packed, then multiply-adds of f32: every machine
  pairs,    ///< vdpbf16ps: two products a lane (AVX-512 BF16). Twice the f32 rate on AMD since Zen 4; slow elsewhere
  tiles,    ///< tdpbf16ps: 16 x 16 tiles (AMX). Sixteen times the f32 rate on Intel since Sapphire Rapids
  software_tiles  ///< the same tiles in plain C++: slow, for tests on machines without them
};
std::string_view name(Bf16Unit unit);

/// The units of this processor, the fastest last; `vectors` is always there. Asks the system once for permission to use
/// tiles.
const std::vector<Bf16Unit>& bf16_units();
/// The unit in use: the fastest, or the one that TRIREME_ISA names. Throws ExitCode::usage if this processor does not
/// have it.
Bf16Unit bf16_unit();
/// For tests and benchmarks: overrides the environment. Call it before products run on other threads.
void select_bf16_unit(Bf16Unit unit);

}  // namespace trireme::cpu

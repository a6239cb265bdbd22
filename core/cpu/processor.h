// What the processor can do for products of bf16, beyond the vectors that the whole program is compiled for: found out
// when the program runs, so that one build is fast on each. The environment variable TRIREME_ISA lowers it, to test
// what other machines do: "vectors", "avx512-bf16" or "amx". Read next: core/cpu/bf16_tiles.h.
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

/// The units of this processor, the fastest last; `vectors` is always there. Asks the system for the right to use tiles
/// once.
const std::vector<Bf16Unit>& bf16_units();
/// The one in use: the fastest, or what TRIREME_ISA says. Throws ExitCode::usage for a value that is no unit of this
/// processor.
Bf16Unit bf16_unit();
/// For tests and benchmarks: whatever the environment says. Before products run on other threads.
void select_bf16_unit(Bf16Unit unit);

}  // namespace trireme::cpu

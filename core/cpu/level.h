// A level is a set of vector instructions, such as x86-64-v3, which has AVX2. A portable build compiles the kernels of
// this folder once for each level, and the program uses the highest one that its processor has. Any other build has one
// level: the processor that it was compiled for. The environment variable TRIREME_LEVEL selects a lower level, to test
// what other machines do, or so that unequal machines of one job compute the same bits.
//
// All files of this folder are compiled for each level, except levels.cpp, gemm_choice.cpp and processor.cpp, which are
// compiled once. Other code calls the kernels of a level through its Level. The linker sees no other function of a
// higher level (cmake/levels.cmake). Otherwise it could merge an inline function of the program with the copy of a
// level, and an old processor would meet instructions that it does not have.
// Read next: core/cpu/levels.cpp, core/cpu/processor.h (units for bf16).
#pragma once

#include <string_view>
#include <vector>

#include "core/kernels.h"
#include "core/machine_speed.h"

namespace trireme::cpu {

struct ChannelKernels;  // channel_kernels.h

struct Level {
  std::string_view name;  ///< as -march names it: x86-64-v3
  const KernelTable& (*kernel_table)();
  const ChannelKernels& (*channel_kernels)();
  MachineSpeed (*measure_machine_speed)(int team, DType dtype);
  double (*measure_flops)(int team, DType dtype);
};

/// The levels of this build that this processor has, the highest last. The lowest is not checked.
const std::vector<const Level*>& levels();
/// The level in use: the highest, or the one that TRIREME_LEVEL names. Throws ExitCode::usage if that is not one of
/// levels().
const Level& level();
/// Throws ExitCode::usage if TRIREME_LEVEL or TRIREME_ISA names what this processor does not have. A program calls it
/// at its start.
void require_processor();

}  // namespace trireme::cpu

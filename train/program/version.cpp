#include "train/program/version.h"

#include <fmt/format.h>

#include "core/cpu/processor.h"
#include "train/program/build_facts.h"

namespace trireme {
namespace {

std::string_view commit = "unknown";  // set before main() begins, never changed after that

/// What the compiler may use of the processor, the largest vectors first.
std::string_view instructions() {
#if defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "the least of this family";
#endif
}

}  // namespace

std::string version_line() { return fmt::format("{}, commit {}", build_facts::version, commit); }

bool note_commit(std::string_view text) {
  if (!text.empty()) commit = text;
  return true;
}

std::string version_text(std::string_view program) {
  return fmt::format(
      "{} of Trireme {}\n"
      "commit        {}\n"
      "compiler      {} {}, {}, for {} ({})\n"
      "MPI           {}\n"
      "CUDA          {}\n"
      "bf16 products {} on this processor\n",
      program, build_facts::version, commit, build_facts::compiler, build_facts::compiler_version,
      build_facts::build_type, build_facts::processor, instructions(), build_facts::mpi, build_facts::cuda,
      cpu::name(cpu::bf16_units().back()));
}

}  // namespace trireme

#include "train/program/version.h"

#include <fmt/format.h>

#include "core/cpu/level.h"
#include "core/cpu/processor.h"
#include "parallel/comm/mpi/transport.h"
#include "train/program/build_facts.h"

namespace trireme {
namespace {

std::string_view commit = "unknown";  // set before main() begins, never changed after that

/// What kernels use of the processor, in a build that chooses it when it runs; otherwise what the compiler may use, the
/// largest vectors first.
std::string instructions() {
  if (cpu::levels().size() > 1) return fmt::format("kernels for {} on this processor", cpu::levels().back()->name);
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

std::string mpi_version() {
  const comm::MpiTransport* transport = comm::mpi_transport();
  return transport == nullptr ? "off" : fmt::format("version {} of the standard", transport->version());
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
      build_facts::build_type, build_facts::processor, instructions(), mpi_version(), build_facts::cuda,
      cpu::name(cpu::bf16_units().back()));
}

}  // namespace trireme

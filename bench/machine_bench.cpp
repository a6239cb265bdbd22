// What this machine can do at most (bench/peaks.h), as one line of JSON, in FLOP/s and bytes/s: the limits that
// bench/compare.py sets other figures against.
//
//   build/bin/machine_bench --threads 2
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/peaks.h"
#include "core/cores.h"
#include "core/cpu/processor.h"
#include "core/parallel_for.h"
#include "train/flags.h"
#include "train/launcher.h"
#include "train/program.h"

using namespace trireme;

namespace {

#ifdef __clang__
constexpr const char* compiler = "Clang " __clang_version__;
#else
constexpr const char* compiler = "GCC " __VERSION__;
#endif

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    std::int64_t count = cores();
    Flags flags("machine_bench", "Measures what this machine can do at most.");
    flags.add("threads", "N", count, "threads to measure with", Range{.low = 1, .high = 4096});
    if (flags.parse(argc, argv) != Flags::Asked::run) {
      std::fputs(flags.help_text().c_str(), stdout);
      return 0;
    }
    const int team = static_cast<int>(count);
    set_threads(team);
    const OwnCores own_cores(0, team);
    const bench::MemorySpeed memory = bench::memory_speed(team);
    const nlohmann::json speed = {{"threads", team},
                                  {"f32_flops", bench::peak_flops(team, DType::f32)},
                                  {"bf16_flops", bench::peak_flops(team, DType::bf16)},
                                  {"bf16_unit", cpu::name(cpu::bf16_unit())},
                                  {"read_bytes", memory.read},
                                  {"update_bytes", memory.update},
                                  {"compiler", compiler}};
    fmt::print("{}\n", speed.dump());
    return 0;
  });
}

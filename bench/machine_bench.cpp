// Prints this machine's limits (bench/peaks.h), as one line of JSON, in FLOP/s and bytes/s. bench/compare.py compares
// other figures with them.
//
//   build/bin/machine_bench --threads 2
//
// With --turns (bench/turns.h) a step reads 512 MiB of memory once. Other programs change this limit, so it is measured
// between the steps that it limits.
#include "bench/gpt.h"
#include "bench/peaks.h"
#include "bench/turns.h"
#include "core/cores.h"
#include "core/cpu/processor.h"
#include "core/machine_speed.h"
#include "core/parallel_for.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

#ifdef __clang__
constexpr const char* compiler = "Clang " __clang_version__;
#else
constexpr const char* compiler = "GCC " __VERSION__;
#endif

void print_speed(int team) {
  const bench::MemorySpeed memory = bench::memory_speed(team);
  bench::Turns::say({{"threads", team},
                     {"f32_flops", measure_flops(team, DType::f32)},
                     {"bf16_flops", measure_flops(team, DType::bf16)},
                     {"bf16_unit", cpu::name(cpu::bf16_unit())},
                     {"read_bytes", memory.read},
                     {"update_bytes", memory.update},
                     {"compiler", compiler}});
}

void read_in_turns(int team, bench::Turns& turns) {
  const bench::MemorySweep memory(team);
  for (std::int64_t i = 0; i < turns.warm_up(); ++i) memory.read();
  bench::Turns::say({{"ready", {{"threads", team}, {"bytes", bench::MemorySweep::bytes}}}});
  while (const std::int64_t count = turns.next()) {
    for (std::int64_t i = 0; i < count; ++i) {
      const bench::Usage usage;
      memory.read();
      bench::Turns::say(usage.json());
    }
  }
  bench::Turns::say({{"end", {{"peak_rss", bench::Usage::peak_rss()}}}});
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    std::int64_t count = cores();
    Flags flags("machine_bench", "Measures what this machine can do at most.");
    flags.add("threads", "N", count, "threads to measure with", Range{.low = 1, .high = 4096});
    bench::Turns turns;
    turns.declare(flags);
    if (!flags.parse_or_print(argc, argv)) return 0;
    const int team = static_cast<int>(count);
    set_threads(team);
    const OwnCores own_cores(0, team);
    turns.interactive() ? read_in_turns(team, turns) : print_speed(team);
    return 0;
  });
}

// Chooses the level, and passes on the calls that reach it.
#include <cstdlib>
#include <string>

#include "core/cpu/level.h"
#include "core/cpu/processor.h"
#include "core/dry_kernels.h"
#include "core/dry_run.h"
#include "core/error.h"
#include "core/profiled_kernels.h"
#include "core/writing_kernels.h"

extern "C" {
extern const trireme::cpu::Level trireme_base_level;
#if defined(TRIREME_X86_LEVELS)
extern const trireme::cpu::Level trireme_x86_64_v3, trireme_x86_64_v4;
#endif
}

namespace trireme {
namespace cpu {
namespace {

std::vector<const Level*> find_levels() {
  std::vector<const Level*> found = {&trireme_base_level};
#if defined(TRIREME_X86_LEVELS)
  // __builtin_cpu_supports also checks that the system saves the registers.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
                  __builtin_cpu_supports("movbe");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v3) found.push_back(&trireme_x86_64_v3);
  if (v4) found.push_back(&trireme_x86_64_v4);
#endif
  return found;
}

const Level& choose() {
  const char* wanted = std::getenv("TRIREME_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return *levels().back();
  std::string names;
  for (const Level* each : levels()) {
    if (each->name == wanted) return *each;
    names += (names.empty() ? "" : ", ") + std::string(each->name);
  }
  fail(ExitCode::usage, "processor",
       "TRIREME_LEVEL is '{}'; expected a level of this build that this processor has: {}; change or unset it", wanted,
       names);
}

}  // namespace

const std::vector<const Level*>& levels() {
  static const std::vector<const Level*> found = find_levels();
  return found;
}

const Level& level() {
  static const Level& chosen = choose();
  return chosen;
}

void require_processor() {
  level();
  bf16_unit();
}

}  // namespace cpu

const KernelTable& kernels(Device device) {
  const bool dry = DryRun::on();
  const KernelTable& table = marking_results(device, dry                     ? dry_kernels(device)
                                                     : device == Device::cpu ? cpu::level().kernel_table()
                                                                             : backend(device).kernels());
  return profiles_kernels() ? profiled(device, table) : table;
}

MachineSpeed measure_machine_speed(int team, DType dtype) { return cpu::level().measure_machine_speed(team, dtype); }
double measure_flops(int team, DType dtype) { return cpu::level().measure_flops(team, dtype); }

}  // namespace trireme

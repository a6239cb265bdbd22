#include "core/cpu/processor.h"

#include <fmt/core.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trireme::cpu {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}
bool bit(unsigned word, int index) { return (word >> index & 1U) != 0; }

/// Whether pairs run at twice the rate of f32. On other processors half the rate of f32 was measured.
bool has_fast_pairs() {
  const Registers vendor = cpuid(0, 0);
  return vendor.b == 0x68747541 && vendor.d == 0x69746e65 && vendor.c == 0x444d4163;  // "AuthenticAMD"
}

/// __builtin_cpu_supports also checks that the system saves the 512-bit registers.
bool has_pairs() { return __builtin_cpu_supports("avx512f") && bit(cpuid(7, 1).a, 5); }

/// Tiles are 8 KiB of registers that the system saves only for processes that have asked (Linux 5.16).
bool has_tiles() {
  const Registers features = cpuid(7, 0);
  if (!bit(features.d, 24) || !bit(features.d, 22)) return false;  // AMX-TILE, AMX-BF16
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

#else

bool has_fast_pairs() { return false; }
bool has_pairs() { return false; }
bool has_tiles() { return false; }

#endif

std::vector<Bf16Unit> find_units() {
  std::vector<Bf16Unit> units = {Bf16Unit::vectors};
  if (has_pairs()) units.insert(has_fast_pairs() ? units.end() : units.begin(), Bf16Unit::pairs);
  if (has_pairs() && has_tiles())  // store_rounded() needs the former
    units.push_back(Bf16Unit::tiles);
  return units;
}

Bf16Unit unit_from_environment() {
  const std::vector<Bf16Unit>& units = bf16_units();
  const char* wanted = std::getenv("TRIREME_ISA");
  if (wanted == nullptr || *wanted == '\0') return units.back();
  std::string names;
  for (const Bf16Unit unit : units) {
    if (name(unit) == wanted) return unit;
    names += (names.empty() ? "" : ", ") + std::string(name(unit));
  }
  fail(ExitCode::usage, "processor", "TRIREME_ISA is '{}'; expected what this processor has: {}; change or unset it",
       wanted, names);
}

constexpr int undecided = -1;
std::atomic<int> selected = undecided;

}  // namespace

std::string_view name(Bf16Unit unit) {
  switch (unit) {
    case Bf16Unit::vectors:
      return "vectors";
    case Bf16Unit::pairs:
      return "avx512-bf16";
    case Bf16Unit::tiles:
      return "amx";
    case Bf16Unit::software_tiles:
      return "software-amx";
  }
  return "";
}

const std::vector<Bf16Unit>& bf16_units() {
  static const std::vector<Bf16Unit> units = find_units();
  return units;
}

Bf16Unit bf16_unit() {
  const int chosen = selected.load(std::memory_order_relaxed);
  if (chosen != undecided) return static_cast<Bf16Unit>(chosen);
  static const Bf16Unit from_environment = unit_from_environment();
  return from_environment;
}

void select_bf16_unit(Bf16Unit unit) { selected = static_cast<int>(unit); }

}  // namespace trireme::cpu

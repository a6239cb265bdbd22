// The registers of a warp group that its products use: sums (accumulators), and fragments of A.
//
// From the issue of a product until a wait covers its group, threads may neither read nor write its registers. A
// wgmma.fence must follow a thread's access to a register, before the next product that uses it (PTX ISA,
// "wgmma.fence"). Products of one shape on the same sums need no fence between them.
//
// How mistakes show in every build: while products are in flight, their sums are kept here, and the threads' registers
// hold a NaN. So an early read gives NaN, and the wait finds an early write. If there was no fence since the last
// product, the next one compares its registers with what that left. The race build sees each access. So it also finds
// reads, and accesses between the fence and the product (cuda/emu/race_registers.cpp).
// Read next: cuda/emu/wgmma.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emu/matrix.h"

namespace trireme::cuda::emu {

inline constexpr std::size_t kGroupThreads = 128;

/// The latest product that uses some registers.
struct RegisterUse {
  Site site{"", 0};
  std::uint32_t group = 0;   ///< the wgmma group of the product, counted from 1
  std::uint32_t fences = 0;  ///< of the warp group, when the product was over
  bool in_flight = true;
};

/// A thread's sums of one product or of several in a row.
struct Sums : RegisterUse {
  std::array<float*, kGroupThreads> at{};  ///< by thread of the group: n / 2 registers
  int n = 0;
  std::vector<float> values{};  ///< [64, n]
};

/// Four registers of A.
struct Fragment : RegisterUse {
  std::array<const std::uint32_t*, kGroupThreads> at{};
  std::array<std::array<std::uint32_t, 4>, kGroupThreads> values{};
};

/// Row and column of sum i of a thread of the group.
constexpr std::size_t row_of(std::size_t thread, std::size_t i) {
  return 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
}
constexpr std::size_t column_of(std::size_t thread, std::size_t i) { return 8 * (i / 4) + 2 * (thread % 4) + i % 2; }

class WgmmaRegisters {
 public:
  void fence() { ++fences_; }
  std::uint32_t fences() const { return fences_; }

  /// Registers the arguments (Wgmma, by thread) of a product that belongs to `group`; faults if it needs a fence or a
  /// wait first. Returns where the product adds to its sums.
  std::shared_ptr<Sums> use(const Block& block, void* const* arguments, std::uint32_t group, Site site);
  /// All groups up to `waited` are over: gives threads their sums. Faults if they touched registers meanwhile.
  void release(const Block& block, std::uint32_t waited, Site site);
  /// The use in flight that has one of `bytes` bytes at `at` of a thread of the group; null: none.
  const RegisterUse* in_flight(std::size_t thread, const void* at, std::size_t bytes) const;
  /// Any in flight; null: none.
  const RegisterUse* in_flight() const;

 private:
  std::shared_ptr<Sums> use_sums(const Block& block, void* const* arguments, std::uint32_t group, Site site);
  void use_fragment(const Block& block, void* const* arguments, std::uint32_t group, Site site);

  std::vector<std::shared_ptr<Sums>> sums_;
  std::vector<Fragment> fragments_;
  std::uint32_t fences_ = 0;
};

}  // namespace trireme::cuda::emu

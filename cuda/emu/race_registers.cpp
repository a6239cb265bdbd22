// The race checker's part for the registers that wgmma uses. They are local arrays, so the accesses are to threads' own
// stacks. See cuda/emu/wgmma_registers.h.
//
// Two mistakes: an access while a product that uses the register is in flight; and an access after the last
// wgmma.fence, followed by a product that uses the register. For the second, each thread remembers its last access to
// every four bytes of its stack.
#include <fmt/core.h>

#include "cuda/emu/race.h"
#include "cuda/emu/wgmma_registers.h"

namespace trireme::cuda::emu {

RegisterAccess& StackAccesses::at(std::size_t offset) {
  std::unique_ptr<Page>& page = pages_[offset / kPageBytes];
  if (page == nullptr) page = std::make_unique<Page>();
  return (*page)[offset % kPageBytes / 4];
}

void RaceChecker::stack_access(AccessKind kind, const void* at, std::size_t bytes, const void* pc) {
  const WgmmaRegisters& registers = block_.wgmma_registers_of(self());
  if (registers.fences() == 0) return;  // no product yet
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - block_.stack_of(self()));
  if (offset >= Stacks::kBytes) return;
  const std::size_t thread = static_cast<std::size_t>(self().index) % kGroupThreads;
  const Access access = make(actor_of(self()), thread_of(self()).own, kind, self(), pc);
  if (const RegisterUse* const use = registers.in_flight(thread, at, bytes); use != nullptr)
    report_stray(access, [&] {
      return fmt::format("a register of the wgmma at {}, which is in flight; wait for its group first",
                         block_.place(use->site));
    });
  for (std::size_t i = 0; i < bytes; i += 4)
    thread_of(self()).stack.at(offset + i) = {registers.fences(), access.pc, access.kind};
}

void RaceChecker::require_fence(const Fiber& fiber, const void* at, std::size_t bytes, Site site) {
  const WgmmaRegisters& registers = block_.wgmma_registers_of(fiber);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - block_.stack_of(fiber));
  if (offset >= Stacks::kBytes || registers.fences() == 0) return;
  for (std::size_t i = 0; i < bytes; i += 4) {
    const RegisterAccess& last = thread_of(fiber).stack.at(offset + i);
    if (last.fences != registers.fences()) continue;
    Access access = make(actor_of(fiber), 0, static_cast<AccessKind>(last.kind), fiber, nullptr);
    access.pc = last.pc;
    return report_stray(access, [&] {
      return fmt::format(
          "a register of the wgmma at {}, with no wgmma.fence between; call wgmma_fence() after the access",
          block_.place(site));
    });
  }
}

void RaceChecker::wgmma_registers(void* const* arguments, Site site) {
  const WgmmaRegisters& registers = block_.wgmma_registers_of(self());
  const int first = self().index / 128 * 128;
  for (std::size_t thread = 0; thread < kGroupThreads; ++thread) {
    const auto& mine = *static_cast<const Wgmma*>(arguments[thread]);
    const Fiber& fiber = block_.fiber(first + static_cast<int>(thread));
    const auto bytes = static_cast<std::size_t>(mine.n) * 2;
    // Sums in flight belong to a row of products: an access meanwhile has been reported as such.
    if (registers.in_flight(thread, mine.d, bytes) == nullptr) require_fence(fiber, mine.d, bytes, site);
    if (mine.a != nullptr) require_fence(fiber, mine.a, 16, site);
  }
}

}  // namespace trireme::cuda::emu

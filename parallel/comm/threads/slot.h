// What one rank of a thread group shows the others about the operation it is in.
//
// Each slot is double-buffered by the parity of the sequence number: a rank can be one operation ahead of the slowest
// rank, never two. So the data of operation k is not overwritten while another rank may still read it.
#pragma once

#include <array>
#include <memory>

#include "parallel/comm/collective.h"
#include "parallel/comm/threads/world.h"

namespace trireme::comm {

/// Contributions up to this size are copied into a slot, so that the ranks need to meet only once.
inline constexpr std::size_t small_bytes = 16 * 1024;

struct alignas(64) GroupState::Slot {
  struct Shown {
    Signature signature;
    std::byte* x = nullptr;  ///< this rank's contribution
    std::unique_ptr<std::byte[]> copy;
  };
  std::array<Shown, 2> shown;
};

}  // namespace trireme::comm

// See cuda/emu/launch_bounds.h.
#include "cuda/emu/launch_bounds.h"

#include <algorithm>
#include <cstring>

// The linker's list of the addresses where nops begin. Without a kernel that has bounds there is none: both are null.
extern "C" {
extern const unsigned char* const __start___patchable_function_entries[] __attribute__((weak, visibility("hidden")));
extern const unsigned char* const __stop___patchable_function_entries[] __attribute__((weak, visibility("hidden")));
}

namespace trireme::cuda::emu {

LaunchBounds launch_bounds_of(const void* kernel) {
  if (!has_launch_bounds) return {};
  const auto* const entry = static_cast<const unsigned char*>(kernel);
  const unsigned char* first = nullptr;  // the last list entry before the kernel
  for (auto nops = __start___patchable_function_entries; nops != __stop___patchable_function_entries; ++nops)
    if (*nops<entry&& * nops> first) first = *nops;
  constexpr unsigned char kNop = 0x90, kBranchTarget[] = {0xf3, 0x0f, 0x1e, 0xfa};  // endbr64, with -fcf-protection
  if (first == nullptr || !std::all_of(first, entry, [](unsigned char byte) { return byte == kNop; })) return {};
  LaunchBounds bounds{static_cast<int>(entry - first), 0};
  const unsigned char* after = entry;
  if (std::memcmp(after, kBranchTarget, sizeof(kBranchTarget)) == 0) after += sizeof(kBranchTarget);
  while (after[bounds.blocks] == kNop) ++bounds.blocks;
  return bounds;
}

}  // namespace trireme::cuda::emu

// The __launch_bounds__ of kernels under emulation, which launch() finds by a kernel's address.
//
// GCC's attribute patchable_function_entry puts one-byte nops around the entry of a function. Here the number of nops
// before the entry is the bound on threads, and the number after it is the requested number of blocks. The linker lists
// where the nops of each function begin. So kernels keep CUDA's own syntax. Other compilers and processors ignore the
// bounds.
// Read next: cuda/emu/launch.cpp, cuda/emu/registers.cpp.
#pragma once

namespace trireme::cuda::emu {

/// `threads`: at most so many per block. `blocks`: at least so many must fit on a multiprocessor; 0: not stated.
struct LaunchBounds {
  int threads = 0, blocks = 0;
  constexpr int nops() const { return threads + blocks; }
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
inline constexpr bool has_launch_bounds = true;
#define __launch_bounds__(...)                                                                    \
  __attribute__((patchable_function_entry(::trireme::cuda::emu::LaunchBounds{__VA_ARGS__}.nops(), \
                                          ::trireme::cuda::emu::LaunchBounds{__VA_ARGS__}.threads)))
#else
inline constexpr bool has_launch_bounds = false;
#define __launch_bounds__(...)
#endif

/// Zeros if the kernel has no bounds, or the compiler ignores them.
LaunchBounds launch_bounds_of(const void* kernel);

}  // namespace trireme::cuda::emu

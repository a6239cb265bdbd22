// Starts a kernel under emulation: the clusters of a grid on OS threads, in an order that depends on the seed. A launch
// is checked against the limits of a device, and against the kernel's __launch_bounds__, which launch() finds by the
// kernel's address.
//
// GCC's attribute patchable_function_entry puts one-byte nops around the entry of a function. Here the number of nops
// before the entry is the bound on threads, and the number after it is the requested number of blocks. The linker lists
// where the nops of each function begin. So kernels keep CUDA's own syntax. Other compilers and processors ignore the
// bounds.
// Read next: cuda/emu/launch.cpp, cuda/emu/registers.cpp.
#pragma once

#include <cstddef>
#include <functional>

#include "cuda/device/limits.h"
#include "cuda/device/types.h"

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

/// Few, so that persistent blocks process several tiles even in tests.
inline constexpr int kMultiprocessors = 3;

// Profiles of devices.
inline constexpr DeviceLimits h100 = {9, 0, kMultiprocessors, 227 * 1024};  // H200: the same
inline constexpr DeviceLimits a100 = {8, 0, kMultiprocessors, 163 * 1024};

inline constinit thread_local DeviceLimits limits_here = h100;

/// Selects the limits of launches from the calling OS thread, for as long as the object lives. Without one, h100.
class ScopedLimits {
 public:
  explicit ScopedLimits(const DeviceLimits& limits) : previous_(limits_here) { limits_here = limits; }
  ~ScopedLimits() { limits_here = previous_; }
  ScopedLimits(const ScopedLimits&) = delete;
  ScopedLimits& operator=(const ScopedLimits&) = delete;

 private:
  DeviceLimits previous_;
};

struct BlockShape {
  const char* kernel = "kernel";
  Dim3 grid, block;
  std::size_t dynamic_shared = 0;
  LaunchBounds bounds{};
  DeviceLimits limits = h100;
  bool shared_opt_in = false;  ///< the kernel may use more than kSharedByDefault
  int cluster = 1;             ///< blocks of a cluster: neighbours in x

  std::size_t most_shared() const { return shared_opt_in ? limits.shared_per_block : kSharedByDefault; }
};

/// Runs body() as every thread of every block. Throws the Error of the first block (by index) that misbehaves.
void run_grid(const BlockShape& shape, const std::function<void()>& body);

}  // namespace trireme::cuda::emu

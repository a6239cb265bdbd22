// Profiles of devices: the limits that the emulator checks launches against. A test selects one by ScopedLimits.
// Read next: cuda/emu/launch.cpp, which checks launches.
#pragma once

#include "cuda/device/limits.h"

namespace trireme::cuda::emu {

/// Few, so that persistent blocks process several tiles even in tests.
inline constexpr int kMultiprocessors = 3;

inline constexpr DeviceLimits h100 = {9, 0, kMultiprocessors, 227 * 1024};  // H200: the same
inline constexpr DeviceLimits a100 = {8, 0, kMultiprocessors, 163 * 1024};

inline constinit thread_local DeviceLimits limits_here = h100;

/// The limits of launches from the calling OS thread, for as long as the object lives. Without one, h100.
class ScopedLimits {
 public:
  explicit ScopedLimits(const DeviceLimits& limits) : previous_(limits_here) { limits_here = limits; }
  ~ScopedLimits() { limits_here = previous_; }
  ScopedLimits(const ScopedLimits&) = delete;
  ScopedLimits& operator=(const ScopedLimits&) = delete;

 private:
  DeviceLimits previous_;
};

}  // namespace trireme::cuda::emu

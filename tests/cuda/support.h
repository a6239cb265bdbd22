// Buffers and schedules for tests of kernels, under emulation and on a GPU: the same sources are compiled for both
// (scripts/gpu_check). Kernels get data(), a device pointer; the test reads and writes through at(), set() and fill().
// Read next: tests/cuda/gemm_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/half.h"
#include "core/random.h"
#include "cuda/emu/zone.h"
#include "tests/cuda/device_memory.h"
#include "tests/support/errors.h"
#include "tests/support/largest.h"
#if !defined(__CUDACC__)
#include "cuda/emu/race.h"
#include "cuda/emu/schedule.h"
#endif

// 1 where the instructions of Hopper exist: in the body of a kernel, which is empty for other GPUs. Tests that launch
// such a kernel are not run there (HOPPER_CASE in scripts/gpu/cases.py).
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TRIREME_HOPPER_CODE 1
#else
#define TRIREME_HOPPER_CODE 0
#endif

namespace cuda_test {

using trireme::testing::keep_largest;

/// `count` elements in device memory, between zones of NaN that no kernel may touch. A read there spoils most results,
/// and a write fails the test; AddressSanitizer and the race build report both. `offset` elements shift the start, to
/// test unaligned pointers.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, std::size_t offset = 0)
      : count_(count), begin_(kZone + offset), bytes_((count + offset + 2 * kZone) * sizeof(T)) {
    host_.resize(bytes_ / sizeof(T));
    std::memset(static_cast<void*>(host_.data()), 0xff, bytes_);
    auto* const bytes = reinterpret_cast<unsigned char*>(host_.data());
    for (std::size_t i = 0; i < bytes_; ++i)
      if (in_zone(i)) bytes[i] = trireme::cuda::emu::zone_byte(i);
    device_ = static_cast<T*>(device_allocate(bytes_));
    fence_ = std::make_unique<Fence>(device_, bytes_, begin_ * sizeof(T), (begin_ + count_) * sizeof(T));
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    for (std::size_t i = 0; i < count_; ++i) set(i, values[i]);
  }
  ~Buffer() {
    CHECK_MESSAGE(intact(), "a kernel wrote outside its buffer");
    fence_.reset();
    device_free(device_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// The pointer for kernels. From now on what the test writes goes to the device at once.
  T* data() {
    if (!on_device_) {
      copy_to_device(device_, host_.data(), bytes_);
      fence_->close();
    }
    on_device_ = true;
    return device_ + begin_;
  }
  std::size_t size() const { return count_; }
  T value(std::size_t i) const { return host()[begin_ + i]; }
  std::span<const T> values() const { return {host() + begin_, count_}; }
  double at(std::size_t i) const { return static_cast<double>(static_cast<float>(value(i))); }
  void set(std::size_t i, T value) {
    host()[begin_ + i] = value;
    if (on_device_) copy_to_device(device_ + begin_ + i, &value, sizeof(T));
  }
  bool intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(host());
    for (std::size_t i = 0; i < bytes_; ++i)
      if (in_zone(i) && bytes[i] != trireme::cuda::emu::zone_byte(i)) return false;
    return true;
  }
  /// set(i, value(i)) for all i, with one copy to the device.
  template <class Value>
  void set_all(const Value& value) {
    T* const values = host() + begin_;
    for (std::size_t i = 0; i < count_; ++i) values[i] = value(i);
    if (on_device_ && count_ > 0) copy_to_device(device_ + begin_, values, count_ * sizeof(T));
  }
  /// Values in [-scale, scale), a function of seed and position; rounded to T.
  void fill_random(std::uint64_t seed, float scale = 1.0F) {
    set_all([&](std::size_t i) {
      return T((2.0F * static_cast<float>(trireme::random_uniform(seed, 1, i)) - 1.0F) * scale);
    });
  }
  void fill(float value) {
    set_all([&](std::size_t) { return T(value); });
  }

 private:
  bool in_zone(std::size_t byte) const { return byte < begin_ * sizeof(T) || byte >= (begin_ + count_) * sizeof(T); }
  /// The copy on the host, after copying back what kernels may have written since the last look.
  T* host() const {
    if (on_device_ && seen_ != trireme::cuda::launch_count()) {
      fence_->open();
      copy_to_host(host_.data(), device_, bytes_);
      fence_->close();
      seen_ = trireme::cuda::launch_count();
    }
    return host_.data();
  }

  static constexpr std::size_t kZone = 256;
  std::size_t count_, begin_, bytes_;
  mutable std::vector<T> host_;
  T* device_;
  std::unique_ptr<Fence> fence_;  ///< around the elements
  bool on_device_ = false;
  mutable std::uint64_t seen_ = ~std::uint64_t{0};  // launches at the last look
};

/// Whether both hold the same elements, bit for bit. The function for tensors is in tests/support/tensors.h, which
/// includes more than tests of kernels need.
template <class T>
bool same_bits(const Buffer<T>& a, const Buffer<T>& b) {
  const std::span<const T> x = a.values(), y = b.values();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

/// |got - expected| in roundings to T, with `room` for arithmetic in f32; NaN counts as 1e9.
template <class T>
double error(double got, double expected, double room) {
  const bool wide = std::is_same_v<T, float> || std::is_same_v<T, double>;
  const double unit = wide ? 2e-6 : std::is_same_v<T, trireme::bf16> ? 1.0 / 256 : 1.0 / 2048;
  const double off = std::abs(got - expected) / (unit * std::abs(expected) + room);
  return std::isnan(off) ? 1e9 : off;
}

/// AddressSanitizer makes the emulator some twenty times slower. Cases that only repeat others at a larger size are
/// left out there.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool under_asan = true;
#else
constexpr bool under_asan = false;
#endif

#if defined(__CUDACC__)

/// A GPU makes its own schedule, so the body runs once.
template <class Body>
void under_schedules(Body&& body) {
  body();
}
template <class Body>
void under_schedule(std::uint64_t, Body&& body) {
  body();
}
inline bool slow_build() { return false; }
inline std::uint64_t seeds_of_forms() { return 4; }
struct ScopedMultiprocessors {
  explicit ScopedMultiprocessors(int) {}
};

#else

/// Gives the emulated device so many multiprocessors while it lives. A GPU has as many as it has.
class ScopedMultiprocessors {
 public:
  explicit ScopedMultiprocessors(int count)
      : limits_([count] {
          trireme::cuda::DeviceLimits limits = trireme::cuda::emu::limits_here;
          limits.multiprocessors = count;
          return limits;
        }()) {}

 private:
  trireme::cuda::emu::ScopedLimits limits_;
};

template <class Body>
void under_schedule(std::uint64_t seed, Body&& body) {
  const trireme::cuda::emu::ScopedSchedule schedule({seed});
  body();
}
/// In builds that are many times slower, tests leave out what only repeats.
inline bool slow_build() { return under_asan || trireme::cuda::emu::race_checking; }

/// The number of seeds for a case that multiplies in form seed % 3: slow builds run each form once.
inline std::uint64_t seeds_of_forms() { return slow_build() ? 3 : 4; }

/// Runs `body` under the schedules of seeds 0 to 3. In slow builds, whose reports depend little on the schedule, under
/// seed 2 only. A failure names the seed.
template <class Body>
void under_schedules(Body&& body) {
  const bool once = slow_build();
  for (std::uint64_t seed = once ? 2 : 0; seed < (once ? 3 : 4); ++seed) {
    CAPTURE(seed);
    under_schedule(seed, body);
  }
}

#endif

using trireme::testing::error_of;

}  // namespace cuda_test

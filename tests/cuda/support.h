// Buffers and schedules for tests of kernels under emulation.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/random.h"
#include "cuda/emu/schedule.h"

namespace cuda_test {

/// `count` elements in "device memory", between red zones of NaN: what is read there spoils the result, and a write
/// there fails the test. `offset` elements shift the start, to test what unaligned pointers do.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, std::size_t offset = 0) : count_(count), begin_(kZone + offset) {
    storage_.resize(count + offset + 2 * kZone);
    std::memset(static_cast<void*>(storage_.data()), 0xff, storage_.size() * sizeof(T));
  }
  ~Buffer() { CHECK_MESSAGE(intact(), "a kernel wrote outside its buffer"); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return storage_.data() + begin_; }
  const T* data() const { return storage_.data() + begin_; }
  std::size_t size() const { return count_; }
  double at(std::size_t i) const { return static_cast<double>(static_cast<float>(storage_[begin_ + i])); }
  bool intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(storage_.data());
    for (std::size_t i = 0; i < storage_.size() * sizeof(T); ++i)
      if ((i < begin_ * sizeof(T) || i >= (begin_ + count_) * sizeof(T)) && bytes[i] != 0xff) return false;
    return true;
  }
  /// Values in [-scale, scale), a function of seed and position; rounded to T.
  void fill_random(std::uint64_t seed, float scale = 1.0F) {
    for (std::size_t i = 0; i < count_; ++i)
      storage_[begin_ + i] = T((2.0F * static_cast<float>(trireme::random_uniform(seed, 1, i)) - 1.0F) * scale);
  }
  void fill(float value) {
    for (std::size_t i = 0; i < count_; ++i) storage_[begin_ + i] = T(value);
  }

 private:
  static constexpr std::size_t kZone = 256;
  std::size_t count_, begin_;
  std::vector<T> storage_;
};

/// Runs `body` under the schedules of seeds 0 to 3; a failure names the seed.
template <class Body>
void under_schedules(Body&& body) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    const trireme::cuda::emu::ScopedSchedule schedule({seed});
    body();
  }
}

/// The message of the Error that `body` throws; empty when it throws none.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const trireme::Error& error) { return error.what(); }
  return {};
}

}  // namespace cuda_test

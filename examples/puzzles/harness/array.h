// Arrays for kernels of puzzles, in global memory between guard zones. The emulator knows the name of each and what a
// kernel may do with it: a report says "block 1 thread 9 reads at learner.cu:20: a[257], outside of a [257]".
// Read next: examples/puzzles/harness/trial.h; cuda/emu/watched.h.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/tensor.h"
#include "cuda/emu/watched.h"
#include "cuda/emu/zone.h"

namespace trireme::puzzles {

using cuda::emu::Use;

template <class T>
class Array {
 public:
  /// An input, which kernels may only read. It begins `offset` elements after a multiple of 4096 bytes.
  Array(std::string name, std::span<const T> values, std::size_t offset = 0)
      : Array(std::move(name), values.size(), offset) {
    std::copy(values.begin(), values.end(), data());
    use_as(Use::input);
  }
  Array(std::string name, const Tensor& values, std::size_t offset = 0)
      : Array(std::move(name), values.span<const T>(), offset) {}
  /// An output: NaN until it is written, and not to be read before.
  Array(std::string name, std::size_t count, std::size_t offset = 0)
      : name_(std::move(name)),
        count_(count),
        first_(kZone + offset * sizeof(T)),
        bytes_(first_ + count * sizeof(T) + kZone) {
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(4096, (bytes_ + 4095) / 4096 * 4096)));
    for (std::size_t i = 0; i < bytes_; ++i) memory_[i] = cuda::emu::zone_byte(i);
    std::memset(static_cast<void*>(data()), 0xff, count * sizeof(T));
    use_as(Use::output);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_.get() + first_); }
  std::size_t size() const { return count_; }
  std::span<const T> values() const { return {reinterpret_cast<const T*>(memory_.get() + first_), count_}; }
  Tensor tensor(const Shape& shape) const { return Tensor::from(values(), shape); }
  /// What the launches from now on may do with it: the output of one is the input of the next.
  void use_as(Use use) {
    watched_.reset();
    watched_.emplace(memory_.get(), cuda::emu::WatchedBytes{.bytes = bytes_,
                                                            .first = first_,
                                                            .last = first_ + count_ * sizeof(T),
                                                            .name = name_.c_str(),
                                                            .element = sizeof(T),
                                                            .use = use});
  }

 private:
  static constexpr std::size_t kZone = 1 << 16;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::string name_;
  std::size_t count_, first_, bytes_;
  std::unique_ptr<unsigned char[], Free> memory_;
  std::optional<cuda::emu::WatchedMemory> watched_;
};

}  // namespace trireme::puzzles

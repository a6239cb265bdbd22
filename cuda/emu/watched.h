// Global memory that a test watches: which bytes are a tensor, what it is called, and what kernels may do with it. The
// race checker (race.h) and the counts of transactions (traffic.h) know only such memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::cuda::emu {

/// What a kernel may do with the elements of a tensor.
enum class Use : std::uint8_t {
  any,
  input,   ///< read them
  output,  ///< write them, and read what it has written
};

/// Memory that a test gives to kernels: of its `bytes` bytes, [first, last) is the tensor.
struct WatchedBytes {
  std::size_t bytes, first, last;
  const char* name = nullptr;  ///< for messages, which then count in elements; must live as long as the memory
  std::size_t element = 1;     ///< bytes of an element
  Use use = Use::any;
};

/// Global memory whose accesses are checked, for as long as the object lives. Blocks of one launch are also checked
/// against each other; launches run one after the other.
class WatchedMemory {
 public:
  WatchedMemory(const void* begin, WatchedBytes bytes);
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

 private:
  const std::byte* begin_;
};

struct WatchedRange {
  const std::byte* begin;
  WatchedBytes bytes;

  std::size_t byte_of(const std::byte* address) const { return static_cast<std::size_t>(address - begin); }
  bool holds(const std::byte* address) const { return address >= begin && address < begin + bytes.bytes; }
  bool outside(const std::byte* address) const {  ///< the tensor
    return byte_of(address) < bytes.first || byte_of(address) >= bytes.last;
  }
  /// "x[17]", or "byte 68 of 1024 bytes of global memory".
  std::string place(const std::byte* address) const;
  /// Where an access goes that is not inside the tensor.
  std::string place_outside(const std::byte* address, std::size_t access) const;
};

/// All that is watched when the object is made.
class WatchedRanges {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  WatchedRanges();
  std::size_t find(const std::byte* address) const;  ///< the number of the range that holds it, or none
  const WatchedRange& operator[](std::size_t i) const { return ranges_[i]; }
  std::size_t size() const { return ranges_.size(); }

 private:
  std::vector<WatchedRange> ranges_;  ///< by address
  mutable std::size_t last_ = 0;
};

}  // namespace trireme::cuda::emu

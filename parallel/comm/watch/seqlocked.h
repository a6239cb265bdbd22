// SeqLocked: a value that one thread writes and others read at any time, in memory that processes may share: a sequence
// lock. Neither side waits: a reader that meets a write retries a few times and then returns nothing. Every word is an
// atomic with release and acquire ordering, so there is no data race (Boehm 2012, "Can seqlocks get along with
// programming language memory models?").
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace trireme::watch {

template <class T>
class SeqLocked {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void write(const T& value) {
    std::array<std::uint64_t, count> words{};
    std::memcpy(words.data(), &value, sizeof(T));
    const std::uint64_t version = version_.load(std::memory_order_relaxed) | 1U;  // odd: being written
    version_.store(version, std::memory_order_relaxed);
    for (std::size_t i = 0; i < count; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 1, std::memory_order_release);
  }

  /// Nothing if it was never written, is being rewritten all the time, or its writer stopped in the middle.
  std::optional<T> read() const {
    for (int tries = 0; tries < 64; ++tries) {
      const std::uint64_t before = version_.load(std::memory_order_acquire);
      if (before == 0) return std::nullopt;
      std::array<std::uint64_t, count> words{};
      for (std::size_t i = 0; i < count; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 1 || version_.load(std::memory_order_relaxed) != before) continue;
      T value;
      std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
      return value;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t count = (sizeof(T) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  std::atomic<std::uint64_t> version_{0};
  std::array<std::atomic<std::uint64_t>, count> words_{};
};

/// A short text of fixed size for such values; cuts off a longer text.
template <std::size_t Size>
struct FixedText {
  std::array<char, Size> bytes{};

  FixedText() = default;
  explicit FixedText(std::string_view text) { std::memcpy(bytes.data(), text.data(), std::min(text.size(), Size - 1)); }
  std::string_view view() const { return {bytes.data(), strnlen(bytes.data(), Size)}; }
};

}  // namespace trireme::watch

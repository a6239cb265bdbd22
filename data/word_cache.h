// Words whose ids are known: text repeats its words, so nearly every word is a look-up.
// Read next: data/bpe_model.h, data/unigram_model.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace trireme {

/// A table of words and their ids. Of fixed size: a new word takes the place of another one.
class WordCache {
 public:
  static constexpr std::size_t longest = 30, most_ids = 8;
  /// A word and its ids.
  struct Slot {
    std::uint8_t length = 0, count = 0;  // bytes; ids
    std::array<char, longest> text{};    // zeros behind it
    std::array<std::int32_t, most_ids> ids{};

    /// Whether this is the place of `word`.
    bool holds(std::string_view word) const {
      return length == word.size() && std::string_view(text.data(), length) == word;
    }
    /// At most `longest` bytes and `most_ids` ids.
    void put(std::string_view word, std::span<const std::int32_t> its_ids);
  };
  WordCache();
  /// The place of a word of 1 to `longest` bytes, whether it is there or not.
  Slot& slot(std::string_view word) const;

 private:
  struct Free {
    void operator()(Slot* slots) const;
  };
  std::unique_ptr<Slot[], Free> slots_;
};

/// Caches of one tokenizer: as many as threads have used it at the same time.
class WordCaches {
 public:
  /// A cache that no other thread uses until it is given back.
  class Lease {
   public:
    explicit Lease(WordCaches& caches);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    WordCache& cache() const { return *cache_; }

   private:
    WordCaches& caches_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

}  // namespace trireme

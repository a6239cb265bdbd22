// A set of texts with a number for each, which is walked byte by byte: finds all of them that begin at a place of a
// text.
// Read next: data/sentencepiece_tokenizer.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme {

/// Texts with a number each, found byte by byte. See the top of this file.
class ByteTrie {
 public:
  /// Adds a text that is not empty; a later number of the same text takes the place of the earlier one.
  void add(std::string_view text, std::int32_t number);
  bool empty() const { return nodes_ == 1; }
  std::size_t nodes() const { return static_cast<std::size_t>(nodes_); }

  /// Where a byte leads.
  struct Step {
    std::int32_t node = -1;    ///< -1: no text goes on like this
    std::int32_t number = -1;  ///< of the text that ends here; -1: none does
  };
  /// Walks from `node` (0: the root) along a byte.
  Step step(std::int32_t node, unsigned char byte) const {
    return node == 0 ? first_[byte] : edges_[slot_of(node, byte)].to;
  }
  /// The longest text at the beginning of `text`; 0: there is none.
  std::size_t longest(std::string_view text, std::int32_t& number) const;

 private:
  struct Edge {
    std::int32_t from = -1;  // -1: free
    unsigned char byte = 0;
    Step to = {};
  };
  std::size_t slot_of(std::int32_t from, unsigned char byte) const {
    std::uint64_t key =
        (static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 8 | byte) * 0x9E3779B97F4A7C15U;
    key ^= key >> 32;
    std::size_t slot = key & (edges_.size() - 1);
    while (edges_[slot].from >= 0 && !(edges_[slot].from == from && edges_[slot].byte == byte))
      slot = (slot + 1) & (edges_.size() - 1);
    return slot;
  }
  void grow();

  std::array<Step, 256> first_ = {};                 // from the root
  std::vector<Edge> edges_ = std::vector<Edge>(64);  // from other nodes: a hash table; its size is a power of two
  std::int32_t nodes_ = 1;
};

}  // namespace trireme

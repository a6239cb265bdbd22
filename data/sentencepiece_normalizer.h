// How SentencePiece prepares a text: its rules replace texts (by Unicode's form NFKC and more, as a model's trainer
// chose), spaces are added and removed, and U+2581 stands for a space.
//
// The rules are a trie as a double array (Aoe, 1989; the library Darts-clone): a unit of 32 bits for each node, and the
// node along a byte at the index offset XOR byte. Source: normalizer.cc of github.com/google/sentencepiece.
// Read next: data/sentencepiece_tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_trie.h"
#include "data/sentencepiece_file.h"

namespace trireme {

/// What a model of SentencePiece does to a text before it is cut. See the top of this file.
class SentencePieceNormalizer {
 public:
  /// Throws ExitCode::data, naming `path`, for rules that are malformed.
  SentencePieceNormalizer(const SentencePieceModel& model, const std::filesystem::path& path);

  /// The text as pieces are sought in it. Bytes that are not UTF-8 become U+FFFD each.
  std::string normalized(std::string_view text) const;
  /// The user-defined pieces and their ids. Rules leave their text as it is.
  const ByteTrie& kept() const { return kept_; }

 private:
  /// A piece at the beginning of a text: what replaces it, and its bytes.
  struct Replaced {
    std::string_view by;
    std::size_t bytes;
  };
  Replaced replace_first(std::string_view text) const;
  void read_rules(std::string_view rules, const std::filesystem::path& path);
  const std::uint32_t* step(std::size_t& node, unsigned char byte) const;
  std::size_t longest_rule(std::string_view text, std::uint32_t& value) const;
  bool find_plain(unsigned char byte) const;
  bool is_plain(std::string_view text, std::size_t at) const;

  bool adds_space_, removes_spaces_, space_at_end_;
  std::string space_;                 // what stands for a space
  std::vector<std::uint32_t> units_;  // empty: no rules
  std::string replacements_;          // each ends with a zero
  ByteTrie kept_;
  std::array<bool, 256> plain_{};  // bytes of ASCII that stay as they are if ASCII, or nothing, follows
};

}  // namespace trireme

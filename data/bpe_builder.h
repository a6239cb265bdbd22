// Puts the vocabulary of a BPE tokenizer together from the entries of a file, within the limits of
// docs/untrusted_input.md.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/tokenizer_files.cpp, data/hugging_face.cpp, data/tiktoken.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/bpe_model.h"
#include "data/json.h"

namespace trireme {

// Larger than any published vocabulary, and small enough that a file of nothing else needs no more than 64 MiB.
inline constexpr std::size_t bpe_most_tokens = 5 << 16, bpe_most_merges = 780'000;

/// Collects tokens and merges; see the top of this file.
class BpeBuilder {
 public:
  /// How the file spells a token.
  enum class Spelling {
    bytes,          ///< in the alphabet of data/byte_alphabet.h; others are refused
    bytes_or_text,  ///< so, but a token with other characters is kept as its text, and is left out of the model
    text            ///< as it is
  };
  explicit BpeBuilder(Spelling spelling) : spelling_(spelling), table_(data_.tokens) {}
  BpeBuilder(const BpeBuilder&) = delete;
  BpeBuilder& operator=(const BpeBuilder&) = delete;

  /// The next id. `where` names the entry in messages.
  void add_token(std::string spelling, const std::string& where);
  /// The next id, in the token's own bytes.
  void add_bytes(std::string bytes, const std::string& where);
  /// The next id, which no token has.
  void add_gap(const std::string& where);
  /// The merge of the next rank, by the spellings of its two tokens.
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  /// The same by their ids.
  void add_merge(std::int64_t left, std::int64_t right, const std::string& where);
  /// A merge as one text: two tokens with one space between them.
  void add_merge(std::string_view line, const std::string& where);

  /// The id of a token by its spelling.
  std::optional<std::int32_t> find(std::string_view spelling) const;
  std::int32_t size() const { return static_cast<std::int32_t>(data_.tokens.size()); }
  /// The tokens that are left out of the model; empty if none is.
  std::vector<bool> left_out() const { return any_left_out_ ? left_out_ : std::vector<bool>(); }
  /// Ends the building: what was added.
  BpeMerges take();

 private:
  void add(std::string text, bool leave_out, const std::string& where);
  void check_room(const std::string& where) const;

  Spelling spelling_;
  BpeMerges data_;
  TokenTable table_;
  std::vector<bool> left_out_;
  bool any_left_out_ = false;
};

/// Reads "token": id, ... in any order.
class VocabReader {
 public:
  /// Takes one member; throws ExitCode::data if its id is not one of its own.
  void take(const JsonPlace& place, const nlohmann::json& value, const std::filesystem::path& path);
  /// The spellings by id. Throws ExitCode::data if an id is missing.
  std::vector<std::string> finish(const std::filesystem::path& path);

 private:
  std::vector<std::string> spellings_;
  std::vector<bool> given_;
  std::size_t most_ = 0, most_at_ = 0;  // the largest id
};

}  // namespace trireme

// Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes, Radford et al. 2019): a word starts as its bytes,
// and the adjacent pair with the lowest rank is merged into one token until no adjacent pair has a rank.
// Read next: data/bpe_train.h (where ranks come from), data/tokenizer_files.cpp (the files), data/bpe_split.h (words).
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "data/bpe_split.h"
#include "data/tokenizer.h"

namespace trireme {

/// Everything that defines a BPE tokenizer.
struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< the bytes of each id
  /// (left id, right id) by rank; the concatenation is a token.
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  std::optional<std::int32_t> end_of_text;
};

class BpeTokenizer : public Tokenizer {
 public:
  /// Throws ExitCode::data, naming `source` and the entry, unless all 256 single bytes are tokens, tokens are distinct,
  /// merges are distinct, and each merge makes a token.
  BpeTokenizer(BpeVocabulary vocabulary, const std::string& source);

  std::string_view name() const override { return "bpe"; }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(vocabulary_.tokens.size()); }
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::optional<std::int32_t> end_of_text() const override { return vocabulary_.end_of_text; }
  std::string to_json() const override;
  const BpeVocabulary& vocabulary() const { return vocabulary_; }

 protected:
  void append_bytes(std::int32_t id, std::string& text) const override;

 private:
  struct Merge {
    std::int32_t rank, result;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const {
      return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15U) >> 20);
    }
  };
  struct WordHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const;
  };
  /// Words already merged: text repeats its words, so nearly every word is a look-up.
  struct Cache {
    // -> first, count
    std::unordered_map<std::string, std::pair<std::size_t, std::size_t>, WordHash, std::equal_to<>> words;
    std::vector<std::int32_t> ids;
  };

  void append_word(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const;
  void merge_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;

  BpeVocabulary vocabulary_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;  // by (left << 32 | right)
  BpeSplitter splitter_;
  mutable std::mutex cache_mutex_;  // one caller at a time uses the shared cache; others use one of their own
  mutable Cache cache_;
};

/// Loads PATH of `--tokenizer bpe:PATH`: see make_tokenizer.
std::shared_ptr<const Tokenizer> load_bpe(const std::filesystem::path& path);

/// The tokenizer of the Hugging Face layout: `vocab` is the content of vocab.json, `merges` of merges.txt. Throws
/// ExitCode::data, with file and byte, for what is malformed or does not fit together.
std::shared_ptr<const Tokenizer> parse_hugging_face(std::string_view vocab, const std::filesystem::path& vocab_path,
                                                    std::string_view merges, const std::filesystem::path& merges_path);

/// GPT-2's printable spelling of bytes, which its files use so that no token holds a space or a control character:
/// printable Latin-1 bytes stand for themselves, the others for U+0100 onwards.
std::string spell_bytes(std::string_view bytes);
/// The inverse; nothing where a character is not in that alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace trireme

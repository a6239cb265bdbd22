// Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes, Radford et al. 2019) with GPT-2's words: what
// prepare_data learns, and what vocab.json and merges.txt describe.
// Read next: data/bpe_model.h (merges), data/bpe_train.h (where they come from), data/tokenizer_files.cpp (the files),
// data/word_patterns.h (words).
#pragma once

#include <string>
#include <utility>

#include "data/bpe_model.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"

namespace trireme {

/// Everything that defines a BPE tokenizer.
struct BpeVocabulary : BpeMerges {
  std::optional<std::int32_t> end_of_text = {};
};

/// Byte-pair encoding; see the top of this file.
class BpeTokenizer : public Tokenizer {
 public:
  /// Throws ExitCode::data, naming `source` and the entry, unless all 256 single bytes are tokens, tokens are distinct,
  /// merges are distinct, and each merge makes a token.
  BpeTokenizer(BpeVocabulary vocabulary, const std::string& source);

  std::string_view name() const override { return "bpe"; }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(model_.tokens().size()); }
  /// A byte that is not part of UTF-8 is a word of its own, and the text on either side of it is cut as if it ended
  /// there.
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::optional<std::size_t> safe_cut(std::string_view text, std::size_t at) const override {
    return cut_between_lines(text, at);
  }
  std::string to_json() const override;
  const BpeMerges& vocabulary() const { return model_.data(); }

 protected:
  void append_bytes(std::int32_t id, std::string& text) const override;

 private:
  std::optional<std::int32_t> end_of_text_;
  BpeModel model_;
};

/// Loads PATH of `--tokenizer bpe:PATH`: see make_tokenizer.
std::shared_ptr<const Tokenizer> load_bpe(const std::filesystem::path& path);
/// Loads PATH of `--tokenizer tiktoken:NAME:PATH`.
std::shared_ptr<const Tokenizer> load_tiktoken(std::string_view encoding, const std::filesystem::path& path);

/// Loads PATH of `--tokenizer sentencepiece:PATH`: a model of SentencePiece, or a folder with tokenizer.model, and what
/// tokenizer_config.json and added_tokens.json beside it say. Throws ExitCode::usage if there is none, and as
/// make_sentence_piece() of data/sentencepiece.h.
std::shared_ptr<const Tokenizer> load_sentence_piece(const std::filesystem::path& path);

/// The tokenizer of the older Hugging Face layout: `vocab` is the content of vocab.json, `merges` of merges.txt. Throws
/// ExitCode::data, with file and byte, for what is malformed or does not fit together.
std::shared_ptr<const Tokenizer> parse_hugging_face(std::string_view vocab, const std::filesystem::path& vocab_path,
                                                    std::string_view merges, const std::filesystem::path& merges_path);

}  // namespace trireme

// A tokenizer that runs a model of SentencePiece as its library does: by unigrams (data/unigram_model.h) or by merges.
// Models of merges that only write U+2581 for spaces become a PipelineTokenizer instead (data/sentencepiece.h).
//
// tests/data/sentencepiece_test.cpp and scripts/peer_tokenizers.py compare it with the library. Source of the details:
// unigram_model.cc, bpe_model.cc and sentencepiece_processor.cc of github.com/google/sentencepiece.
// Read next: data/sentencepiece_normalizer.h, data/unigram_model.h, data/sentencepiece_file.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe_model.h"
#include "data/sentencepiece_normalizer.h"
#include "data/tokenizer.h"
#include "data/unigram_model.h"

namespace trireme {

/// Kind of such a tokenizer in our own files, and its name().
inline constexpr std::string_view sentence_piece_kind = "sentencepiece";

/// What is put around a text with special tokens.
struct SentencePieceEnds {
  bool begin = false, end = false;
};

/// The tokenizer of a tokenizer.model. See the top of this file.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `file` is the model file, which to_json() writes again. Throws ExitCode::data, naming `path`, for models by words
  /// or characters, unused pieces beside merges, `ends` that the model has no pieces for, and malformed rules.
  SentencePieceTokenizer(std::string file, const std::filesystem::path& path, SentencePieceEnds ends);

  std::string_view name() const override { return sentence_piece_kind; }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(model_.pieces.size()); }
  /// Bytes that are not UTF-8 become those of U+FFFD, as in the library.
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override;
  /// Control pieces in the text are found, and the ends are added.
  std::vector<std::int32_t> encode_with_special(std::string_view text) const override;
  std::optional<std::int32_t> end_of_text() const override { return model_.control(model_.end_piece); }
  std::string to_json() const override;

  const std::string& file() const { return file_; }  ///< the bytes of tokenizer.model
  SentencePieceEnds ends() const { return ends_; }
  /// A piece as the model spells it; `id` is one of the vocabulary.
  const std::string& piece(std::int32_t id) const { return model_.pieces.at(static_cast<std::size_t>(id)).text; }

 protected:
  void append_bytes(std::int32_t id, std::string& text) const override;
  void append_text(std::span<const std::int32_t> ids, std::string& text) const override;

 private:
  void build_merges(const std::filesystem::path& path);
  void append_merged(std::string_view text, std::vector<std::int32_t>& ids) const;
  AddedTokenFinder control_finder() const;

  std::string file_;
  SentencePieceModel model_;
  SentencePieceEnds ends_;
  SentencePieceNormalizer normalizer_;
  AddedTokenFinder controls_;
  std::vector<std::int32_t> byte_ids_;  // with byte fallback
  std::unique_ptr<const UnigramModel> unigrams_;
  std::unique_ptr<const BpeModel> merges_;
  bool separates_metaspaces_ = false;
};

}  // namespace trireme

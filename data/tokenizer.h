// Tokenizer: text to token ids and back: by characters, by bytes, or by byte-pair encoding (BPE), of our own or as
// Hugging Face's tokenizer.json and tiktoken's files describe it; or by a model of SentencePiece.
//
// A tokenizer never changes after it is made, so threads may share one. Two tokenizers with the same hash() give every
// text the same ids; token shards and checkpoints store the hash to refuse a mix-up.
// Read next: data/char_tokenizer.h, data/bpe_tokenizer.h, data/pipeline_tokenizer.h; data/corpus.h, which applies one
// to a whole text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// What separates documents, in the vocabularies that have it.
inline constexpr std::string_view end_of_text_name = "<|endoftext|>";

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "char", "byte", "bpe" or "sentencepiece".
  virtual std::string_view name() const = 0;
  /// Ids are 0 <= id < vocab_size(), without padding.
  virtual std::int32_t vocab_size() const = 0;

  /// The ids of a text, appended to `ids`. Text that spells a special token is ordinary text here.
  /// Throws ExitCode::data when a character is outside the vocabulary, naming it and its byte offset.
  virtual void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;  ///< append_ids() to an empty list
  /// As encode(), but special tokens such as `<|endoftext|>` in the text become their ids, and a tokenizer of Hugging
  /// Face adds what its template says, such as `<s>` at the beginning.
  virtual std::vector<std::int32_t> encode_with_special(std::string_view text) const;

  /// The exact bytes of these tokens; a run of tokens may begin or end inside a UTF-8 character (print through
  /// Utf8Stream). decode(encode(text)) == text, unless a tokenizer of Hugging Face changes the text (its normalizer, or
  /// a space in front of it). Throws ExitCode::data for an id outside the vocabulary, naming its index.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The bytes of one token behind others. Throws ExitCode::data for an id outside the vocabulary.
  std::string decode_further(std::int32_t id) const;

  /// A place at or behind byte `at`, where the text may be cut for append_part_ids(); nothing if there is none.
  virtual std::optional<std::size_t> safe_cut(std::string_view text, std::size_t at) const;
  /// The ids of text[begin, end), which are part of those of the whole text: `begin` and `end` are 0, the text's size,
  /// or places that safe_cut() gave.
  void append_part_ids(std::string_view text, std::size_t begin, std::size_t end,
                       std::vector<std::int32_t>& ids) const {
    append_part(text, begin, end, ids);
  }

  /// Id of `<|endoftext|>`, where the vocabulary has it.
  virtual std::optional<std::int32_t> end_of_text() const { return std::nullopt; }

  /// The whole tokenizer as JSON. Equal tokenizers give equal text.
  virtual std::string to_json() const = 0;
  /// Writes to_json() to a file, whole or not at all.
  void save(const std::filesystem::path& path) const;
  /// Identity: the hash of to_json().
  std::uint64_t hash() const;

 protected:
  /// Appends the bytes of one token, whose id is known to be in the vocabulary.
  virtual void append_bytes(std::int32_t id, std::string& text) const = 0;
  /// Appends the bytes of tokens whose ids are known to be in the vocabulary.
  virtual void append_text(std::span<const std::int32_t> ids, std::string& text) const;
  /// append_part_ids() for places that are known to be right.
  virtual void append_part(std::string_view text, std::size_t begin, std::size_t end,
                           std::vector<std::int32_t>& ids) const;
};

/// A place at or behind byte `at` between a line end, with no space before it, and an ASCII letter. No word of the
/// patterns of data/word_patterns.h goes across it, and the words on both sides do not depend on the other side.
std::optional<std::size_t> cut_between_lines(std::string_view text, std::size_t at);

/// The value of "format" in the file of a tokenizer.
inline constexpr std::string_view tokenizer_format = "trireme-tokenizer";

/// Reads what save() wrote. Throws ExitCode::data for a malformed file, with the entry or byte at fault.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);
/// As load_tokenizer, from text such as a checkpoint holds; `path` is what messages call it.
std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json_text, const std::filesystem::path& path);

/// The tokenizer that `--tokenizer char|byte|bpe:PATH|sentencepiece:PATH|tiktoken:NAME:PATH` names. `char` takes its
/// vocabulary from `texts`, which must be UTF-8. PATH of bpe is a file saved by prepare_data, Hugging Face's files, or
/// a folder with them; of sentencepiece a tokenizer.model, or its folder; of tiktoken a file of ranks, and NAME its
/// encoding, such as o200k_base. Throws ExitCode::usage for any other specification and for a PATH that does not exist.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view specification,
                                                std::span<const std::string_view> texts);

}  // namespace trireme

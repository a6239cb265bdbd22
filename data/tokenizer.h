// Tokenizer: text to token ids and back. Three kinds: characters, bytes, and byte-level BPE.
//
// A tokenizer never changes after it is made, so threads may share one. Two tokenizers with the same hash() give every
// text the same ids; token shards and checkpoints store the hash to refuse a mix-up.
// Read next: data/char_tokenizer.h, data/bpe_tokenizer.h; data/corpus.h, which applies one to a whole text.
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

  /// "char", "byte" or "bpe".
  virtual std::string_view name() const = 0;
  /// Ids are 0 <= id < vocab_size(), without padding.
  virtual std::int32_t vocab_size() const = 0;

  /// The ids of a text, appended to `ids`. Text that spells a special token is ordinary text here.
  /// Throws ExitCode::data when a character is outside the vocabulary, naming it and its byte offset.
  virtual void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// As encode(), but `<|endoftext|>` in the text becomes the special token where the vocabulary has one.
  std::vector<std::int32_t> encode_with_special(std::string_view text) const;

  /// The exact bytes of these tokens; a run of tokens may begin or end inside a UTF-8 character (print through
  /// Utf8Stream). decode(encode(text)) == text. Throws ExitCode::data for an id outside the vocabulary, naming its
  /// index.
  std::string decode(std::span<const std::int32_t> ids) const;

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
};

/// The value of "format" in the file of a tokenizer.
inline constexpr std::string_view tokenizer_format = "trireme-tokenizer";

/// Reads what save() wrote. Throws ExitCode::data for a malformed file, with the entry or byte at fault.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);
/// As load_tokenizer, from text such as a checkpoint holds; `path` is what messages call it.
std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json_text, const std::filesystem::path& path);

/// The tokenizer that `--tokenizer char|byte|bpe:PATH` names. `char` takes its vocabulary from `texts`, which must be
/// UTF-8. PATH is a file saved by prepare_data, a folder with one, or a folder in the Hugging Face layout (vocab.json
/// and merges.txt). Throws ExitCode::usage for any other specification and for a PATH that does not exist.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view specification,
                                                std::span<const std::string_view> texts);

}  // namespace trireme

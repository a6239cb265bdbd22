// What all tokenizers share, and the choice between them.
#include "data/tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "data/bpe_tokenizer.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"

namespace trireme {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  append_ids(text, ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  const auto special = end_of_text();
  if (!special) return encode(text);
  std::vector<std::int32_t> ids;
  while (true) {
    const std::size_t at = text.find(end_of_text_name);
    append_ids(text.substr(0, at), ids);
    if (at == std::string_view::npos) return ids;
    ids.push_back(*special);
    text.remove_prefix(at + end_of_text_name.size());
  }
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size())
      fail(ExitCode::data, "tokenizer", "token {} at index {} is outside the vocabulary; expected 0 to {}", ids[i], i,
           vocab_size() - 1);
  }
  append_text(ids, text);
  return text;
}

std::string Tokenizer::decode_further(std::int32_t id) const {
  if (id < 0 || id >= vocab_size())
    fail(ExitCode::data, "tokenizer", "token {} is outside the vocabulary; expected 0 to {}", id, vocab_size() - 1);
  std::string text;
  append_bytes(id, text);
  return text;
}

void Tokenizer::append_text(std::span<const std::int32_t> ids, std::string& text) const {
  for (const std::int32_t id : ids) append_bytes(id, text);
}

std::optional<std::size_t> Tokenizer::safe_cut(std::string_view, std::size_t) const { return std::nullopt; }

void Tokenizer::append_part(std::string_view text, std::size_t begin, std::size_t end,
                            std::vector<std::int32_t>& ids) const {
  append_ids(text.substr(begin, end - begin), ids);
}

std::optional<std::size_t> cut_between_lines(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_letter = [&](std::size_t i) { return (byte(i) | 0x20U) >= 'a' && (byte(i) | 0x20U) <= 'z'; };
  for (std::size_t line = std::max<std::size_t>(at, 2) - 1; (line = text.find('\n', line)) < text.size(); ++line)
    if (line + 1 < text.size() && is_letter(line + 1) && byte(line - 1) > 0x20 && byte(line - 1) < 0x7F)
      return line + 1;
  return std::nullopt;
}

void Tokenizer::save(const std::filesystem::path& path) const { write_file(path, to_json()); }

std::uint64_t Tokenizer::hash() const { return hash_bytes(to_json()); }

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  return parse_tokenizer(read_file(path, read_limits::tokenizer), path);
}

std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view specification,
                                                std::span<const std::string_view> texts) {
  constexpr std::string_view bpe_prefix = "bpe:";
  if (specification == "char") return std::make_shared<CharTokenizer>(CharTokenizer::from_texts(texts));
  if (specification == "byte") return std::make_shared<ByteTokenizer>();
  if (specification.starts_with(bpe_prefix) && specification.size() > bpe_prefix.size())
    return load_bpe(specification.substr(bpe_prefix.size()));
  constexpr std::string_view tiktoken_prefix = "tiktoken:";
  const std::size_t colon = specification.find(':', tiktoken_prefix.size());
  if (specification.starts_with(tiktoken_prefix) && colon != std::string_view::npos && colon + 1 < specification.size())
    return load_tiktoken(specification.substr(tiktoken_prefix.size(), colon - tiktoken_prefix.size()),
                         specification.substr(colon + 1));
  constexpr std::string_view sentence_piece_prefix = "sentencepiece:";
  if (specification.starts_with(sentence_piece_prefix) && specification.size() > sentence_piece_prefix.size())
    return load_sentence_piece(specification.substr(sentence_piece_prefix.size()));
  fail(ExitCode::usage, "tokenizer",
       "unknown tokenizer \"{}\"; expected char, byte, bpe:PATH, sentencepiece:PATH or tiktoken:NAME:PATH, such as "
       "tiktoken:o200k_base:o200k_base.tiktoken; change --tokenizer",
       specification);
}

}  // namespace trireme

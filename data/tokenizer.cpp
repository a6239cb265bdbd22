// What all tokenizers share, and the choice between them.
#include "data/tokenizer.h"

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
    append_bytes(ids[i], text);
  }
  return text;
}

void Tokenizer::save(const std::filesystem::path& path) const { write_file(path, to_json()); }

std::uint64_t Tokenizer::hash() const { return hash_bytes(to_json()); }

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  return parse_tokenizer(read_file(path), path);
}

std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view specification,
                                                std::span<const std::string_view> texts) {
  constexpr std::string_view bpe_prefix = "bpe:";
  if (specification == "char") return std::make_shared<CharTokenizer>(CharTokenizer::from_texts(texts));
  if (specification == "byte") return std::make_shared<ByteTokenizer>();
  if (specification.starts_with(bpe_prefix) && specification.size() > bpe_prefix.size())
    return load_bpe(specification.substr(bpe_prefix.size()));
  fail(ExitCode::usage, "tokenizer", "unknown tokenizer \"{}\"; expected char, byte or bpe:PATH; change --tokenizer",
       specification);
}

}  // namespace trireme

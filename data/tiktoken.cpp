#include "data/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/error.h"
#include "data/stand_in.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Special {
  std::string_view name;
  std::int32_t id;
};

struct Encoding {
  std::string_view name;
  WordPattern pattern;
  std::int32_t ranks;  // lines of the published file
  std::vector<Special> specials;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> all = {
      {"r50k_base", WordPattern::gpt2, 50256, {{"<|endoftext|>", 50256}}},
      {"p50k_base", WordPattern::gpt2, 50280, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       WordPattern::cl100k,
       100256,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", WordPattern::o200k, 199998, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"llama3", WordPattern::llama3, 128000, {{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001}}},
      {"qwen2",
       WordPattern::qwen2,
       151643,
       {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}}};
  return all;
}

/// The bytes of base64 text (RFC 4648, section 4); nothing if it is malformed.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  unsigned bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t value = i + padding < text.size() ? alphabet.find(text[i]) : 0;
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<unsigned>(value);
    if (i % 4 != 3) continue;
    for (const unsigned shift : {16U, 8U, 0U}) bytes += static_cast<char>(bits >> shift & 0xFF);
    bits = 0;
  }
  if (bytes.size() < padding) return std::nullopt;
  for (std::size_t i = 0; i < padding; ++i)
    if (bytes[bytes.size() - 1 - i] != '\0') return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

/// The tokens of the file by rank; empty where no line has that rank.
std::vector<std::string> read_ranks(std::string_view text, const fs::path& path) {
  refuse_stand_in(text, path);
  std::vector<std::string> tokens;
  std::size_t number = 0;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (line.empty()) continue;
    const auto refuse = [&](const std::string& what) {
      fail(ExitCode::data, "tokenizer", "{} byte {}: line {}: {}", path.string(), at, number, what);
    };
    const std::size_t space = line.find(' ');
    const auto bytes = space == std::string_view::npos ? std::nullopt : from_base64(line.substr(0, space));
    std::size_t rank = 0;
    const char* const first = line.data() + std::min(space, line.size() - 1) + 1;
    const auto [last, error] = std::from_chars(first, line.data() + line.size(), rank);
    if (!bytes || bytes->empty() || error != std::errc() || last != line.data() + line.size())
      refuse(fmt::format("expected a token in base64, one space and its rank, got {}", in_quotes(line)));
    if (rank >= bpe_most_tokens) refuse(fmt::format("rank {}; expected less than {}", rank, bpe_most_tokens));
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) refuse(fmt::format("rank {} is that of an earlier line; expected its own", rank));
    tokens[rank] = *bytes;
  }
  if (tokens.empty())
    fail(ExitCode::data, "tokenizer", "{} byte 0: no token; expected lines with a token in base64 and its rank",
         path.string());
  return tokens;
}

const Encoding* find_encoding(std::string_view name) {
  for (const Encoding& encoding : encodings())
    if (encoding.name == name) return &encoding;
  return nullptr;
}

}  // namespace

std::string tiktoken_encodings() {
  std::string names;
  for (const Encoding& encoding : encodings()) names += fmt::format("{}{}", names.empty() ? "" : ", ", encoding.name);
  return names;
}

namespace {

/// Refuses another number of ranks than that of the published file.
void require_published(const Encoding& encoding, std::int32_t ranks, const fs::path& path) {
  if (ranks == encoding.ranks) return;
  std::string hint = "give the whole file";
  for (const Encoding& other : encodings())
    if (other.ranks == ranks) hint = fmt::format("that is the number of {0}: give tiktoken:{0}:PATH", other.name);
  fail(ExitCode::data, "tokenizer", "{} has {} ranks; expected {}, as {} has; {}", path.string(), ranks, encoding.ranks,
       encoding.name, hint);
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tiktoken(std::string_view text, std::string_view name, const fs::path& path,
                                                bool published) {
  const Encoding* encoding = find_encoding(name);
  if (encoding == nullptr)
    fail(ExitCode::usage, "tokenizer", "unknown encoding {}; expected one of {}; change --tokenizer tiktoken:NAME:PATH",
         in_quotes(name), tiktoken_encodings());
  BpeBuilder builder(BpeBuilder::Spelling::bytes);
  std::int32_t lines = 0;
  for (std::string& token : read_ranks(text, path)) {
    if (token.empty()) {
      builder.add_gap(path.string());
    } else {
      ++lines;
      builder.add_bytes(std::move(token), path.string());
    }
  }
  if (published) require_published(*encoding, lines, path);
  json specials = json::object();
  std::int32_t next = builder.size();
  for (const Special& special : encoding->specials)
    specials[std::string(special.name)] = static_cast<std::uint32_t>(lines == encoding->ranks ? special.id : next++);
  return make_tiktoken(builder, {{"encoding", name}, {"special_tokens", specials}}, path);
}

std::shared_ptr<const Tokenizer> make_tiktoken(BpeBuilder& builder, const json& settings, const fs::path& path) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::data, "tokenizer", "{}: {}; expected a tokenizer saved by prepare_data or a checkpoint",
         path.string(), what);
  };
  if (!settings.is_object() || !settings.contains("encoding") || !settings["encoding"].is_string() ||
      !settings.contains("special_tokens") || !settings["special_tokens"].is_object())
    refuse("\"settings\" without an encoding and special_tokens");
  const Encoding* encoding = find_encoding(settings["encoding"].get_ref<const std::string&>());
  if (encoding == nullptr) refuse("an unknown encoding " + shown(settings["encoding"]));
  PipelineSettings pipeline;
  pipeline.splits = {{.kind = SplitStep::Kind::words, .pattern = encoding->pattern}};
  pipeline.model = {.ranked_by_id = true, .whole_words = true, .left_out = builder.left_out()};
  pipeline.decoder.byte_level = true;
  for (const auto& [name, id] : settings["special_tokens"].items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= bpe_most_tokens || name.empty())
      refuse(fmt::format("the special token {} has the id {}", in_quotes(name), shown(id)));
    pipeline.added.push_back({.id = id.get<std::int32_t>(), .content = name, .special = true});
  }
  return std::make_shared<PipelineTokenizer>(std::string(tiktoken_kind), settings.dump(), builder.take(),
                                             std::move(pipeline), path.string());
}

}  // namespace trireme

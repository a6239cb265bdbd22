// Tokenizers in files: our own JSON for all kinds, and the Hugging Face layout (vocab.json and merges.txt) for BPE.
//
// Our JSON, one object: "format": "trireme-tokenizer", "version": 1, "kind": "char" | "byte" | "bpe"; for char also
// "characters": one string, the vocabulary in order; for bpe "tokens": the spelling of each id, "merges": "left right"
// by rank, and "end_of_text": its id or null. Spellings are GPT-2's (spell_bytes).
#include <algorithm>

#include "core/error.h"
#include "core/io.h"
#include "data/bpe_tokenizer.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/json.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;

/// The alphabet of spell_bytes: the character that stands for each byte.
const std::array<char32_t, 256>& byte_alphabet() {
  static const std::array<char32_t, 256> alphabet = [] {
    std::array<char32_t, 256> result{};
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      result[byte] = printable ? byte : next++;
    }
    return result;
  }();
  return alphabet;
}

json header(std::string_view kind) {
  return {{"format", std::string(tokenizer_format)}, {"version", kVersion}, {"kind", std::string(kind)}};
}

/// The member `key`, of JSON type `type`.
const json& member(const json& object, const char* key, json::value_t type, const fs::path& path) {
  const auto found = object.find(key);
  const bool right = found != object.end() && found->type() == type;
  if (!right)
    fail(ExitCode::data, "tokenizer",
         "{}: no \"{}\" of type {}; expected a tokenizer saved by prepare_data or a checkpoint", path.string(), key,
         json(type).type_name());
  return *found;
}

std::string bytes_of_spelling(const std::string& spelling, const std::string& where) {
  auto bytes = unspell_bytes(spelling);
  if (!bytes)
    fail(ExitCode::data, "tokenizer",
         "{}: the token {} has a character outside the byte alphabet; expected byte-level BPE", where,
         in_quotes(spelling));
  return std::move(*bytes);
}

// Larger than any published vocabulary, and small enough that a file of nothing else needs no more than 64 MiB.
constexpr std::size_t most_tokens = 1 << 18, most_merges = 1 << 19;

/// Turns spelled merges ("left right") into ids, and checks the whole.
class BpeBuilder {
 public:
  explicit BpeBuilder(std::string source) : source_(std::move(source)) {}

  /// The next id. `where` names the entry in messages.
  void add_token(std::string spelling, const std::string& where) {
    if (vocabulary_.tokens.size() == most_tokens)
      fail(ExitCode::data, "tokenizer", "{}: more than {} tokens; expected a smaller vocabulary", where, most_tokens);
    vocabulary_.tokens.push_back(bytes_of_spelling(spelling, where));
    ids_.emplace(std::move(spelling), static_cast<std::int32_t>(vocabulary_.tokens.size() - 1));
  }

  /// `where` names the entry in messages.
  void add_merge(std::string_view line, const std::string& where) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || line.find(' ', space + 1) != std::string_view::npos)
      fail(ExitCode::data, "tokenizer", "{}: expected two tokens with one space between them, got {}", where,
           in_quotes(line));
    if (vocabulary_.merges.size() == most_merges)
      fail(ExitCode::data, "tokenizer", "{}: more than {} merges; expected fewer", where, most_merges);
    vocabulary_.merges.emplace_back(id_of(line.substr(0, space), where), id_of(line.substr(space + 1), where));
  }

  void set_end_of_text(std::int32_t id) { vocabulary_.end_of_text = id; }
  std::optional<std::int32_t> find(std::string_view spelling) const {
    const auto found = ids_.find(std::string(spelling));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  std::int32_t size() const { return static_cast<std::int32_t>(vocabulary_.tokens.size()); }

  std::shared_ptr<const Tokenizer> build() {
    ids_ = {};  // freed, as it is as large as what is built now
    return std::make_shared<BpeTokenizer>(std::move(vocabulary_), source_);
  }

 private:
  std::int32_t id_of(std::string_view spelling, const std::string& where) const {
    const auto id = find(spelling);
    if (!id)
      fail(ExitCode::data, "tokenizer", "{}: {} is not in the vocabulary; expected a token", where,
           in_quotes(spelling));
    return *id;
  }

  std::string source_;
  BpeVocabulary vocabulary_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

std::shared_ptr<const Tokenizer> parse_char(const json& object, const fs::path& path) {
  const auto& text = member(object, "characters", json::value_t::string, path).get_ref<const std::string&>();
  std::vector<char32_t> characters;
  for (std::size_t at = 0; at < text.size();) {
    const auto character = decode_utf8(text, at);
    if (!character || (!characters.empty() && characters.back() >= character->value))
      fail(ExitCode::data, "tokenizer", "{}: \"characters\" byte {}: expected UTF-8 characters in increasing order",
           path.string(), at);
    characters.push_back(character->value);
    at += character->bytes;
  }
  if (characters.empty()) fail(ExitCode::data, "tokenizer", "{}: \"characters\" is empty", path.string());
  return std::make_shared<CharTokenizer>(std::move(characters));
}

/// Calls f(text, where) for each entry of the array `key` of the outermost object, and returns the other members. The
/// entries of both large arrays are taken from the parser one by one; kept as values they would need ten times the
/// memory.
template <class F>
json for_each_entry(std::string_view text, const fs::path& path, std::string_view key, const F& f) {
  return parse_json(text, path, [&](const JsonPlace& place, json& value) {
    if (place.depth == 1 || !place.in_array || (place.parent != "tokens" && place.parent != "merges")) return false;
    if (place.parent != key) return true;
    const std::string where = fmt::format("{} byte {}: \"{}\" entry {}", path.string(), place.at, key, place.index);
    if (!value.is_string()) fail(ExitCode::data, "tokenizer", "{}: expected a string, got {}", where, shown(value));
    f(value.get_ref<std::string&>(), where);
    return true;
  });
}

std::shared_ptr<const Tokenizer> parse_bpe(std::string_view text, const fs::path& path) {
  BpeBuilder builder(path.string());
  const json object = for_each_entry(text, path, "tokens", [&](std::string& spelling, const std::string& where) {
    builder.add_token(std::move(spelling), where);
  });
  member(object, "tokens", json::value_t::array, path);
  member(object, "merges", json::value_t::array, path);
  for_each_entry(text, path, "merges",
                 [&](const std::string& merge, const std::string& where) { builder.add_merge(merge, where); });
  const auto special = object.find("end_of_text");
  if (special != object.end() && !special->is_null()) {
    const auto id = member(object, "end_of_text", json::value_t::number_unsigned, path).get<std::uint64_t>();
    if (id >= static_cast<std::uint64_t>(builder.size()))
      fail(ExitCode::data, "tokenizer", "{}: \"end_of_text\" is {}; expected under {}", path.string(), id,
           builder.size());
    builder.set_end_of_text(static_cast<std::int32_t>(id));
  }
  return builder.build();
}

/// vocab.json: {"spelling": id, ...} with ids 0 to n-1 in any order. Returns the spellings by id.
std::vector<std::string> parse_vocab_json(std::string_view text, const fs::path& path) {
  std::vector<std::string> spellings;
  std::vector<bool> given;
  std::size_t most = 0, most_at = 0;  // the largest id
  const json object = parse_json(text, path, [&](const JsonPlace& place, const json& value) {
    if (place.depth > 1 || place.in_array) return false;
    const auto refuse = [&](const std::string& what) {
      fail(ExitCode::data, "tokenizer", "{} byte {}: token {} {}", path.string(), place.at, in_quotes(place.key), what);
    };
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= most_tokens)
      refuse(fmt::format("has id {}; expected a number under {}", shown(value), most_tokens));
    const auto id = value.get<std::size_t>();
    if (id >= given.size()) {
      spellings.resize(id + 1);
      given.resize(id + 1);
    }
    if (given[id]) refuse(fmt::format("has the id {} of {}; expected one of its own", id, in_quotes(spellings[id])));
    given[id] = true;
    spellings[id] = place.key;
    if (id >= most) {
      most = id;
      most_at = place.at;
    }
    return true;
  });
  if (!object.is_object())
    fail(ExitCode::data, "tokenizer", "{} byte 0: expected one object of token: id", path.string());
  const auto missing = std::find(given.begin(), given.end(), false);
  if (missing != given.end())
    fail(ExitCode::data, "tokenizer", "{} byte {}: token {} has id {}, but none has {}; expected ids without gaps",
         path.string(), most_at, in_quotes(spellings[most]), most, missing - given.begin());
  return spellings;
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_hugging_face(std::string_view vocab, const fs::path& vocab_path,
                                                    std::string_view merges, const fs::path& merges_path) {
  BpeBuilder builder(vocab_path.string());
  for (std::string& spelling : parse_vocab_json(vocab, vocab_path))
    builder.add_token(std::move(spelling), vocab_path.string());
  std::size_t number = 0;
  for (std::size_t at = 0, end = 0; at < merges.size(); at = end + 1) {
    end = std::min(merges.find('\n', at), merges.size());
    std::string_view line = merges.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    // The first line may name the version; "#" starts ordinary merges after that.
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    builder.add_merge(line, fmt::format("{} byte {}: line {}", merges_path.string(), at, number));
  }
  if (const auto id = builder.find(end_of_text_name)) builder.set_end_of_text(*id);
  return builder.build();
}

namespace {

/// The one file of the folder whose name ends in `ending`; nothing when there is none.
std::optional<fs::path> find_by_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  }
  if (error) fail(ExitCode::io, "tokenizer", "cannot read the folder {}: {}", folder.string(), error.message());
  std::sort(found.begin(), found.end());
  const auto exact = std::find(found.begin(), found.end(), folder / ending);
  if (exact != found.end()) return *exact;
  if (found.size() > 1)
    fail(ExitCode::usage, "tokenizer", "{} holds both {} and {}; expected one file ending in {}", folder.string(),
         found[0].filename().string(), found[1].filename().string(), ending);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) append_utf8(spelling, byte_alphabet()[static_cast<unsigned char>(c)]);
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> result;
    for (std::size_t byte = 0; byte < 256; ++byte) result.emplace(byte_alphabet()[byte], static_cast<char>(byte));
    return result;
  }();
  std::string text;
  for (std::size_t at = 0; at < spelling.size();) {
    const auto character = decode_utf8(spelling, at);
    const auto found = character ? bytes.find(character->value) : bytes.end();
    if (found == bytes.end()) return std::nullopt;
    text += found->second;
    at += character->bytes;
  }
  return text;
}

std::string ByteTokenizer::to_json() const { return header(name()).dump(1) + "\n"; }

std::string CharTokenizer::to_json() const {
  std::string characters;
  for (const char32_t value : characters_) append_utf8(characters, value);
  json object = header(name());
  object["characters"] = characters;
  return object.dump(1) + "\n";
}

std::string BpeTokenizer::to_json() const {
  json object = header(name());
  json tokens = json::array(), merges = json::array();
  for (const std::string& token : vocabulary_.tokens) tokens.push_back(spell_bytes(token));
  for (const auto& [left, right] : vocabulary_.merges)
    merges.push_back(spell_bytes(vocabulary_.tokens[static_cast<std::size_t>(left)]) + " " +
                     spell_bytes(vocabulary_.tokens[static_cast<std::size_t>(right)]));
  object["tokens"] = std::move(tokens);
  object["merges"] = std::move(merges);
  if (vocabulary_.end_of_text) object["end_of_text"] = *vocabulary_.end_of_text;
  return object.dump(1) + "\n";
}

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json_text, const fs::path& path) {
  const json object = for_each_entry(json_text, path, "", [](const std::string&, const std::string&) {});
  if (!object.is_object() || object.value("format", json()) != json(std::string(tokenizer_format)))
    fail(ExitCode::data, "tokenizer",
         "{} byte 0: not a tokenizer file; expected \"format\": \"{}\", as prepare_data saves it", path.string(),
         tokenizer_format);
  if (object.value("version", json()) != json(kVersion))
    fail(ExitCode::data, "tokenizer", "{}: version {}; this program reads version {}", path.string(),
         shown(object.value("version", json())), kVersion);
  const std::string kind = member(object, "kind", json::value_t::string, path).get<std::string>();
  if (kind == "byte") return std::make_shared<ByteTokenizer>();
  if (kind == "char") return parse_char(object, path);
  if (kind == "bpe") return parse_bpe(json_text, path);
  fail(ExitCode::data, "tokenizer", "{}: unknown kind {}; expected char, byte or bpe", path.string(), in_quotes(kind));
}

std::shared_ptr<const Tokenizer> load_bpe(const fs::path& path) {
  if (!fs::exists(path))
    fail(ExitCode::usage, "tokenizer",
         "{} does not exist; expected a tokenizer file or folder; change --tokenizer bpe:PATH", path.string());
  fs::path file = path;
  if (fs::is_directory(path)) {
    const auto vocab = find_by_ending(path, "vocab.json"), merges = find_by_ending(path, "merges.txt");
    if (vocab && merges) return parse_hugging_face(read_file(*vocab), *vocab, read_file(*merges), *merges);
    file = path / "tokenizer.json";
    if (!fs::exists(file))
      fail(ExitCode::usage, "tokenizer",
           "{} holds neither vocab.json and merges.txt nor tokenizer.json; change --tokenizer", path.string());
  }
  auto tokenizer = load_tokenizer(file);
  if (tokenizer->name() != "bpe")
    fail(ExitCode::usage, "tokenizer", "{} is a {} tokenizer; expected bpe; change --tokenizer", file.string(),
         tokenizer->name());
  return tokenizer;
}

}  // namespace trireme

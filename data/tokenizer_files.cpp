// Tokenizers in files: our own JSON for all kinds, and the older Hugging Face layout (vocab.json and merges.txt) for
// BPE. Hugging Face's tokenizer.json is read by data/hugging_face.cpp, tiktoken's files by data/tiktoken.cpp.
//
// Our JSON, one object: "format": "trireme-tokenizer", "version": 1, "kind": "char" | "byte" | "bpe"; for char also
// "characters": one string, the vocabulary in order; for bpe "tokens": the spelling of each id, "merges": "left right"
// by rank, and "end_of_text": its id or null. Spellings are GPT-2's (spell_bytes). The kinds "hugging-face" and
// "tiktoken" have "settings": what the file that they come from says beside its tokens; "tokens", spelled as there; and
// "merge_ids": left, right, left, right, ... by rank. The kind "sentencepiece" has "model": the bytes of its file,
// spelled like tokens; and "adds_begin" and "adds_end".
#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/io.h"
#include "data/bpe_builder.h"
#include "data/bpe_tokenizer.h"
#include "data/byte_alphabet.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/file_kind.h"
#include "data/hugging_face.h"
#include "data/json.h"
#include "data/sentencepiece.h"
#include "data/tiktoken.h"
#include "data/tokenizer_configuration.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;

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

/// An entry that must be a text.
std::string& text_of(json& entry, const std::string& where) {
  if (!entry.is_string()) fail(ExitCode::data, "tokenizer", "{}: expected a string, got {}", where, shown(entry));
  return entry.get_ref<std::string&>();
}

/// Calls f(entry, where) for each entry of the array `key` of the outermost object, and returns the other members. The
/// entries of the large arrays are taken from the parser one by one; kept as values they would need ten times the
/// memory.
template <class F>
json for_each_entry(std::string_view text, const fs::path& path, std::string_view key, const F& f) {
  return parse_json(text, path, [&](const JsonPlace& place, json& value) {
    const bool large = place.parent == "tokens" || place.parent == "merges" || place.parent == "merge_ids";
    if (place.depth == 1 || !place.in_array || !large) return false;
    if (place.parent == key)
      f(value, fmt::format("{} byte {}: \"{}\" entry {}", path.string(), place.at, key, place.index));
    return true;
  });
}

std::shared_ptr<const Tokenizer> parse_bpe(std::string_view text, const fs::path& path) {
  BpeBuilder builder(BpeBuilder::Spelling::bytes);
  const json object = for_each_entry(text, path, "tokens", [&](json& entry, const std::string& where) {
    builder.add_token(std::move(text_of(entry, where)), where);
  });
  member(object, "tokens", json::value_t::array, path);
  member(object, "merges", json::value_t::array, path);
  for_each_entry(text, path, "merges", [&](json& entry, const std::string& where) {
    builder.add_merge(std::string_view(text_of(entry, where)), where);
  });
  std::optional<std::int32_t> end_of_text;
  const auto special = object.find("end_of_text");
  if (special != object.end() && !special->is_null()) {
    const auto id = member(object, "end_of_text", json::value_t::number_unsigned, path).get<std::uint64_t>();
    if (id >= static_cast<std::uint64_t>(builder.size()))
      fail(ExitCode::data, "tokenizer", "{}: \"end_of_text\" is {}; expected under {}", path.string(), id,
           builder.size());
    end_of_text = static_cast<std::int32_t>(id);
  }
  return std::make_shared<BpeTokenizer>(BpeVocabulary{builder.take(), end_of_text}, path.string());
}

/// Reads "tokens" and "merge_ids" of a tokenizer that is made of steps.
std::shared_ptr<const Tokenizer> parse_pipeline(std::string_view text, const fs::path& path, const std::string& kind,
                                                const json& header) {
  const json& settings = member(header, "settings", json::value_t::object, path);
  const bool tiktoken = kind == tiktoken_kind;
  BpeBuilder builder(tiktoken                   ? BpeBuilder::Spelling::bytes
                     : has_byte_level(settings) ? BpeBuilder::Spelling::bytes_or_text
                                                : BpeBuilder::Spelling::text);
  for_each_entry(text, path, "tokens", [&](json& entry, const std::string& where) {
    std::string& spelling = text_of(entry, where);
    if (tiktoken && spelling.empty()) {
      builder.add_gap(where);
    } else {
      builder.add_token(std::move(spelling), where);
    }
  });
  member(header, "tokens", json::value_t::array, path);
  member(header, "merge_ids", json::value_t::array, path);
  if (tiktoken) return make_tiktoken(builder, settings, path);
  std::int64_t left = -1;
  for_each_entry(text, path, "merge_ids", [&](const json& entry, const std::string& where) {
    if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() >= bpe_most_tokens)
      fail(ExitCode::data, "tokenizer", "{}: {}; expected the id of a token", where, shown(entry));
    const auto id = entry.get<std::int64_t>();
    if (left >= 0) builder.add_merge(left, id, where);
    left = left >= 0 ? -1 : id;
  });
  if (left >= 0) fail(ExitCode::data, "tokenizer", "{}: \"merge_ids\": expected an even number of ids", path.string());
  PipelineSettings pipeline = hugging_face_settings(
      settings, path, [&](std::string_view spelling) { return builder.find(spelling); }, builder.size());
  pipeline.model.left_out = builder.left_out();
  return std::make_shared<PipelineTokenizer>(kind, settings.dump(), builder.take(), std::move(pipeline), path.string());
}

/// Refuses a list of merges that was cut short: tokens of several bytes are made by merges, but for those that stand for
/// something else than text, whose names have brackets. Up to one in a thousand may be names without them.
void require_merges(const BpeMerges& model, const fs::path& vocab_path, const fs::path& merges_path) {
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : model.merges)
    made.insert(model.tokens[static_cast<std::size_t>(left)] + model.tokens[static_cast<std::size_t>(right)]);
  std::size_t missing = 0;
  std::string_view last;
  for (const std::string& token : model.tokens) {
    const bool name =
        (token.starts_with('<') && token.ends_with('>')) || (token.starts_with('[') && token.ends_with(']'));
    if (token.size() < 2 || name || made.contains(token)) continue;
    ++missing;
    last = token;
  }
  if (missing > model.tokens.size() / 1000)
    fail(ExitCode::data, "tokenizer",
         "{} has {} merges, which make {} tokens of {} less than it has, such as {}; expected a merge for each; it was "
         "cut "
         "short, or belongs to another vocabulary: bring back the whole file",
         merges_path.string(), model.merges.size(), missing, vocab_path.string(), in_quotes(spell_bytes(last)));
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_hugging_face(std::string_view vocab, const fs::path& vocab_path,
                                                    std::string_view merges, const fs::path& merges_path) {
  BpeBuilder builder(BpeBuilder::Spelling::bytes);
  VocabReader reader;
  const json object = parse_json(vocab, vocab_path, [&](const JsonPlace& place, const json& value) {
    if (place.depth > 1 || place.in_array) return false;
    reader.take(place, value, vocab_path);
    return true;
  });
  if (!object.is_object())
    fail(ExitCode::data, "tokenizer", "{} byte 0: expected one object of token: id", vocab_path.string());
  for (std::string& spelling : reader.finish(vocab_path)) builder.add_token(std::move(spelling), vocab_path.string());
  std::size_t number = 0;
  merges = without_mark(merges);
  for (std::size_t at = 0, end = 0; at < merges.size(); at = end + 1) {
    end = std::min(merges.find('\n', at), merges.size());
    std::string_view line = merges.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    // The first line may name the version; "#" starts ordinary merges after that.
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    builder.add_merge(line, fmt::format("{} byte {}: line {}", merges_path.string(), at, number));
  }
  const auto end_of_text = builder.find(end_of_text_name);
  BpeMerges model = builder.take();
  require_merges(model, vocab_path, merges_path);
  return std::make_shared<BpeTokenizer>(BpeVocabulary{std::move(model), end_of_text}, vocab_path.string());
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
  for (const std::string& token : model_.tokens()) tokens.push_back(spell_bytes(token));
  for (const auto& [left, right] : model_.merges())
    merges.push_back(spell_bytes(model_.tokens()[static_cast<std::size_t>(left)]) + " " +
                     spell_bytes(model_.tokens()[static_cast<std::size_t>(right)]));
  object["tokens"] = std::move(tokens);
  object["merges"] = std::move(merges);
  if (end_of_text_) object["end_of_text"] = *end_of_text_;
  return object.dump(1) + "\n";
}

// Without the spaces and line ends of the others: a manifest holds this text, and the vocabularies of published models
// are large.
std::string PipelineTokenizer::to_json() const {
  std::string text =
      fmt::format("{{\"format\": \"{}\", \"version\": {}, \"kind\": \"{}\",\n\"settings\":{},\n\"tokens\":[",
                  tokenizer_format, kVersion, kind_, settings_json_);
  std::string storage;
  for (std::size_t id = 0; id < model_.tokens().size(); ++id) {
    if (id > 0) text += ',';
    text += json(spelling(static_cast<std::int32_t>(id), storage)).dump();
  }
  text += "],\n\"merge_ids\":[";
  for (std::size_t i = 0; i < model_.merges().size(); ++i) {
    const auto [left, right] = model_.merges()[i];
    text += fmt::format("{}{},{}", i == 0 ? "" : ",", left, right);
  }
  return text + "]}\n";
}

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json_text, const fs::path& path) {
  const json object = for_each_entry(json_text, path, "", [](const json&, const std::string&) {});
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
  if (kind == hugging_face_kind || kind == tiktoken_kind) return parse_pipeline(json_text, path, kind, object);
  if (kind == sentence_piece_kind) return parse_saved_sentence_piece(object, path);
  fail(ExitCode::data, "tokenizer", "{}: unknown kind {}; expected char, byte, bpe, {}, {} or {}", path.string(),
       in_quotes(kind), hugging_face_kind, tiktoken_kind, sentence_piece_kind);
}

namespace {

/// Hugging Face's files do not name our format, and ours have no "model".
bool is_hugging_face(std::string_view text) {
  return text.find(fmt::format("\"{}\"", tokenizer_format)) == std::string_view::npos &&
         text.find("\"model\"") != std::string_view::npos;
}

void require_exists(const fs::path& path, std::string_view flag) {
  if (!fs::exists(path))
    fail(ExitCode::usage, "tokenizer", "{} does not exist; expected a tokenizer file or folder; change --tokenizer {}",
         path.string(), flag);
}

}  // namespace

std::shared_ptr<const Tokenizer> load_bpe(const fs::path& path) {
  require_exists(path, "bpe:PATH");
  fs::path file = path;
  if (fs::is_directory(path)) {
    file = path / "tokenizer.json";
    if (!fs::exists(file)) {
      const auto vocab = find_by_ending(path, "vocab.json"), merges = find_by_ending(path, "merges.txt");
      if (vocab && merges) {
        auto tokenizer = parse_hugging_face(read_file(*vocab, read_limits::tokenizer), *vocab,
                                            read_file(*merges, read_limits::tokenizer), *merges);
        require_configured_tokens(*tokenizer, path);
        return tokenizer;
      }
      if (fs::exists(path / sentence_piece_name)) return load_sentence_piece(path);
      fail(ExitCode::usage, "tokenizer",
           "{} holds neither tokenizer.json, nor vocab.json and merges.txt, nor tokenizer.model; change --tokenizer",
           path.string());
    }
  }
  const std::string text = read_file(file, read_limits::tokenizer);
  auto tokenizer = is_hugging_face(text) ? parse_hugging_face_json(text, file) : parse_tokenizer(text, file);
  if (tokenizer->name() != "bpe")
    fail(ExitCode::usage, "tokenizer", "{} is a {} tokenizer; expected bpe; change --tokenizer", file.string(),
         tokenizer->name());
  if (fs::is_directory(path)) require_configured_tokens(*tokenizer, path);
  return tokenizer;
}

std::shared_ptr<const Tokenizer> load_tiktoken(std::string_view encoding, const fs::path& path) {
  require_exists(path, "tiktoken:NAME:PATH");
  return parse_tiktoken(read_file(path, read_limits::tokenizer), encoding, path, true);
}

}  // namespace trireme

// One function for each kind of step. A Field is a value of the file together with its name for messages, such as
// pre_tokenizer.pretokenizers[0].behavior.
#include "data/hugging_face.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "data/bpe_builder.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Field {
 public:
  Field(const json& value, std::string name, const fs::path& path)
      : value_(&value), name_(std::move(name)), path_(&path) {}

  const json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  std::string where() const { return path_->string() + ": " + name_; }
  [[noreturn]] void refuse(std::string_view expected) const {
    fail(ExitCode::data, "tokenizer", "{} is {}; expected {}", where(), shown(*value_), expected);
  }

  /// A member; null if it is not there.
  Field operator[](const char* key) const {
    static const json none;
    if (!value_->is_object()) refuse("an object");
    const auto found = value_->find(key);
    return {found == value_->end() ? none : *found, name_.empty() ? key : name_ + "." + key, *path_};
  }
  std::vector<Field> items() const {
    if (!value_->is_array()) refuse("an array");
    std::vector<Field> result;
    for (std::size_t i = 0; i < value_->size(); ++i)
      result.emplace_back((*value_)[i], fmt::format("{}[{}]", name_, i), *path_);
    return result;
  }
  const std::string& text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get_ref<const std::string&>();
  }
  bool flag(bool if_null) const {
    if (is_null()) return if_null;
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  std::uint64_t number() const {
    if (!value_->is_number_unsigned()) refuse("a whole number");
    return value_->get<std::uint64_t>();
  }
  /// "type" of a step.
  const std::string& type() const { return (*this)["type"].text(); }
  /// Throws if there is a member beside these.
  void has_only(const std::set<std::string_view>& keys) const {
    if (!value_->is_object()) refuse("an object");
    for (const auto& [key, value] : value_->items())
      if (!keys.contains(key))
        Field(value, name_.empty() ? key : name_ + "." + key, *path_).refuse("no such field; it is not supported");
  }

 private:
  const json* value_;
  std::string name_;
  const fs::path* path_;
};

/// "pattern" of Split and Replace: {"String": text} or {"Regex": expression}.
struct Pattern {
  std::string text = {};
  std::shared_ptr<const RegexPattern> regex = {};
  std::optional<WordPattern> words = {};
};

Pattern read_pattern(const Field& field, bool may_be_words) {
  field.has_only({"String", "Regex"});
  if (const Field text = field["String"]; !text.is_null()) {
    if (text.text().empty()) text.refuse("a text that is not empty");
    return {.text = text.text()};
  }
  const Field regex = field["Regex"];
  if (may_be_words)
    if (const auto words = known_pattern(regex.text())) return {.words = words};
  return {.regex = std::make_shared<const RegexPattern>(regex.text(), regex.where())};
}

void read_normalizer(const Field& field, int depth, std::vector<NormalizerStep>& steps) {
  if (field.is_null()) return;
  using Kind = NormalizerStep::Kind;
  const std::string& type = field.type();
  if (type == "Sequence" && depth < 8) {
    field.has_only({"type", "normalizers"});
    for (const Field& step : field["normalizers"].items()) read_normalizer(step, depth + 1, steps);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    field.has_only({"type"});
    steps.push_back({.form = type == "NFC"    ? NormalForm::nfc
                             : type == "NFD"  ? NormalForm::nfd
                             : type == "NFKC" ? NormalForm::nfkc
                                              : NormalForm::nfkd});
  } else if (type == "Lowercase") {
    field.has_only({"type"});
    steps.push_back({.kind = Kind::lower});
  } else if (type == "Prepend") {
    field.has_only({"type", "prepend"});
    steps.push_back({.kind = Kind::prepend, .to = field["prepend"].text()});
  } else if (type == "Replace") {
    field.has_only({"type", "pattern", "content"});
    Pattern pattern = read_pattern(field["pattern"], false);
    steps.push_back({.kind = Kind::replace,
                     .from = std::move(pattern.text),
                     .to = field["content"].text(),
                     .regex = std::move(pattern.regex)});
  } else {
    field["type"].refuse("NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace or Sequence");
  }
}

SplitBehavior read_behavior(const Field& field) {
  const std::string& name = field.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  field.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/// The text that stands for a space: one character.
std::string read_replacement(const Field& field) {
  const auto character = field.text().empty() ? std::nullopt : decode_utf8(field.text(), 0);
  if (!character || character->bytes != field.text().size()) field.refuse("one character");
  return field.text();
}

SplitStep::Prepend read_prepend(const Field& field) {
  using Prepend = SplitStep::Prepend;
  const Field scheme = field["prepend_scheme"], older = field["add_prefix_space"];
  if (scheme.is_null()) return older.flag(true) ? Prepend::always : Prepend::never;
  if (scheme.text() == "always") return Prepend::always;
  if (scheme.text() == "first") return Prepend::first;
  if (scheme.text() == "never") return Prepend::never;
  scheme.refuse("always, first or never");
}

const std::set<std::string_view> kMetaspaceFields = {"type",  "replacement",      "prepend_scheme",
                                                     "split", "add_prefix_space", "str_rep"};
const std::set<std::string_view> kByteLevelFields = {"type", "add_prefix_space", "trim_offsets", "use_regex"};

/// Sets `byte_level` at a ByteLevel step, behind which there may be none.
void read_pre_tokenizer(const Field& field, int depth, std::vector<SplitStep>& steps, bool& byte_level) {
  if (field.is_null()) return;
  using Kind = SplitStep::Kind;
  const std::string& type = field.type();
  if (byte_level) field.refuse("no step behind ByteLevel");
  if (type == "Sequence" && depth < 8) {
    field.has_only({"type", "pretokenizers"});
    for (const Field& step : field["pretokenizers"].items()) read_pre_tokenizer(step, depth + 1, steps, byte_level);
  } else if (type == "ByteLevel") {
    field.has_only(kByteLevelFields);
    if (field["add_prefix_space"].flag(false)) steps.push_back({.kind = Kind::add_space});
    if (field["use_regex"].flag(true)) steps.push_back({.kind = Kind::words, .pattern = WordPattern::gpt2});
    byte_level = true;
  } else if (type == "Split") {
    field.has_only({"type", "pattern", "behavior", "invert"});
    const SplitBehavior behavior = read_behavior(field["behavior"]);
    const bool invert = field["invert"].flag(false);
    // Every character of a text is in a match of a known pattern, and matches are the words.
    const bool are_words = (behavior == SplitBehavior::isolated) || (behavior == SplitBehavior::removed && invert);
    Pattern pattern = read_pattern(field["pattern"], are_words);
    if (pattern.words) {
      steps.push_back({.kind = Kind::words, .pattern = *pattern.words});
    } else {
      steps.push_back({.kind = Kind::regex,
                       .regex = std::move(pattern.regex),
                       .delimiter = std::move(pattern.text),
                       .behavior = behavior,
                       .invert = invert});
    }
  } else if (type == "Metaspace") {
    field.has_only(kMetaspaceFields);
    steps.push_back({.kind = Kind::metaspace,
                     .delimiter = read_replacement(field["replacement"]),
                     .prepend = read_prepend(field),
                     .cuts = field["split"].flag(true)});
  } else if (type == "Digits") {
    field.has_only({"type", "individual_digits"});
    steps.push_back({.kind = Kind::digits, .each_digit = field["individual_digits"].flag(false)});
  } else {
    field["type"].refuse("ByteLevel, Split, Metaspace, Digits or Sequence");
  }
}

/// The ids of a template's special token.
std::vector<std::int32_t> ids_of_special(const Field& special_tokens, const Field& id) {
  const Field token = special_tokens[id.text().c_str()];
  if (token.is_null()) id.refuse("one of \"special_tokens\"");
  std::vector<std::int32_t> ids;
  for (const Field& number : token["ids"].items()) {
    if (number.number() >= bpe_most_tokens) number.refuse("the id of a token");
    ids.push_back(static_cast<std::int32_t>(number.number()));
  }
  return ids;
}

void read_post_processor(const Field& field, int depth, PipelineSettings& settings) {
  if (field.is_null()) return;
  const std::string& type = field.type();
  if (type == "Sequence" && depth < 8) {
    field.has_only({"type", "processors"});
    for (const Field& step : field["processors"].items()) read_post_processor(step, depth + 1, settings);
  } else if (type == "ByteLevel") {
    field.has_only(kByteLevelFields);  // it changes offsets only
  } else if (type == "TemplateProcessing") {
    field.has_only({"type", "single", "pair", "special_tokens"});
    std::vector<std::int32_t> prefix, suffix;
    bool behind_text = false;
    for (const Field& part : field["single"].items()) {
      part.has_only({"SpecialToken", "Sequence"});
      const Field special = part["SpecialToken"], sequence = part["Sequence"];
      if (special.is_null()) {
        if (sequence["id"].text() != "A" || behind_text) part.refuse("the text, A, once");
        behind_text = true;
        continue;
      }
      const std::vector<std::int32_t> ids = ids_of_special(field["special_tokens"], special["id"]);
      std::vector<std::int32_t>& to = behind_text ? suffix : prefix;
      to.insert(to.end(), ids.begin(), ids.end());
    }
    if (!behind_text) field["single"].refuse("a template with the text, A");
    settings.prefix.insert(settings.prefix.begin(), prefix.begin(), prefix.end());
    settings.suffix.insert(settings.suffix.end(), suffix.begin(), suffix.end());
  } else {
    field["type"].refuse("TemplateProcessing, ByteLevel or Sequence");
  }
}

/// `fused`: whether all tokens are one text by now.
void read_decoder(const Field& field, int depth, TokenDecoder& decoder, bool& fused) {
  const std::string& type = field.type();
  const bool is_first = !decoder.byte_level && decoder.metaspace.empty() && !fused;
  if (type == "Sequence" && depth < 8) {
    field.has_only({"type", "decoders"});
    for (const Field& step : field["decoders"].items()) read_decoder(step, depth + 1, decoder, fused);
  } else if (type == "ByteLevel" && is_first && decoder.replace.empty() && !decoder.byte_fallback) {
    field.has_only(kByteLevelFields);
    decoder.byte_level = fused = true;
  } else if (type == "Metaspace" && is_first && !decoder.byte_fallback) {
    field.has_only(kMetaspaceFields);
    decoder.metaspace = read_replacement(field["replacement"]);
    decoder.metaspace_begins = read_prepend(field) != SplitStep::Prepend::never;
  } else if (type == "Replace" && is_first && !decoder.byte_fallback) {
    field.has_only({"type", "pattern", "content"});
    Pattern pattern = read_pattern(field["pattern"], false);
    if (pattern.regex) field["pattern"].refuse("a String");
    decoder.replace.emplace_back(std::move(pattern.text), field["content"].text());
  } else if (type == "ByteFallback" && !fused && !decoder.byte_level) {
    field.has_only({"type"});
    decoder.byte_fallback = true;
  } else if (type == "Fuse") {
    field.has_only({"type"});
    fused = true;
  } else if (type == "Strip" && fused && !decoder.byte_level && decoder.strip_count == 0) {
    field.has_only({"type", "content", "start", "stop"});
    decoder.strip = read_replacement(field["content"]);
    if (field["start"].number() > 64) field["start"].refuse("at most 64");
    if (field["stop"].number() != 0) field["stop"].refuse("0");
    decoder.strip_count = field["start"].number();
  } else {
    field.refuse("ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse and Strip, in this order");
  }
}

std::vector<AddedToken> read_added_tokens(const Field& field,
                                          const std::function<std::optional<std::int32_t>(std::string_view)>& find,
                                          std::int32_t tokens) {
  std::vector<AddedToken> added;
  if (field.is_null()) return added;
  std::set<std::string> contents;
  std::int32_t next = tokens;
  for (const Field& entry : field.items()) {
    entry.has_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const Field id = entry["id"];
    const std::string& content = entry["content"].text();
    if (content.empty()) entry["content"].refuse("a text that is not empty");
    if (!contents.insert(content).second) entry["content"].refuse("another text than that of an earlier token");
    const bool special = entry["special"].flag(false);
    const auto known = find(content);
    // The library itself gives these ids, whatever the file says.
    if (id.number() != static_cast<std::uint64_t>(known.value_or(next)))
      id.refuse(fmt::format("{}, the {}", known.value_or(next), known ? "id in the vocabulary" : "next id"));
    if (!known) ++next;
    if (next > static_cast<std::int32_t>(bpe_most_tokens)) id.refuse("a smaller vocabulary");
    added.push_back({.id = static_cast<std::int32_t>(id.number()),
                     .content = content,
                     .special = special,
                     .lstrip = entry["lstrip"].flag(false),
                     .rstrip = entry["rstrip"].flag(false),
                     .single_word = entry["single_word"].flag(false),
                     .normalized = entry["normalized"].flag(!special)});
  }
  return added;
}

void read_model(const Field& field, BpeOptions& options, bool byte_level,
                const std::function<std::optional<std::int32_t>(std::string_view)>& find) {
  field.has_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                  "byte_fallback", "ignore_merges", "rank_by_token", "vocab", "merges"});
  if (const Field type = field["type"]; !type.is_null() && type.text() != "BPE") type.refuse("BPE");
  if (const Field dropout = field["dropout"]; !dropout.is_null() && dropout.value() != json(0.0))
    dropout.refuse("null: text has always the same ids");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Field affix = field[key]; !affix.is_null() && !affix.text().empty()) affix.refuse("null");
  options.by_bytes = byte_level;
  options.whole_words = field["ignore_merges"].flag(false);
  options.fuse_unknown = field["fuse_unk"].flag(false);
  options.rank_by_token = field["rank_by_token"].flag(false);
  const bool falls_back = field["byte_fallback"].flag(false);
  if (byte_level) return;  // every byte is a token, so no character is unknown
  if (const Field unknown = field["unk_token"]; !unknown.is_null()) {
    options.unknown = find(unknown.text());
    if (!options.unknown) unknown.refuse("a token of the vocabulary");
  }
  if (!falls_back) return;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = fmt::format("<0x{:02X}>", byte);
    const auto id = find(name);
    if (!id) field["byte_fallback"].refuse(fmt::format("false, as {} is not in the vocabulary", name));
    options.byte_tokens.push_back(*id);
  }
}

bool any_byte_level(const json& value, int depth) {
  if (!value.is_object() || depth > 8) return false;
  const auto type = value.find("type");
  if (type != value.end() && *type == json("ByteLevel")) return true;
  const auto steps = value.find("pretokenizers");
  if (steps == value.end() || !steps->is_array()) return false;
  return std::any_of(steps->begin(), steps->end(), [&](const json& step) { return any_byte_level(step, depth + 1); });
}

}  // namespace

bool has_byte_level(const json& object) {
  const auto found = object.find("pre_tokenizer");
  return found != object.end() && any_byte_level(*found, 0);
}

PipelineSettings hugging_face_settings(const json& object, const fs::path& path,
                                       const std::function<std::optional<std::int32_t>(std::string_view)>& find,
                                       std::int32_t tokens) {
  const Field root(object, "", path);
  root.has_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                 "decoder", "model"});
  for (const char* key : {"truncation", "padding"})
    if (!root[key].is_null()) root[key].refuse("null");
  PipelineSettings settings;
  bool byte_level = false, fused = false;
  settings.added = read_added_tokens(root["added_tokens"], find, tokens);
  read_normalizer(root["normalizer"], 0, settings.normalizers);
  read_pre_tokenizer(root["pre_tokenizer"], 0, settings.splits, byte_level);
  read_post_processor(root["post_processor"], 0, settings);
  read_decoder(root["decoder"], 0, settings.decoder, fused);
  if (settings.decoder.byte_level != byte_level)
    root["decoder"].refuse(byte_level ? "ByteLevel, as the pre-tokenizer has it"
                                      : "another one than ByteLevel, as the pre-tokenizer has no such step");
  read_model(root["model"], settings.model, byte_level, find);
  return settings;
}

std::shared_ptr<const Tokenizer> parse_hugging_face_json(std::string_view text, const fs::path& path) {
  // Both large parts are taken from the parser entry by entry; kept as values they would need ten times the memory.
  const auto is_entry = [](const JsonPlace& place) {
    return place.depth == 3 && place.grandparent == "model" && (place.parent == "vocab" || place.parent == "merges");
  };
  VocabReader vocab;
  json object = parse_json(
      text, path,
      [&](const JsonPlace& place, const json& value) {
        if (!is_entry(place) || place.in_array != (place.parent == "merges")) return false;
        if (place.parent == "vocab") vocab.take(place, value, path);
        return true;
      },
      0, 3);
  const Field model = Field(object, "", path)["model"];
  if (!model["vocab"].value().is_object()) model["vocab"].refuse("an object of token: id");
  if (!model["merges"].value().is_array()) model["merges"].refuse("an array");
  if (!model["vocab"].value().empty() || !model["merges"].value().empty())
    fail(ExitCode::data, "tokenizer", "{}: model.vocab and model.merges are not what they should be", path.string());
  BpeBuilder builder(has_byte_level(object) ? BpeBuilder::Spelling::bytes_or_text : BpeBuilder::Spelling::text);
  for (std::string& spelling : vocab.finish(path)) builder.add_token(std::move(spelling), path.string());
  parse_json(
      text, path,
      [&](const JsonPlace& place, const json& value) {
        if (!is_entry(place)) return false;
        if (place.parent == "vocab") return true;
        const std::string where = fmt::format("{} byte {}: model.merges[{}]", path.string(), place.at, place.index);
        const bool pair = value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
        if (!pair && !value.is_string())
          fail(ExitCode::data, "tokenizer", "{} is {}; expected two tokens", where, shown(value));
        if (pair) {
          builder.add_merge(value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>(), where);
        } else {
          builder.add_merge(std::string_view(value.get_ref<const std::string&>()), where);
        }
        return true;
      },
      0, 3);
  PipelineSettings settings = hugging_face_settings(
      object, path, [&](std::string_view spelling) { return builder.find(spelling); }, builder.size());
  settings.model.left_out = builder.left_out();
  object["model"].erase("vocab");
  object["model"].erase("merges");
  for (const char* key : {"version", "truncation", "padding"}) object.erase(key);
  return std::make_shared<PipelineTokenizer>(std::string(hugging_face_kind), object.dump(), builder.take(),
                                             std::move(settings), path.string());
}

}  // namespace trireme

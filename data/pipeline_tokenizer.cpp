#include "data/pipeline_tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/metaspace_words.h"
#include "data/utf8.h"

namespace trireme {

namespace {

/// Names that published vocabularies give to what ends a document; the first one that exists is it.
constexpr std::array<std::string_view, 6> kEndNames = {end_of_text_name, "<|end_of_text|>", "</s>",
                                                       "<eos>",          "<|eos|>",         "<｜end▁of▁sentence｜>"};

bool is_newline(unsigned char byte) { return byte == '\n'; }
bool is_ascii_letter(unsigned char byte) { return (byte | 0x20U) >= 'a' && (byte | 0x20U) <= 'z'; }

/// The byte that "<0x41>" names; -1: none.
int byte_named(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

template <class Steps, class Keep>
Steps filtered(const Steps& steps, const Keep& keep) {
  Steps result;
  for (const auto& step : steps)
    if (keep(step)) result.push_back(step);
  return result;
}

}  // namespace

AddedTokenFinder PipelineTokenizer::finder_of(const PipelineSettings& settings, bool normalized) {
  std::vector<AddedToken> tokens =
      filtered(settings.added, [&](const AddedToken& token) { return token.normalized == normalized; });
  std::vector<std::string> patterns;
  for (const AddedToken& token : tokens) {
    std::string storage;
    patterns.emplace_back(normalized ? trireme::normalized(settings.normalizers, token.content, storage)
                                     : std::string_view(token.content));
  }
  return {std::move(tokens), patterns};
}

PipelineTokenizer::PipelineTokenizer(std::string kind, std::string settings_json, BpeMerges merges,
                                     PipelineSettings settings, const std::string& source)
    : kind_(std::move(kind)),
      settings_json_(std::move(settings_json)),
      settings_(std::move(settings)),
      model_(std::move(merges), settings_.model, source),
      raw_finder_(finder_of(settings_, false)),
      normalized_finder_(finder_of(settings_, true)) {
  check_added(source);
  continuing_normalizers_ = filtered(
      settings_.normalizers, [](const NormalizerStep& step) { return step.kind != NormalizerStep::Kind::prepend; });
  continuing_splits_ =
      filtered(settings_.splits, [](const SplitStep& step) { return step.kind != SplitStep::Kind::add_space; });
  for (SplitStep& step : continuing_splits_) step.prepend = SplitStep::Prepend::never;
  for (const std::string_view name : kEndNames)
    if (!end_of_text_) end_of_text_ = find(name);
  separates_metaspaces_ = separates_metaspaces(model_);
  may_cut_ = find_may_cut();
}

void PipelineTokenizer::check_added(const std::string& source) {
  vocab_size_ = static_cast<std::int32_t>(model_.tokens().size());
  for (std::size_t i = 0; i < settings_.added.size(); ++i) {
    const AddedToken& token = settings_.added[i];
    const bool in_model = token.id < static_cast<std::int32_t>(model_.tokens().size()) &&
                          !model_.tokens()[static_cast<std::size_t>(token.id)].empty();
    if (!in_model && !added_only_.emplace(token.id, i).second)
      fail(ExitCode::data, "tokenizer", "{}: the added token {} has the id {} of another one; expected its own", source,
           in_quotes(token.content), token.id);
    vocab_size_ = std::max(vocab_size_, token.id + 1);
  }
  if (vocab_size_ == 0) fail(ExitCode::data, "tokenizer", "{}: no token; expected a vocabulary", source);
  const auto check = [&](std::int32_t id) {
    if (id < 0 || id >= vocab_size_)
      fail(ExitCode::data, "tokenizer", "{}: the template adds id {}; expected 0 to {}", source, id, vocab_size_ - 1);
  };
  for (const std::int32_t id : settings_.prefix) check(id);
  for (const std::int32_t id : settings_.suffix) check(id);
}

/// Whether a text may be cut between a line end and a letter, if there is no space before the line end.
bool PipelineTokenizer::find_may_cut() const {
  for (const AddedToken& token : settings_.added) {
    if (token.content.find('\n') != std::string::npos) return false;
    if (token.lstrip && is_ascii_letter(static_cast<unsigned char>(token.content.front()))) return false;
  }
  for (const NormalizerStep& step : settings_.normalizers) {
    // A step that replaces more than spaces could change what stands beside the cut.
    const bool replaces = step.kind == NormalizerStep::Kind::replace;
    if ((replaces && step.from != " ") || step.to.find('\n') != std::string::npos) return false;
  }
  bool cuts_there = false;
  for (std::size_t i = 0; i < settings_.splits.size(); ++i) {
    const SplitStep& step = settings_.splits[i];
    if (step.regex || step.delimiter.find('\n') != std::string::npos) return false;
    const bool puts_in_front = step.kind == SplitStep::Kind::add_space || step.prepend == SplitStep::Prepend::always;
    if (puts_in_front && i > 0) return false;
    cuts_there = cuts_there || step.kind == SplitStep::Kind::words;
  }
  return cuts_there || model_.never_joins(is_newline, is_ascii_letter);
}

std::optional<std::size_t> PipelineTokenizer::safe_cut(std::string_view text, std::size_t at) const {
  if (!may_cut_) return std::nullopt;
  return cut_between_lines(text, at);
}

std::optional<std::int32_t> PipelineTokenizer::find(std::string_view spelling) const {
  for (const AddedToken& token : settings_.added)
    if (token.content == spelling) return token.id;
  const auto text = model_.options().by_bytes ? unspell_bytes(spelling) : std::string(spelling);
  const std::int32_t id = text ? model_.find(*text) : -1;
  return id < 0 ? std::nullopt : std::optional(id);
}

void PipelineTokenizer::append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
  encode_all(text, true, false, ids);
}

void PipelineTokenizer::append_part(std::string_view text, std::size_t begin, std::size_t end,
                                    std::vector<std::int32_t>& ids) const {
  encode_all(text.substr(begin, end - begin), begin == 0, false, ids);
}

std::vector<std::int32_t> PipelineTokenizer::encode_without_template(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encode_all(text, true, true, ids);
  return ids;
}

std::vector<std::int32_t> PipelineTokenizer::encode_with_special(std::string_view text) const {
  std::vector<std::int32_t> ids = settings_.prefix;
  encode_all(text, true, true, ids);
  ids.insert(ids.end(), settings_.suffix.begin(), settings_.suffix.end());
  return ids;
}

void PipelineTokenizer::encode_all(std::string_view text, bool begins, bool specials,
                                   std::vector<std::int32_t>& ids) const {
  const WordCaches::Lease lease(model_.caches());
  const Target target{lease.cache(), ids};
  raw_finder_.split(
      text, specials,
      [&](std::size_t begin, std::size_t end) {
        const bool first = begin == 0;
        encode_segment(text.substr(begin, end - begin), first && begins, first && !begins, specials, target);
      },
      [&](std::int32_t id) { ids.push_back(id); });
}

/// `continues`: the text before this one belongs to the same segment.
void PipelineTokenizer::encode_segment(std::string_view text, bool begins, bool continues, bool specials,
                                       const Target& target) const {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    encode_valid(text.substr(0, valid), begins, continues, specials, target);
    text.remove_prefix(valid);
    if (text.empty()) return;
    model_.append_broken_byte(static_cast<unsigned char>(text.front()), target.ids);
    text.remove_prefix(1);
    begins = false;
    continues = true;
  }
}

void PipelineTokenizer::encode_valid(std::string_view text, bool begins, bool continues, bool specials,
                                     const Target& target) const {
  std::string storage;
  text = normalized(continues ? continuing_normalizers_ : settings_.normalizers, text, storage);
  if (normalized_finder_.empty()) return encode_normalized(text, begins, continues, target);
  normalized_finder_.split(
      text, specials,
      [&](std::size_t begin, std::size_t end) {
        const bool first = begin == 0;
        encode_normalized(text.substr(begin, end - begin), first && begins, first && continues, target);
      },
      [&](std::int32_t id) { target.ids.push_back(id); });
}

void PipelineTokenizer::encode_normalized(std::string_view text, bool begins, bool continues,
                                          const Target& target) const {
  const auto append = [&](std::string_view word) { model_.append_word(word, target.cache, target.ids); };
  const auto& splits = continues ? continuing_splits_ : settings_.splits;
  if (!separates_metaspaces_) return for_each_piece(splits, 0, {text, begins}, append);
  for_each_piece(splits, 0, {text, begins}, [&](std::string_view piece) { for_each_metaspace_word(piece, append); });
}

void PipelineTokenizer::append_bytes(std::int32_t id, std::string& text) const {
  const TokenDecoder& decoder = settings_.decoder;
  const auto added = added_only_.find(id);
  const bool is_added = added != added_only_.end();
  const auto index = static_cast<std::size_t>(id);
  if (!is_added && index >= model_.tokens().size()) return;  // an id that no token has
  const std::string& token = is_added ? settings_.added[added->second].content : model_.tokens()[index];
  if (decoder.byte_level) {  // tokens of the model are bytes already, and added ones are text
    text += token;
    return;
  }
  std::string shown = token;
  for (const auto& [from, to] : decoder.replace) shown = replaced(shown, from, to);
  if (const int byte = decoder.byte_fallback ? byte_named(shown) : -1; byte >= 0) shown = static_cast<char>(byte);
  if (!decoder.metaspace.empty()) shown = replaced(shown, decoder.metaspace, " ");
  text += shown;
}

void PipelineTokenizer::append_text(std::span<const std::int32_t> ids, std::string& text) const {
  const TokenDecoder& decoder = settings_.decoder;
  std::string decoded;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    append_bytes(ids[i], decoded);
    if (i == 0 && decoder.metaspace_begins) {
      std::string storage;
      decoded = replaced(spelling(ids[i], storage), decoder.metaspace, "");
    }
  }
  std::string_view rest = decoded;
  for (std::size_t i = 0; i < decoder.strip_count && rest.starts_with(decoder.strip); ++i)
    rest.remove_prefix(decoder.strip.size());
  text += rest;
}

std::string_view PipelineTokenizer::spelling(std::int32_t id, std::string& storage) const {
  if (const auto added = added_only_.find(id); added != added_only_.end())
    return settings_.added[added->second].content;
  const auto index = static_cast<std::size_t>(id);
  if (index >= model_.tokens().size()) return {};
  const BpeOptions& options = model_.options();
  if (!options.by_bytes || (index < options.left_out.size() && options.left_out[index])) return model_.tokens()[index];
  storage = spell_bytes(model_.tokens()[index]);
  return storage;
}

}  // namespace trireme

// A tokenizer as keys of a GGUF file.
#include <algorithm>
#include <set>

#include "data/bpe_tokenizer.h"
#include "data/byte_tokenizer.h"
#include "data/gguf/tokenizer.h"
#include "data/gguf/tokens.h"
#include "data/hugging_face.h"
#include "data/utf8.h"

namespace trireme {
namespace gguf_tokens {
namespace {

[[noreturn]] void cannot_write(const std::string& what) {
  fail(ExitCode::usage, "gguf",
       "the tokenizer {}; llama.cpp has byte-level BPE with the words of GPT-2, Llama 3, Qwen2 or GPT-4o, and BPE of "
       "characters with byte fallback; train with one of these, or write the model without a tokenizer",
       what);
}

/// The keys while they are made.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
};

std::string padding_name(std::size_t id) { return fmt::format("[PAD{}]", id); }

void pad(Vocabulary& v, std::int64_t rows) {
  for (auto id = v.tokens.size(); id < static_cast<std::size_t>(rows); ++id) {
    v.tokens.push_back(padding_name(id));
    v.types.push_back(unused);
  }
}

void mark_added(Vocabulary& v, const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    v.tokens.resize(std::max(v.tokens.size(), id + 1));
    v.types.resize(std::max(v.types.size(), id + 1), normal);
    v.tokens[id] = token.content;
    v.types[id] = token.special ? control : user_defined;
  }
}

void add_common(GgufValues& values, const char* model, const Vocabulary& v) {
  values.add("tokenizer.ggml.model", model);
  values.add("tokenizer.ggml.tokens", std::span(v.tokens));
  values.add("tokenizer.ggml.token_type", std::span(v.types));
}

/// Whether each byte is a token, as in the tokenizer.json of --tokenizer byte. How words are cut makes no difference.
bool has_bytes_only(const PipelineTokenizer& tokenizer) {
  return tokenizer.settings().decoder.byte_level && tokenizer.settings().splits.empty() &&
         tokenizer.model().merges().empty();
}

const NamedPattern& pattern_of(const PipelineTokenizer& tokenizer) {
  if (has_bytes_only(tokenizer)) return named_patterns.front();
  std::optional<WordPattern> words;
  for (const SplitStep& step : tokenizer.settings().splits) {
    if (step.kind != SplitStep::Kind::words || words)
      cannot_write("cuts text by other steps than one pattern of words");
    words = step.pattern;
  }
  for (const NamedPattern& named : named_patterns)
    if (words == named.pattern) return named;
  cannot_write("cuts text by a pattern that llama.cpp has no name for");
}

void add_merges(GgufValues& values, const BpeMerges* data, const std::function<std::string(std::int32_t)>& spelling) {
  std::vector<std::string> merges;
  if (data != nullptr)
    for (const auto& [left, right] : data->merges) merges.push_back(spelling(left) + " " + spelling(right));
  values.add("tokenizer.ggml.merges", std::span(merges));
}

/// Bytes, or what prepare_data learnt.
void add_own(GgufValues& values, const Tokenizer& tokenizer, const BpeMerges* data, std::int64_t rows) {
  Vocabulary v;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    v.tokens.push_back(spell_bytes(tokenizer.decode({&id, 1})));
    v.types.push_back(normal);
  }
  if (const auto end = tokenizer.end_of_text()) {
    v.tokens[static_cast<std::size_t>(*end)] = end_of_text_name;
    v.types[static_cast<std::size_t>(*end)] = control;
  }
  const auto spelling = [tokens = v.tokens](std::int32_t id) { return tokens[static_cast<std::size_t>(id)]; };
  pad(v, rows);
  add_common(values, "gpt2", v);
  values.add("tokenizer.ggml.pre", "gpt-2");
  add_merges(values, data, spelling);
  values.add("tokenizer.ggml.add_bos_token", false);
}

Vocabulary vocabulary_of(const PipelineTokenizer& tokenizer) {
  Vocabulary v;
  std::string storage;
  for (std::size_t id = 0; id < tokenizer.model().tokens().size(); ++id) {
    v.tokens.emplace_back(tokenizer.spelling(static_cast<std::int32_t>(id), storage));
    v.types.push_back(v.tokens.back().empty() ? unused : normal);
    if (v.tokens.back().empty()) v.tokens.back() = padding_name(id);
  }
  return v;
}

void add_byte_level(GgufValues& values, const PipelineTokenizer& tokenizer, std::int64_t rows) {
  const NamedPattern& pattern = pattern_of(tokenizer);
  if (tokenizer.model().options().whole_words != pattern.ignores_merges && tokenizer.model().options().whole_words)
    cannot_write("keeps words that are tokens whole (ignore_merges), with another pattern than Llama 3's");
  for (const NormalizerStep& step : tokenizer.settings().normalizers)
    if (step.kind != NormalizerStep::Kind::form || step.form != NormalForm::nfc)
      cannot_write("changes text by another step than NFC");
  Vocabulary v = vocabulary_of(tokenizer);
  mark_added(v, tokenizer.settings().added);
  std::string storage;
  const auto spelling = [&](std::int32_t id) { return std::string(tokenizer.spelling(id, storage)); };
  pad(v, rows);
  add_common(values, "gpt2", v);
  values.add("tokenizer.ggml.pre", pattern.name);
  add_merges(values, &tokenizer.model().data(), spelling);
}

/// Whether a text gets a space in front, of a tokenizer of characters with byte fallback.
bool puts_space_in_front(const PipelineTokenizer& tokenizer) {
  bool replaces = false, prepends = false;
  for (const NormalizerStep& step : tokenizer.settings().normalizers) {
    if (step.kind == NormalizerStep::Kind::prepend && step.to == space_mark) {
      prepends = true;
    } else if (step.kind == NormalizerStep::Kind::replace && !step.regex && step.from == " " && step.to == space_mark) {
      replaces = true;
    } else {
      cannot_write("changes text by other steps than U+2581 for spaces");
    }
  }
  for (const SplitStep& step : tokenizer.settings().splits) {
    const bool no_effect = step.kind == SplitStep::Kind::regex && !step.regex && step.delimiter == " " && replaces;
    const bool metaspace = step.kind == SplitStep::Kind::metaspace && step.delimiter == space_mark && !step.cuts;
    if (!no_effect && !metaspace) cannot_write("cuts text into words before its merges");
    if (metaspace) replaces = true, prepends = prepends || step.prepend != SplitStep::Prepend::never;
  }
  if (!replaces) cannot_write("keeps spaces as they are");
  return prepends;
}

/// llama.cpp joins any two tokens that make a token, whatever the merges say.
void require_every_pair(const PipelineTokenizer& tokenizer, const Vocabulary& v, const std::vector<float>& scores) {
  std::set<std::pair<std::int32_t, std::int32_t>> known(tokenizer.model().merges().begin(),
                                                        tokenizer.model().merges().end());
  for (const ScoredMerge& merge : merges_of_scores(v.tokens, v.types, scores, "the tokenizer"))
    if (!known.contains({merge.left, merge.right}))
      cannot_write(fmt::format("has no merge of {} and {}, although they make a token",
                               in_quotes(v.tokens[static_cast<std::size_t>(merge.left)]),
                               in_quotes(v.tokens[static_cast<std::size_t>(merge.right)])));
}

void add_characters(GgufValues& values, const PipelineTokenizer& tokenizer, std::int64_t rows) {
  const BpeOptions& options = tokenizer.model().options();
  if (options.byte_tokens.empty() || options.whole_words) cannot_write("has no byte fallback");
  const bool space_in_front = puts_space_in_front(tokenizer);
  Vocabulary v = vocabulary_of(tokenizer);
  mark_added(v, tokenizer.settings().added);
  for (const std::int32_t id : options.byte_tokens) v.types[static_cast<std::size_t>(id)] = byte;
  if (options.unknown) v.types[static_cast<std::size_t>(*options.unknown)] = unknown;
  const auto& merges = tokenizer.model().merges();
  std::vector<float> scores(v.tokens.size(), -static_cast<float>(merges.size()) - 1);
  for (std::size_t rank = merges.size(); rank-- > 0;) {
    const auto [left, right] = merges[rank];
    const std::int32_t made = tokenizer.model().find(tokenizer.model().tokens()[static_cast<std::size_t>(left)] +
                                                     tokenizer.model().tokens()[static_cast<std::size_t>(right)]);
    scores[static_cast<std::size_t>(made)] = -static_cast<float>(rank);
  }
  for (std::size_t id = 0; id < v.types.size(); ++id)
    if (v.types[id] != normal) scores[id] = 0;
  require_every_pair(tokenizer, v, scores);
  pad(v, rows);
  scores.resize(v.tokens.size(), 0);
  add_common(values, "llama", v);
  values.add("tokenizer.ggml.pre", "default");
  values.add("tokenizer.ggml.scores", std::span<const float>(scores));
  values.add("tokenizer.ggml.add_space_prefix", space_in_front);
  if (options.unknown) values.add("tokenizer.ggml.unknown_token_id", static_cast<std::uint32_t>(*options.unknown));
}

/// `end` ends a text. Of the others, the one that the template writes comes first: it ends a turn.
void add_ends(GgufValues& values, const Tokenizer& tokenizer, std::int32_t end, const GgufTokenizerChoices& choices) {
  std::vector<std::int32_t> ends = choices.end_tokens;
  std::erase(ends, end);
  std::stable_partition(ends.begin(), ends.end(), [&](std::int32_t id) {
    return choices.chat_template.find(tokenizer.decode(std::vector{id})) != std::string::npos;
  });
  ends.insert(ends.begin(), end);
  if (ends.size() > std::size(end_token_keys))
    cannot_write(fmt::format("has {} tokens that end a text, and a GGUF file names at most three", ends.size()));
  for (std::size_t i = 0; i < ends.size(); ++i) values.add(end_token_keys[i], static_cast<std::uint32_t>(ends[i]));
}

}  // namespace
}  // namespace gguf_tokens

void add_gguf_tokenizer(GgufValues& values, const Tokenizer& tokenizer, const GgufTokenizerChoices& choices) {
  using namespace gguf_tokens;
  std::optional<std::int32_t> end =
      choices.end_tokens.empty() ? tokenizer.end_of_text() : std::optional(choices.end_tokens.front());
  std::optional<std::int32_t> begin = special_id(tokenizer, choices.special_tokens, "bos_token");
  if (const auto* pipeline = dynamic_cast<const PipelineTokenizer*>(&tokenizer)) {
    const PipelineSettings& settings = pipeline->settings();
    if (pipeline->kind() != hugging_face_kind) cannot_write("is a file of ranks, without merges");
    if (settings.prefix.size() > 1 || settings.suffix.size() > 1)
      cannot_write("puts several tokens in front of a text, or behind it");
    if (settings.decoder.byte_level)
      add_byte_level(values, *pipeline, choices.rows);
    else
      add_characters(values, *pipeline, choices.rows);
    values.add("tokenizer.ggml.add_bos_token", !settings.prefix.empty());
    values.add("tokenizer.ggml.add_eos_token", !settings.suffix.empty());
    if (!settings.prefix.empty()) begin = settings.prefix.front();
    if (!settings.suffix.empty()) end = settings.suffix.front();
    if (!end && has_bytes_only(*pipeline)) end = pipeline->find(spell_bytes(std::string_view("\0", 1)));
  } else if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer)) {
    add_own(values, tokenizer, &bpe->vocabulary(), choices.rows);
  } else if (dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr) {
    add_own(values, tokenizer, nullptr, choices.rows);
    if (!end) end = 0;
  } else {
    cannot_write(fmt::format("is of the kind {}", tokenizer.name()));
  }
  if (!end) cannot_write("has no token that ends a text, and llama.cpp would take another one for it");
  add_ends(values, tokenizer, *end, choices);
  if (begin) values.add("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*begin));
  if (const auto padding = special_id(tokenizer, choices.special_tokens, "pad_token"))
    values.add("tokenizer.ggml.padding_token_id", static_cast<std::uint32_t>(*padding));
  if (!choices.chat_template.empty()) values.add(gguf_chat_template_key, std::string_view(choices.chat_template));
}

}  // namespace trireme

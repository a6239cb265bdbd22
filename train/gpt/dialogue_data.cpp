#include "train/gpt/dialogue_data.h"

#include <fmt/format.h>

#include <cmath>

#include "core/hash.h"
#include "core/io.h"
#include "data/file_kind.h"
#include "train/program/units.h"

namespace trireme {
namespace {

TokenRange tokens_of(const std::vector<TokenizedDialogue>& dialogues, std::int32_t vocab) {
  TokenBuffer buffer(vocab);
  for (const TokenizedDialogue& d : dialogues) buffer.append(d.ids);
  return TokenRange(in_memory(std::move(buffer)));
}

/// The name of the file is added to errors, which have the line.
std::vector<RenderedDialogue> rendered(const ChatTemplate& chat, const Dialogue& dialogue, const std::string& path) {
  try {
    return render_dialogue(chat, dialogue);
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    fail(error.code(), error.where(), "{}, {}", path, error.reason());
  }
}

std::shared_ptr<const Tokenizer> tokenizer_for(const std::string& specification,
                                               const std::vector<RenderedDialogue>& dialogues) {
  std::vector<std::string_view> texts;  // from which --tokenizer char takes its characters
  for (const RenderedDialogue& dialogue : dialogues)
    for (const RenderedPart& part : dialogue) texts.push_back(part.text);
  return make_tokenizer(specification == "auto" ? "char" : specification, texts);
}

}  // namespace

ChatTemplate chat_template_named(const std::string& name, const std::string& flag,
                                 const std::map<std::string, std::string>& special_tokens) {
  if (name == "chatml") return ChatTemplate::chatml();
  if (!std::filesystem::exists(name))
    fail(ExitCode::usage, flag,
         "{} {} does not exist; expected a template, a tokenizer_config.json, a folder with one of "
         "them, or chatml; change {}",
         flag, name, flag);
  ChatTemplate chat = ChatTemplate::load(name);
  chat.add_special_tokens(special_tokens);
  return chat;
}

DialogueData load_dialogues(const DataOptions& o, const ChatTemplate& chat, std::int64_t context, std::uint64_t seed,
                            std::shared_ptr<const Tokenizer> tokenizer) {
  if (!std::filesystem::exists(o.data))
    fail(ExitCode::usage, "--data", "--data {} does not exist; expected a file of dialogues; change --data", o.data);
  const std::string text = read_file(o.data);
  const std::vector<Dialogue> dialogues = parse_dialogues(text, o.data);
  const auto kept = static_cast<std::size_t>(std::floor(static_cast<double>(dialogues.size()) * (1 - o.val_fraction)));
  if (kept == 0 && !dialogues.empty())
    fail(ExitCode::usage, "--val-fraction",
         "{} has {} dialogue{}, and --val-fraction {} leaves none for training; expected at least one; give more "
         "dialogues, or --val-fraction 0",
         o.data, dialogues.size(), dialogues.size() == 1 ? "" : "s", o.val_fraction);
  std::vector<RenderedDialogue> sequences;
  std::size_t for_training = 0;  // of `sequences`
  for (std::size_t i = 0; i < dialogues.size(); ++i) {
    for (RenderedDialogue& each : rendered(chat, dialogues[i], o.data)) sequences.push_back(std::move(each));
    if (i < kept) for_training = sequences.size();
  }
  if (tokenizer == nullptr) tokenizer = tokenizer_for(o.tokenizer, sequences);
  std::vector<TokenizedDialogue> train, validation;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    (i < for_training ? train : validation).push_back(tokenize(*tokenizer, sequences[i]));
  DialogueData data;
  data.train = std::make_shared<const PackedDialogues>(train, context, seed, true);
  if (!validation.empty()) data.validation = std::make_shared<const PackedDialogues>(validation, context, seed, false);
  data.corpus.train = tokens_of(train, tokenizer->vocab_size());
  if (!validation.empty()) data.corpus.validation = tokens_of(validation, tokenizer->vocab_size());
  data.corpus.tokenizer = tokenizer;
  const std::string all = text + '\0' + chat.source();
  data.corpus.hash = hash_bytes(all) ^ tokenizer->hash();
  data.corpus.files = {{std::filesystem::path(o.data).filename().string(), text.size(), hash_bytes(text)}};
  return data;
}

PackedDialogues dialogues_to_evaluate(const std::string& path, const ChatTemplate& chat,
                                      const std::function<std::int64_t(std::int64_t tokens)>& length_for,
                                      const Tokenizer& tokenizer) {
  std::vector<TokenizedDialogue> all;
  for (const Dialogue& dialogue : parse_dialogues(read_file(path), path))
    for (const RenderedDialogue& sequence : rendered(chat, dialogue, path))
      all.push_back(tokenize(tokenizer, sequence));
  return {all, length_for(tokens_of(all, tokenizer.vocab_size()).count()), 0, false};
}

bool is_json_lines(const std::string& path) {
  return std::filesystem::is_regular_file(path) && format_of(path, first_bytes(path)) == TextFormat::jsonl;
}

std::string describe(const DialogueReport& r) {
  std::string text =
      fmt::format("{} dialogues in {} rows: {} tokens, {} of them targets; {} padding", thousands(r.dialogues),
                  thousands(r.rows), thousands(r.tokens), thousands(r.targets), thousands(r.padding));
  if (r.cut > 0) text += fmt::format("; {} tokens beyond the context cut off", thousands(r.cut));
  if (r.dropped > 0) text += fmt::format("; {} dialogues without a target in it left out", thousands(r.dropped));
  return text;
}

}  // namespace trireme

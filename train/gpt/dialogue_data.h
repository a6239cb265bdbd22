// The data of a fine-tuning: --data with dialogues, and a chat template.
// Read next: data/chat/dialogues.h, data/chat/packed_dialogues.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "data/chat/packed_dialogues.h"
#include "data/corpus.h"
#include "train/gpt/gpt_options.h"

namespace trireme {

/// Dialogues, packed for training and validation.
struct DialogueData {
  Corpus corpus;  ///< the tokens of all dialogues, one after the other; its hash includes the template
  std::shared_ptr<const PackedDialogues> train, validation;  ///< validation: null with --val-fraction 0
};

/// Loads the template that a flag names: a file, a folder, or chatml. `special_tokens` are those of the model, such as
/// bos_token; a template whose own file or folder names them keeps its own. Throws ExitCode::usage if it does not
/// exist.
ChatTemplate chat_template_named(const std::string& name, const std::string& flag,
                                 const std::map<std::string, std::string>& special_tokens);

/// Reads, renders, encodes and packs. The last --val-fraction of the dialogues is for validation. `tokenizer`: null for
/// that of --tokenizer. Throws ExitCode::data, with the line.
DialogueData load_dialogues(const DataOptions& options, const ChatTemplate& chat, std::int64_t context,
                            std::uint64_t seed, std::shared_ptr<const Tokenizer> tokenizer = nullptr);
/// All dialogues of a file, packed in their order, each once: to evaluate. `length_for` gives
/// the length of a row, from the number of tokens of all dialogues together. Throws as load_dialogues().
PackedDialogues dialogues_to_evaluate(const std::string& path, const ChatTemplate& chat,
                                      const std::function<std::int64_t(std::int64_t tokens)>& length_for,
                                      const Tokenizer& tokenizer);

/// Whether --data names one file of JSON lines.
bool is_json_lines(const std::string& path);

/// For the table before training: "180 dialogues in 24 rows, 5,120 targets of 6,144 tokens; 12 tokens cut, ..".
std::string describe(const DialogueReport& report);

}  // namespace trireme

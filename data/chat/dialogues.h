// Dialogues to fine-tune on: rendered by a chat template, with the loss on the assistant's turns only, and packed into
// rows of the model's context.
//
// A file has one JSON object on each line, in one of the forms of data/chat/dialogue_forms.h: messages, ShareGPT's
// conversations, or a prompt and its answer.
//
// A turn of the assistant is what the template writes from behind the generation prompt ("<|im_start|>assistant\n") to
// the end of the turn, its end-of-turn token included, so the model learns to stop. Its tokens are targets; all others
// are inputs with target -1. Some templates write an earlier turn differently when another one follows (Qwen 3 drops
// its thoughts). A dialogue then becomes several sequences, one for each turn of the assistant, which is the only
// target in it.
//
// A template that marks what the assistant writes ({% generation %}..{% endgeneration %}, as in transformers) decides
// itself: a dialogue is rendered once, as a whole, and the tokens within the marks are the targets.
//
// The text between two borders of targets is encoded by itself, as it is in a conversation, where the prompt is given
// and the reply is generated.
// Read next: data/chat/dialogue_forms.h, data/chat/packed_dialogues.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/chat/dialogue_forms.h"
#include "data/tokenizer.h"

namespace trireme {

/// A conversation to learn from.
struct Dialogue : Conversation {
  std::int64_t line = 0;  ///< in its file

  /// Whether message i is a turn of the assistant that is learned.
  bool is_answer(std::size_t i) const { return i >= first_answer && messages[i].role == "assistant"; }
};

/// Throws ExitCode::data, with file and line, for a line of another form, a dialogue without a turn of the assistant,
/// and if there is none.
std::vector<Dialogue> parse_dialogues(std::string_view text, const std::filesystem::path& path);

/// A piece of a rendered dialogue.
struct RenderedPart {
  std::string text;
  bool answer = false;  ///< by the assistant
};
/// The text of a dialogue, in parts that are answers or not.
using RenderedDialogue = std::vector<RenderedPart>;

/// One or several sequences. Throws ExitCode::data, naming the line, if the template refuses the dialogue, writes no
/// generation prompt, or has marks, but none of them around a text of this dialogue.
std::vector<RenderedDialogue> render_dialogue(const ChatTemplate& chat, const Dialogue& dialogue);

/// The tokens of a sequence.
struct TokenizedDialogue {
  std::vector<std::int32_t> ids;
  std::vector<bool> target;  ///< whether the loss counts token i
};

/// The tokenizer adds nothing by itself: the template writes what begins a text.
TokenizedDialogue tokenize(const Tokenizer& tokenizer, const RenderedDialogue& dialogue);

/// The ids of a rendered conversation. The template has written what begins a text itself, such as <s>, so what the
/// tokenizer adds to a text is left out. Throws as Tokenizer::encode_with_special().
std::vector<std::int32_t> encode_rendered(const Tokenizer& tokenizer, std::string_view text);

}  // namespace trireme

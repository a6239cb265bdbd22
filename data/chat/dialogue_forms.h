// The forms in which a JSON object gives a conversation; its fields tell them apart:
//
//   messages        {"messages": [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}, ..]}
//   ShareGPT        {"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": TEXT}, ..]}, also
//                   with "system": TEXT, the first message
//   prompt, answer  {"prompt": TEXT, "answer": TEXT}, or "completion" in the place of "answer", as in TRL. Either may
//                   be a list of messages
//
// Read next: data/chat/dialogues.h, train/gpt/prompts.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "data/chat/chat_template.h"

namespace trireme {

/// The messages of one conversation, as a JSON object gives them.
struct Conversation {
  std::vector<ChatMessage> messages;
  /// The message with which the answer begins: of {"prompt": .., "answer": ..}, the prompt is no answer, also where it
  /// has turns of the assistant. 0 in other forms: every turn of the assistant is an answer.
  std::size_t first_answer = 0;
};

/// `answered`: a prompt without an answer is refused. Throws ExitCode::data, without file and line, for an object of
/// another form.
Conversation conversation_of(const nlohmann::json& object, bool answered);

}  // namespace trireme

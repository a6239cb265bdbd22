#include "data/chat/dialogue_forms.h"

#include "core/error.h"
#include "data/json.h"
#include "data/json_lines.h"

namespace trireme {
namespace {

constexpr const char* forms = "dialogues";

/// The role that ShareGPT calls `from`.
std::string role_of(const nlohmann::json& message) {
  const std::string from = json_text(message, "from", forms);
  if (from == "human" || from == "user") return "user";
  if (from == "gpt" || from == "assistant") return "assistant";
  if (from == "system") return from;
  fail(ExitCode::data, forms, "'from' is {}; expected human, gpt or system", shown(message["from"]));
}

/// Refuses fields with which other programs render tools, because the model would learn dialogues without them.
void require_no_tools(const nlohmann::json& object) {
  for (const char* key : {"tool_calls", "tools"})
    if (object.contains(key) && !object[key].empty())
      fail(ExitCode::data, forms,
           "'{}' is {}; expected messages that are texts, as templates do not render tools here; write calls as texts, "
           "or leave the dialogue out",
           key, shown(object[key]));
}

/// Refuses fields with which other programs leave an answer out of the loss, because it would be learned here.
void require_learned(const nlohmann::json& answer) {
  for (const char* key : {"weight", "train"})
    if (answer.contains(key) && !answer[key].is_null() && answer[key] != 1 && answer[key] != true)
      fail(ExitCode::data, forms,
           "'{}' is {}; expected that every answer is learned; give what must not be learned as the prompt of an "
           "object with 'prompt' and 'answer'",
           key, shown(answer[key]));
}

/// {"role": .., "content": ..}, or {"from": .., "value": ..}
ChatMessage message_of(const nlohmann::json& message) {
  require_no_tools(message);
  const bool sharegpt = message.contains("from");  // false for what is no object, which json_text() refuses
  ChatMessage result = {sharegpt ? role_of(message) : json_text(message, "role", forms),
                        json_text(message, sharegpt ? "value" : "content", forms)};
  if (result.role == "assistant") require_learned(message);
  return result;
}

std::vector<ChatMessage> messages_of(const nlohmann::json& object, const char* key) {
  const nlohmann::json& list = object[key];
  if (!list.is_array()) fail(ExitCode::data, forms, "'{}' is {}; expected a list of messages", key, shown(list));
  std::vector<ChatMessage> messages;
  for (const auto& message : list) messages.push_back(message_of(message));
  return messages;
}

/// A text, which has this role, or a list of messages.
std::vector<ChatMessage> turns_of(const nlohmann::json& object, const char* key, const char* role) {
  if (object.contains(key) && object[key].is_array()) return messages_of(object, key);
  return {{role, json_text(object, key, forms)}};
}

}  // namespace

Conversation conversation_of(const nlohmann::json& object, bool answered) {
  require_no_tools(object);
  require_learned(object);
  Conversation result;
  const auto has = [&](const char* key) { return object.contains(key); };
  if (has("messages")) {
    result.messages = messages_of(object, "messages");
  } else if (has("conversations")) {
    if (has("system")) result.messages.push_back({"system", json_text(object, "system", forms)});
    for (ChatMessage& message : messages_of(object, "conversations")) result.messages.push_back(std::move(message));
  } else if (has("prompt")) {
    result.messages = turns_of(object, "prompt", "user");
    result.first_answer = result.messages.size();
    if (has("completion") && has("answer"))
      fail(ExitCode::data, forms, "'prompt' has both an 'answer' and a 'completion'; expected one of them");
    const char* answer = has("completion") ? "completion" : "answer";
    if (answered && !has(answer))
      fail(ExitCode::data, forms, "'prompt' has neither an 'answer' nor a 'completion'; expected one of them");
    if (has(answer))
      for (ChatMessage& turn : turns_of(object, answer, "assistant")) result.messages.push_back(std::move(turn));
  } else {
    fail(ExitCode::data, forms,
         "{}; expected an object with 'messages' (role and content), 'conversations' (from and value), or 'prompt' and "
         "'answer' or 'completion'",
         shown(object));
  }
  return result;
}

}  // namespace trireme

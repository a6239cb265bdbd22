// A conversation with a model: each turn is rendered by the model's chat template, and the reply is streamed.
// Read next: data/chat/chat_template.h, train/gpt/generate.h.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer.h"
#include "models/language_model.h"
#include "train/gpt/generate_options.h"
#include "train/gpt/next_logits.h"

namespace trireme {

/// What the template writes behind an assistant's turn, without white space around it: "<|im_end|>". Empty: nothing.
std::string end_of_turn(const ChatTemplate& chat);

/// Strings that end a reply: `stops`, end_of_turn(), and the eos_token of the template.
std::vector<std::string> stops_of_reply(const ChatTemplate& chat, std::vector<std::string> stops = {});

/// The tokens that a reply to these messages continues. Throws ExitCode::data if the template refuses them;
/// ExitCode::usage if they have a character that the tokenizer does not know.
std::vector<std::int32_t> reply_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                       const std::vector<ChatMessage>& messages);

/// A conversation that grows by a question and a reply at a time. The keys and values of earlier turns are kept.
class ChatSession {
 public:
  /// `system`: the first message; empty: none. `stops`: more strings for stops_of_reply(). The model, the tokenizer and
  /// the template must outlive this object.
  ChatSession(LanguageModel& model, const Tokenizer& tokenizer, const ChatTemplate& chat, const std::string& system,
              GenerateOptions options, std::vector<std::string> stops = {});

  /// Adds the user's message, and the model's reply, which is returned. `write` is called with the parts of the reply
  /// as they come, whole characters only. Throws as reply_prompt(); the conversation then stays as it was. Collective
  /// over the mesh. After GenerateOptions::leave, the conversation has the reply as far as it came.
  std::string reply(const std::string& message, const std::function<void(std::string_view)>& write);
  /// Begins a new conversation.
  void clear();
  const std::vector<ChatMessage>& messages() const { return messages_; }
  bool left() const { return left_; }                        ///< whether GenerateOptions::leave ended the last reply
  std::int64_t tokens() const { return tokens_; }            ///< generated so far
  std::int64_t length() const { return length_; }            ///< tokens of this conversation, up to the last reply
  std::int64_t context() const { return model_.context(); }  ///< tokens that the model sees at once

 private:
  LanguageModel& model_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  std::string system_;
  GenerateOptions options_;
  std::vector<std::string> stops_;
  std::vector<ChatMessage> messages_;
  std::int64_t tokens_ = 0, length_ = 0;
  bool left_ = false;
  NextLogits next_;
};

}  // namespace trireme

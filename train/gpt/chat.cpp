#include "train/gpt/chat.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/chat/dialogues.h"
#include "train/gpt/generate.h"
#include "train/gpt/stop_strings.h"

namespace trireme {
namespace {

constexpr std::int64_t most_tokens = 1 << 30;  // of a conversation

std::string without_white_space_around(const std::string& text) {
  constexpr const char* white = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(white);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(white) + 1 - begin);
}

}  // namespace

std::string end_of_turn(const ChatTemplate& chat) {
  const std::string answer = "7f3a";
  const std::string text = chat.render({{"user", "x"}, {"assistant", answer}}, {});
  const std::size_t at = text.rfind(answer);
  return at == std::string::npos ? "" : without_white_space_around(text.substr(at + answer.size()));
}

std::vector<std::string> stops_of_reply(const ChatTemplate& chat, std::vector<std::string> stops) {
  const auto eos = chat.special_tokens().find("eos_token");
  for (const std::string& stop : {end_of_turn(chat), eos == chat.special_tokens().end() ? "" : eos->second})
    if (!stop.empty() && std::find(stops.begin(), stops.end(), stop) == stops.end()) stops.push_back(stop);
  return stops;
}

std::vector<std::int32_t> reply_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                       const std::vector<ChatMessage>& messages) {
  const std::string rendered = chat.render(messages, {.add_generation_prompt = true});
  std::vector<std::int32_t> ids;
  try {
    ids = encode_rendered(tokenizer, rendered);
  } catch (const Error& error) {  // of what a user has typed
    throw Error(ExitCode::usage, "chat", error.reason());
  }
  if (ids.empty())
    fail(ExitCode::data, "chat template",
         "the template makes an empty text of the conversation; expected its messages and what begins a reply; change "
         "the template, or give another one");
  return ids;
}

ChatSession::ChatSession(LanguageModel& model, const Tokenizer& tokenizer, const ChatTemplate& chat,
                         const std::string& system, GenerateOptions options, std::vector<std::string> stops)
    : model_(model),
      tokenizer_(tokenizer),
      chat_(chat),
      system_(system),
      options_(std::move(options)),
      stops_(stops_of_reply(chat, std::move(stops))),
      next_(model, most_tokens, options_.cache, options_.past_context) {
  clear();
}

void ChatSession::clear() {
  messages_.clear();
  length_ = 0;
  if (!system_.empty()) messages_.push_back({"system", system_});
}

std::string ChatSession::reply(const std::string& message, const std::function<void(std::string_view)>& write) {
  std::vector<ChatMessage> asked = messages_;
  asked.push_back({"user", message});
  const std::vector<std::int32_t> ids = reply_prompt(chat_, tokenizer_, asked);
  TextUntil text(tokenizer_, stops_);
  const auto say = [&](const std::string& characters) {
    if (write && !characters.empty()) write(characters);
  };
  length_ = static_cast<std::int64_t>(ids.size());
  const std::vector<GeneratedText> texts = generate_texts(model_, next_, {{.prompt = ids, .seed = options_.seed}},
                                                          options_, [&](std::size_t, const GeneratedToken& token) {
                                                            ++tokens_;
                                                            ++length_;
                                                            say(text.push(token.id));
                                                            return !text.ended();
                                                          });
  left_ = texts.front().end == TextEnd::leave;
  say(text.finish());
  messages_ = std::move(asked);
  messages_.push_back({"assistant", text.text()});
  ++options_.seed;  // the same question again may have another reply
  return text.text();
}

}  // namespace trireme

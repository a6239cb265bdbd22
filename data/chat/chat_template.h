// Chat templates: how a model's conversations are written as one text. A template is a text in Jinja's language, in the
// field "chat_template" of a model's tokenizer_config.json, or in a file chat_template.jinja.
//
//   const ChatTemplate chat = ChatTemplate::parse(read_file("chat_template.jinja"), "chat_template.jinja");
//   chat.render({{"user", "Hello"}}, {.add_generation_prompt = true});
//
// The result is that of apply_chat_template() in transformers: blocks are trimmed as there, and the variables messages,
// add_generation_prompt, tools (none), documents (none), bos_token, eos_token and other special tokens are set.
// Templates are untrusted input: nesting, steps and output are limited (data/chat/template_render.h).
// Read next: data/chat/template_parser.h, which says what of Jinja is known.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// A turn of a conversation.
struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// The text of a template as a folder has it, not parsed.
struct TemplateTexts {
  std::string text = {};                                   ///< empty: the folder has none
  std::filesystem::path path = {};                         ///< of the file that has it
  std::map<std::string, std::string> special_tokens = {};  ///< also without a template
};
/// From tokenizer_config.json: its "chat_template" (of several: the one named "default") and its special tokens;
/// `folder`/chat_template.jinja, if it exists, takes the place of the first. Throws ExitCode::data if the configuration
/// is no JSON object.
TemplateTexts template_texts(const std::filesystem::path& folder);

/// How a conversation becomes text: see the top of this file.
class ChatTemplate {
 public:
  /// `path` is what messages call it. `special_tokens`: values of bos_token, eos_token, .. Throws ExitCode::data, with
  /// the line, for a template that this program does not understand.
  static ChatTemplate parse(std::string_view text, const std::filesystem::path& path,
                            std::map<std::string, std::string> special_tokens = {});
  /// template_texts(), parsed. Throws ExitCode::data if there is no template.
  static ChatTemplate of_folder(const std::filesystem::path& folder);
  /// A file that ends with .json is a tokenizer_config.json; another one holds the template itself.
  static ChatTemplate load(const std::filesystem::path& path);
  /// <|im_start|>ROLE\nCONTENT<|im_end|>\n: OpenAI's ChatML, which is known by this name to many programs.
  static ChatTemplate chatml();

  /// What is rendered besides the messages.
  struct Options {
    bool add_generation_prompt = false;  ///< with the beginning of the assistant's next turn at the end
    std::string variables = {};          ///< a JSON object with more variables, such as {"enable_thinking": false}
  };
  /// The conversation as text. Throws ExitCode::data, with the line of the template, if the template refuses it
  /// (raise_exception), or takes too many steps.
  std::string render(const std::vector<ChatMessage>& messages, const Options& options) const;
  /// The same for messages as a JSON list, which may have other fields than role and content.
  std::string render_json(std::string_view messages, const Options& options) const;

  /// A conversation, and what of it the assistant has written.
  struct Marked {
    std::string text;
    std::vector<std::pair<std::size_t, std::size_t>> marks;  ///< first byte, and the one behind the last; not empty
  };
  /// Whether the template says, by {% generation %}..{% endgeneration %}, what the assistant has written.
  bool has_marks() const;
  /// render(), with what is within those marks. Throws also for marks in a macro, or in the text of a {% set %}.
  Marked render_marked(const std::vector<ChatMessage>& messages, const Options& options) const;

  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }
  /// Adds special tokens of the model, such as bos_token. Those that the template's own file or folder names stay.
  void add_special_tokens(std::map<std::string, std::string> tokens) { special_tokens_.merge(tokens); }
  const std::string& source() const { return source_; }  ///< the template's text

 private:
  struct Parsed;
  std::string source_, path_;
  std::map<std::string, std::string> special_tokens_;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace trireme

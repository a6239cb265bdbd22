#include "data/chat/chat_template.h"

#include <algorithm>

#include "core/error.h"
#include "core/io.h"
#include "data/chat/template_parser.h"
#include "data/chat/template_render.h"
#include "data/file_kind.h"
#include "data/json.h"

namespace trireme {

struct ChatTemplate::Parsed {
  chat::Block block;
  bool marks;  // {% generation %}
};

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// Line ends as Jinja sees them.
std::string with_line_feeds(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      result += '\n';
    }
  }
  return result;
}

bool has_marks_in(const chat::Block& block) {
  return std::any_of(block.begin(), block.end(), [](const chat::Statement& s) {
    return s.kind == chat::Statement::Kind::group || has_marks_in(s.body) || has_marks_in(s.otherwise);
  });
}

/// "eos_token": "</s>", or {"content": "</s>", ..}
std::map<std::string, std::string> special_tokens(const nlohmann::json& config) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) tokens[key] = value.get<std::string>();
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      tokens[key] = value["content"].get<std::string>();
  }
  return tokens;
}

/// Empty if there is none.
std::string template_text(const nlohmann::json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())
    for (const auto& each : *found)
      if (each.is_object() && each.value("name", "") == "default" && each.contains("template") &&
          each["template"].is_string())
        return each["template"].get<std::string>();
  return {};
}

nlohmann::json read_config(const std::filesystem::path& path) {
  nlohmann::json config = parse_json(read_file(path, read_limits::configuration), path);
  if (!config.is_object()) fail(ExitCode::data, "chat template", "{} is no JSON object; expected one", path.string());
  return config;
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view text, const std::filesystem::path& path,
                                 std::map<std::string, std::string> tokens) {
  if (text.size() > most_bytes)
    fail(ExitCode::data, "chat template", "{} has {} bytes; expected at most {}", path.string(), text.size(),
         most_bytes);
  ChatTemplate result;
  result.source_ = std::string(text);
  result.path_ = path.string();
  result.special_tokens_ = std::move(tokens);
  chat::Block block = chat::parse_template(with_line_feeds(text), result.path_);
  const bool marks = has_marks_in(block);
  result.parsed_ = std::make_shared<const Parsed>(Parsed{std::move(block), marks});
  return result;
}

TemplateTexts template_texts(const std::filesystem::path& folder) {
  TemplateTexts texts;
  const std::filesystem::path config = folder / "tokenizer_config.json", own = folder / "chat_template.jinja";
  if (is_there(config)) {
    const nlohmann::json json = read_config(config);
    texts = {.text = template_text(json), .path = config, .special_tokens = special_tokens(json)};
  }
  if (is_there(own)) {
    texts.text = without_mark(read_file(own, read_limits::configuration));
    texts.path = own;
  }
  return texts;
}

ChatTemplate ChatTemplate::of_folder(const std::filesystem::path& folder) {
  TemplateTexts texts = template_texts(folder);
  if (texts.text.empty())
    fail(ExitCode::data, "chat template",
         "{} has no chat template; expected chat_template.jinja or 'chat_template' in tokenizer_config.json",
         folder.string());
  return parse(texts.text, texts.path, std::move(texts.special_tokens));
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return of_folder(path);
  if (path.extension() != ".json") return parse(without_mark(read_file(path, read_limits::configuration)), path);
  const nlohmann::json config = read_config(path);
  const std::string text = template_text(config);
  if (text.empty())
    fail(ExitCode::data, "chat template", "{} has no chat template; expected 'chat_template' in it", path.string());
  return parse(text, path, trireme::special_tokens(config));
}

ChatTemplate ChatTemplate::chatml() {
  return parse(
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
      "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "chatml", {{"eos_token", "<|im_end|>"}});
}

namespace {

std::string json_of(const std::vector<ChatMessage>& messages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// What a template sees.
chat::Dict variables_of(std::string_view messages, const std::map<std::string, std::string>& special_tokens,
                        const ChatTemplate::Options& options) {
  // Checked as strictly as other JSON; then read again in its order.
  parse_json(messages, "messages");
  chat::Dict variables;
  for (const auto& [name, token] : special_tokens) variables.emplace_back(name, chat::Value(token));
  variables.emplace_back("messages", chat::Value::from_json(nlohmann::ordered_json::parse(messages)));
  variables.emplace_back("tools", chat::Value());
  variables.emplace_back("documents", chat::Value());
  variables.emplace_back("add_generation_prompt", chat::Value(options.add_generation_prompt));
  if (!options.variables.empty()) {
    parse_json(options.variables, "chat variables");
    const auto more = nlohmann::ordered_json::parse(options.variables);
    for (const auto& [name, value] : more.items()) {
      std::erase_if(variables, [&, key = name](const auto& held) { return held.first == key; });
      variables.emplace_back(name, chat::Value::from_json(value));
    }
  }
  return variables;
}

}  // namespace

bool ChatTemplate::has_marks() const { return parsed_->marks; }

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages, const Options& options) const {
  return render_json(json_of(messages), options);
}

std::string ChatTemplate::render_json(std::string_view messages, const Options& options) const {
  return chat::render_template(parsed_->block, path_, variables_of(messages, special_tokens_, options));
}

ChatTemplate::Marked ChatTemplate::render_marked(const std::vector<ChatMessage>& messages,
                                                 const Options& options) const {
  std::vector<chat::Mark> marks;
  Marked result{.text = chat::render_template(parsed_->block, path_,
                                              variables_of(json_of(messages), special_tokens_, options), &marks),
                .marks = {}};
  for (const chat::Mark& mark : marks) result.marks.emplace_back(mark.begin, mark.end);
  return result;
}

}  // namespace trireme

#include "train/gpt/questions.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "data/json.h"
#include "data/json_lines.h"

namespace trireme {
namespace {

constexpr const char* place = "questions";

/// "label" and "gold": a number, or a text with one.
std::size_t answer_of(const nlohmann::json& line, const char* key, std::size_t options) {
  if (line.contains(key) && line[key].is_string()) {
    const std::string text = line[key].get<std::string>();
    std::size_t number = options;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number < options) return number;
  }
  return static_cast<std::size_t>(json_number(line, key, static_cast<std::int64_t>(options) - 1, place));
}

/// What stands between a context and an answer. Not given: a space, and white space around an answer does not count.
using Delimiter = std::optional<std::string>;

Question::Option option_of(const std::string& context, const Delimiter& delimiter, const std::string& answer) {
  if (delimiter) return {context, *delimiter + answer, answer.size()};
  constexpr const char* white = " \t\r\n";
  const std::size_t begin = answer.find_first_not_of(white);
  if (begin == std::string::npos) fail(ExitCode::data, place, "an answer is empty; expected at least one character");
  const std::string text = answer.substr(begin, answer.find_last_not_of(white) + 1 - begin);
  return {context, " " + text, text.size()};
}

/// The texts to choose from.
std::vector<std::string> several_texts(const nlohmann::json& object, const char* key) {
  std::vector<std::string> texts = json_texts(object, key, place);
  if (texts.size() < 2) fail(ExitCode::data, place, "'{}' has {}; expected at least two", key, texts.size());
  return texts;
}

Question with_choices(const std::string& context, const Delimiter& delimiter, const std::vector<std::string>& choices,
                      std::size_t answer) {
  Question question{.options = {}, .answer = answer};
  for (const std::string& choice : choices) question.options.push_back(option_of(context, delimiter, choice));
  return question;
}

Question arc_question(const nlohmann::json& line, const Delimiter& delimiter) {
  const nlohmann::json& choices = line["choices"];
  const std::vector<std::string> texts = several_texts(choices, "text"), labels = json_texts(choices, "label", place);
  const std::string key = json_text(line, "answerKey", place);
  const auto answer = std::find(labels.begin(), labels.end(), key);
  if (labels.size() != texts.size() || answer == labels.end())
    fail(ExitCode::data, place,
         "{} answers, {} labels and the answerKey {}; expected a label for each, and one of them", texts.size(),
         labels.size(), shown(line["answerKey"]));
  return with_choices("Question: " + json_text(line, "question", place) + "\nAnswer:", delimiter, texts,
                      static_cast<std::size_t>(answer - labels.begin()));
}

Question schema_question(const nlohmann::json& line, const Delimiter& delimiter) {
  const std::vector<std::string> contexts = several_texts(line, "context_options");
  const std::string continuation = json_text(line, "continuation", place);
  Question question{.options = {}, .answer = answer_of(line, "gold", contexts.size())};
  for (const std::string& context : contexts) question.options.push_back(option_of(context, delimiter, continuation));
  return question;
}

Question question_of(const nlohmann::json& line) {
  if (!line.is_object()) fail(ExitCode::data, place, "{}; expected an object", shown(line));
  const Delimiter delimiter =
      line.contains("delimiter") ? Delimiter(json_text(line, "delimiter", place)) : std::nullopt;
  const auto choices_of = [&](const char* context, const char* list, const char* answer) {
    const std::vector<std::string> choices = several_texts(line, list);
    return with_choices(json_text(line, context, place), delimiter, choices, answer_of(line, answer, choices.size()));
  };
  if (line.contains("endings")) return choices_of("ctx", "endings", "label");
  if (line.contains("answerKey")) {
    if (!line.contains("choices"))
      fail(ExitCode::data, place, "'choices' is missing; expected an object with 'text' and 'label'");
    return arc_question(line, delimiter);
  }
  if (line.contains("query")) return choices_of("query", "choices", "gold");
  if (line.contains("context_options")) return schema_question(line, delimiter);
  if (line.contains("continuation"))
    return with_choices(json_text(line, "context", place), delimiter, {json_text(line, "continuation", place)}, 0);
  fail(
      ExitCode::data, place,
      "the fields are of no known form; expected 'endings', 'answerKey', 'query', 'context_options' or 'continuation'");
}

}  // namespace

std::vector<Question> parse_questions(std::string_view text, const std::filesystem::path& path) {
  std::vector<Question> questions;
  for_each_json_line(text, path, place, [&](const nlohmann::json& value, std::int64_t line) {
    questions.push_back(question_of(value));
    questions.back().where = line_of(path, line);
  });
  if (questions.empty())
    fail(ExitCode::data, place, "{} has no question; expected a JSON object on each line", path.string());
  return questions;
}

}  // namespace trireme

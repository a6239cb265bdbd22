// Questions with several answers, of which the model chooses the likeliest.
//
// A file has one JSON object on each line, in one of these forms, which the fields tell apart:
//
//   HellaSwag       {"ctx": TEXT, "endings": [TEXT, ..], "label": 0}
//   ARC             {"question": TEXT, "choices": {"text": [TEXT, ..], "label": ["A", ..]}, "answerKey": "A"}
//   CORE, choices   {"query": TEXT, "choices": [TEXT, ..], "gold": 0}
//   CORE, schema    {"context_options": [TEXT, ..], "continuation": TEXT, "gold": 0}
//   CORE, language  {"context": TEXT, "continuation": TEXT}
//
// The context is followed by a space and the answer without the white space around it. If the line has "delimiter":
// TEXT, it is followed by that text and the unchanged answer. An ARC question becomes
// "Question: TEXT\nAnswer:". "label" may also be a text with a number ("0"). Other fields are ignored. In the schema
// form (Winograd) the contexts differ and the continuation is the same. In the language form the answer is right if
// each of its tokens is the likeliest (LAMBADA).
// Read next: train/gpt/multiple_choice.h.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// A question and its answers.
struct Question {
  /// A continuation of which the likelihood is computed.
  struct Option {
    std::string context, continuation;
    std::size_t bytes = 0;  ///< of the answer without the delimiter
  };
  std::vector<Option> options;
  std::size_t answer = 0;  ///< the right one
  std::string where = {};  ///< for messages: the file and the line
};

/// Throws ExitCode::data, with file and line, for a line of another form, and if there is none.
std::vector<Question> parse_questions(std::string_view text, const std::filesystem::path& path);

}  // namespace trireme

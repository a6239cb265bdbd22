#include "data/chat/dialogues.h"

#include <algorithm>

#include "core/error.h"
#include "data/json.h"
#include "data/json_lines.h"

namespace trireme {
namespace {

constexpr const char* here = "dialogues";

Dialogue dialogue_of(const nlohmann::json& object, std::int64_t line) {
  Dialogue dialogue{conversation_of(object, true), line};
  bool answered = false;
  for (std::size_t i = 0; i < dialogue.messages.size(); ++i) answered = answered || dialogue.is_answer(i);
  if (!answered) fail(ExitCode::data, here, "no message has the role 'assistant'; expected an answer to learn");
  return dialogue;
}

/// The place in a rendered dialogue where a turn of the assistant begins, and where it ends.
struct Turn {
  std::string before, until;  ///< the text up to there
};

Turn turn_of(const ChatTemplate& chat, const Dialogue& dialogue, std::size_t index) {
  const auto begin = dialogue.messages.begin(), at = begin + static_cast<std::ptrdiff_t>(index);
  Turn turn{chat.render({begin, at}, {.add_generation_prompt = true}), chat.render({begin, at + 1}, {})};
  if (!turn.until.starts_with(turn.before))
    fail(
        ExitCode::data, "chat template",
        "the dialogue of line {}: the text up to turn {} does not begin with that before it and the generation prompt; "
        "expected a template whose add_generation_prompt writes what begins a turn of the assistant",
        dialogue.line, index + 1);
  return turn;
}

/// Of a template that marks what the assistant writes.
RenderedDialogue marked_dialogue(const ChatTemplate& chat, const Dialogue& dialogue) {
  const auto begin = dialogue.messages.begin();
  std::size_t end = dialogue.messages.size();
  while (!dialogue.is_answer(end - 1)) --end;  // there is one
  const ChatTemplate::Marked rendered =
      chat.render_marked({begin, begin + static_cast<std::ptrdiff_t>(end)}, {.add_generation_prompt = false});
  const auto answer = begin + static_cast<std::ptrdiff_t>(dialogue.first_answer);
  std::size_t at = 0, first = 0;  // marks before this byte are in a prompt
  if (std::any_of(begin, answer, [](const ChatMessage& m) { return m.role == "assistant"; })) {
    const std::string prompt = chat.render({begin, answer}, {});
    if (!rendered.text.starts_with(prompt))
      fail(ExitCode::data, "chat template",
           "the dialogue of line {}: the text does not begin with that of its prompt alone, so which marks are in the "
           "prompt is not known; expected a template that writes earlier turns as they were; change it",
           dialogue.line);
    first = prompt.size();
  }
  RenderedDialogue parts;
  for (const auto& [from, until] : rendered.marks) {
    if (from < first) continue;
    if (from > at) parts.push_back({rendered.text.substr(at, from - at), false});
    parts.push_back({rendered.text.substr(from, until - from), true});
    at = until;
  }
  if (parts.empty())
    fail(ExitCode::data, "chat template",
         "the dialogue of line {}: the template has {{% generation %}}, but around no text of this dialogue; expected "
         "it "
         "around what the assistant writes; change the template, or take the marks out of it",
         dialogue.line);
  return parts;
}

}  // namespace

std::vector<Dialogue> parse_dialogues(std::string_view text, const std::filesystem::path& path) {
  std::vector<Dialogue> dialogues;
  for_each_json_line(text, path, here, [&](const nlohmann::json& line, std::int64_t number) {
    dialogues.push_back(dialogue_of(line, number));
  });
  if (dialogues.empty())
    fail(ExitCode::data, here, "{} has no dialogue; expected a JSON object on each line", path.string());
  return dialogues;
}

std::vector<RenderedDialogue> render_dialogue(const ChatTemplate& chat, const Dialogue& dialogue) {
  try {
    if (chat.has_marks()) return {marked_dialogue(chat, dialogue)};
    std::vector<Turn> turns;
    for (std::size_t i = 0; i < dialogue.messages.size(); ++i)
      if (dialogue.is_answer(i)) turns.push_back(turn_of(chat, dialogue, i));
    RenderedDialogue whole;
    std::string done;
    bool fits = true;
    for (const Turn& turn : turns) {
      fits = fits && turn.before.starts_with(done);
      if (!fits) break;
      whole.push_back({turn.before.substr(done.size()), false});
      whole.push_back({turn.until.substr(turn.before.size()), true});
      done = turn.until;
    }
    if (fits) return {whole};
    std::vector<RenderedDialogue> each;
    for (const Turn& turn : turns)
      each.push_back({{turn.before, false}, {turn.until.substr(turn.before.size()), true}});
    return each;
  } catch (const Error& error) {
    if (error.where() != "chat template" || error.reason().starts_with("the dialogue of line")) throw;
    fail(error.code(), "chat template", "the dialogue of line {}: {}", dialogue.line, error.reason());
  }
}

std::vector<std::int32_t> encode_rendered(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids = tokenizer.encode_with_special(text);
  const std::vector<std::int32_t> added = tokenizer.encode_with_special("");  // in front of a text, and behind it
  const auto in_front = std::mismatch(added.begin(), added.end(), ids.begin(), ids.end()).first - added.begin();
  const auto behind = static_cast<std::ptrdiff_t>(added.size()) - in_front;
  if (static_cast<std::ptrdiff_t>(ids.size()) < in_front + behind ||
      !std::equal(added.begin() + in_front, added.end(), ids.end() - behind))
    return ids;
  ids.erase(ids.end() - behind, ids.end());
  ids.erase(ids.begin(), ids.begin() + in_front);
  return ids;
}

TokenizedDialogue tokenize(const Tokenizer& tokenizer, const RenderedDialogue& dialogue) {
  TokenizedDialogue result;
  for (const RenderedPart& part : dialogue) {
    const std::vector<std::int32_t> ids = encode_rendered(tokenizer, part.text);
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.target.resize(result.ids.size(), part.answer);
  }
  return result;
}

}  // namespace trireme

// Targets for what comes from users of language models: chat templates, and lines of prompts, questions and dialogues.
// Its seeds: chat_seeds.cpp.
#include <algorithm>

#include "data/chat/chat_template.h"
#include "data/chat/dialogues.h"
#include "data/chat/template_render.h"
#include "tests/fuzz/targets.h"
#include "train/gpt/prompts.h"
#include "train/gpt/questions.h"

namespace trireme::fuzz {

void chat_template(std::string_view input) {
  const std::size_t zero = input.find('\0');
  const std::string_view text = input.substr(0, zero);
  const std::string_view messages = zero == std::string_view::npos
                                        ? R"([{"role":"user","content":"a b"},{"role":"assistant","content":"c"}])"
                                        : input.substr(zero + 1);
  accepted([&] {
    const ChatTemplate chat = ChatTemplate::parse(text, "input", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const std::string rendered = chat.render_json(messages, {.add_generation_prompt = true});
    expect(rendered.size() <= chat::template_most_output, "more output than the limit");
    if (text.find("strftime_now") == std::string_view::npos)
      expect(rendered == chat.render_json(messages, {.add_generation_prompt = true}), "the second text is another");
    const ChatTemplate::Marked marked = chat.render_marked({{"user", "a b"}, {"assistant", "c"}}, {});
    std::size_t end = 0;
    for (const auto& [from, until] : marked.marks) {
      expect(end <= from && from < until && until <= marked.text.size(), "marks are not in order");
      end = until;
    }
  });
}

void json_lines(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view form = input.substr(0, end), lines = input.substr(std::min(end + 1, input.size()));
  if (form == "questions")
    accepted([&] {
      for (const Question& q : parse_questions(lines, "input.jsonl"))
        expect(q.answer < q.options.size(), "the answer is not among the options");
    });
  if (form == "dialogues")
    accepted([&] {
      for (const Dialogue& d : parse_dialogues(lines, "input.jsonl"))
        for (const RenderedDialogue& each : render_dialogue(ChatTemplate::chatml(), d))
          expect(each.back().answer, "a dialogue does not end with an answer");
    });
  if (form == "chat")
    accepted([&] {
      for (const ChatQuestion& q : parse_chat_questions(lines, "input.jsonl"))
        expect(!q.messages.empty() && q.messages.back().role != "assistant", "a question ends with its answer");
    });
  if (form == "prompts" || form == "text")
    accepted([&] {
      for (const Prompt& p : parse_prompts(lines, form == "text" ? "input.txt" : "input.jsonl"))
        expect(p.text.empty() != p.ids.empty(), "a prompt is empty, or given twice");
    });
}

}  // namespace trireme::fuzz

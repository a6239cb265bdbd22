// Dialogues: which tokens the loss counts, and how they are packed.
#include "data/chat/dialogues.h"

#include <doctest/doctest.h>

#include <set>

#include "core/error.h"
#include "data/byte_tokenizer.h"
#include "data/chat/packed_dialogues.h"

using namespace trireme;

namespace dialogues_test {
namespace {

/// The text of a sequence with its targets in brackets.
std::string marked(const RenderedDialogue& parts) {
  const TokenizedDialogue d = tokenize(ByteTokenizer(), parts);
  std::string text;
  for (std::size_t i = 0; i < d.ids.size(); ++i) {
    if (d.target[i] && (i == 0 || !d.target[i - 1])) text += '[';
    if (!d.target[i] && i > 0 && d.target[i - 1]) text += ']';
    text += static_cast<char>(d.ids[i]);
  }
  return d.target.back() ? text + ']' : text;
}

std::vector<std::string> all_marked(const ChatTemplate& chat, const std::string& line) {
  std::vector<std::string> texts;
  for (const RenderedDialogue& each : render_dialogue(chat, parse_dialogues(line, "d.jsonl").front()))
    texts.push_back(marked(each));
  return texts;
}

/// A dialogue of `inputs` inputs, of which the last `targets` have a target.
TokenizedDialogue of_length(std::int32_t inputs, std::int32_t targets, std::int32_t first) {
  TokenizedDialogue d;
  for (std::int32_t i = 0; i <= inputs; ++i) {
    d.ids.push_back(first + i);
    d.target.push_back(i > inputs - targets);
  }
  return d;
}

}  // namespace

TEST_CASE("the loss is of the assistant's turns, with what ends them") {
  const ChatTemplate chat = ChatTemplate::chatml();
  const std::string two =
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  CHECK(
      all_marked(chat, two) ==
      std::vector<std::string>{"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
                               "[b<|im_end|>\n]<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>\n]"});
  CHECK(all_marked(chat, R"({"prompt": "q", "answer": "a"})") ==
        std::vector<std::string>{"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>\n]"});
}

TEST_CASE("conversations of other programs are read as the same dialogues") {
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
      "chat.jinja");
  const auto one = [&](const std::string& line) { return all_marked(chat, line).front(); };
  CHECK(one(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "r"}], "id": 7})") ==
        "u:q;a:[r;]");
  CHECK(
      one(R"({"system": "S", "conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": "r"}]})") ==
      "s:S;u:q;a:[r;]");
  CHECK(one(R"({"conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]})") ==
        "u:q;a:[r;]");
  CHECK(one(R"({"prompt": "q", "completion": "r"})") == "u:q;a:[r;]");
  CHECK(
      one(R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "r"}]})") ==
      "u:q;a:[r;]");
  // An answer in the prompt is not learned.
  CHECK(
      one(R"({"prompt": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}], "completion": "4"})") ==
      "u:1;a:2;u:3;a:[4;]");
}

TEST_CASE("a template that writes earlier turns differently makes one sequence for each turn") {
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and loop.last %}!{% endif %}{{ m.content }};"
      "{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
      "chat.jinja");
  const std::string two =
      R"({"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";
  CHECK(all_marked(chat, two) == std::vector<std::string>{"u:1;a:[!2;]", "u:1;a:2;u:3;a:[!4;]"});
}

TEST_CASE("where a template marks what the assistant writes, the tokens within the marks are learned, and no others") {
  const auto parse = [](const std::string& text) { return ChatTemplate::parse(text, "chat.jinja"); };
  const std::string two =
      R"({"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "5"}]})";
  // The end of the turn is within the marks here, and the name of the role is not; no generation prompt is needed.
  const ChatTemplate chat = parse(
      "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }};"
      "{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}");
  CHECK(chat.has_marks());
  CHECK_FALSE(ChatTemplate::chatml().has_marks());
  CHECK(all_marked(chat, two) == std::vector<std::string>{"u:1;a:[2;]u:3;a:[4;]"});
  // A dialogue stays one sequence, even if earlier turns are written differently: here, only the last is marked.
  const ChatTemplate last = parse(
      "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and loop.last %}{% generation %}!"
      "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}");
  CHECK(all_marked(last, two) == std::vector<std::string>{"u:1;a:2;u:3;a:[!4]"});
  // Marks within marks, beside each other, and around nothing.
  const ChatTemplate odd = parse(
      "{% for m in messages %}{% generation %}{% endgeneration %}{% generation %}{{ m.role[0] }}{% generation %}-"
      "{% endgeneration %}{% endgeneration %}{% generation %}{{ m.content }}{% endgeneration %}.{% endfor %}");
  CHECK(all_marked(odd, R"({"prompt": "q", "answer": "a"})") == std::vector<std::string>{"[u-q].[a-a]"});
  // Of a prompt and its answer, marks in the prompt are left out.
  CHECK(
      all_marked(
          chat,
          R"({"prompt": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}], "completion": "4"})") ==
      std::vector<std::string>{"u:1;a:2;u:3;a:[4;]"});
}

TEST_CASE("marks that say nothing of a dialogue are refused with its line") {
  const auto refused = [](const std::string& text, const std::string& line, const std::string& part) {
    CAPTURE(text);
    const Dialogue dialogue = parse_dialogues("\n" + line, "d.jsonl").front();
    CHECK_THROWS_WITH_AS(render_dialogue(ChatTemplate::parse(text, "c.jinja"), dialogue),
                         doctest::Contains(part.c_str()), Error);
  };
  const std::string pair = R"({"prompt": "q", "answer": "a"})";
  refused(
      "{% for m in messages %}{% if m.role == 'model' %}{% generation %}x{% endgeneration %}{% endif %}{% endfor %}",
      pair, "the dialogue of line 2: the template has {% generation %}, but around no text of this dialogue");
  refused("{% macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}{{ say(messages[1]) }}",
          pair, "the dialogue of line 2: c.jinja line 1: {% generation %} in a macro");
  refused("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", pair, "{% generation %} in a macro");
  refused(
      "{{ messages | length }}{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
      R"({"prompt": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}], "answer": "4"})",
      "does not begin with that of its prompt alone");
}

TEST_CASE("lines that are not dialogues, and templates that do not fit, are refused with the line") {
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"\n{\"x\": 1}",
            "d.jsonl line 2: {\"x\":1}; expected an object with 'messages' (role and content), 'conversations' (from "
            "and "
            "value), or 'prompt' and 'answer' or 'completion'"},
           {"{\"conversations\": [{\"from\": \"tool\", \"value\": \"x\"}]}", "'from' is \"tool\"; expected human, gpt"},
           {"{\"conversations\": [{\"from\": \"gpt\"}]}", "'value' is missing"},
           {"{\"prompt\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"completion\": []}",
            "no message has the role"},
           {"{\"messages\": 3}", "'messages' is 3; expected a list"},
           {"{\"messages\": [{\"role\": \"user\"}]}", "'content' is missing"},
           {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", "no message has the role 'assistant'"},
           {"{\"prompt\": \"x\"}", "neither an 'answer' nor a 'completion'"},
           {"{\"prompt\": \"x\"", "d.jsonl line 1"},
           {R"({"prompt": "x", "answer": "a", "completion": "b"})", "has both an 'answer' and a 'completion'"},
           {R"({"prompt": "x", "answer": "a", "tools": [{"name": "f"}]})", "'tools' is [{\"name\":\"f\"}]; expected"},
           {R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [1]}]})",
            "'tool_calls' is [1]; expected"},
           {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}]})", "'weight' is 0; expected that"},
           {R"({"conversations": [{"from": "gpt", "value": "a", "train": false}]})", "'train' is false; expected that"},
           {"", "has no dialogue"}})
    CHECK_THROWS_WITH_AS(parse_dialogues(line, "d.jsonl"), doctest::Contains(part.c_str()), Error);
  for (const char* fine : {R"({"prompt": "x", "answer": "a", "tools": [], "weight": 1, "train": true})",
                           R"({"conversations": [{"from": "human", "value": "x", "weight": 0},)"
                           R"( {"from": "gpt", "value": "a", "weight": 1.0, "train": null}]})"})
    CHECK(parse_dialogues(fine, "d").size() == 1);
  const Dialogue dialogue = parse_dialogues("\n\n{\"prompt\": \"q\", \"answer\": \"a\"}", "d.jsonl").front();
  CHECK_THROWS_WITH_AS(
      render_dialogue(ChatTemplate::parse("{{ raise_exception('no') }}", "c.jinja"), dialogue),
      doctest::Contains("the dialogue of line 3: c.jinja line 1: the template refuses the conversation: \"no\""),
      Error);
  CHECK_THROWS_WITH_AS(
      render_dialogue(ChatTemplate::parse("{% if add_generation_prompt %}x{% endif %}y", "c.jinja"), dialogue),
      doctest::Contains("does not begin with that before it"), Error);
}

TEST_CASE("dialogues are packed by best fit, do not see each other, and begin at position 0") {
  std::vector<TokenizedDialogue> dialogues = {of_length(3, 1, 10),   of_length(6, 2, 20),  of_length(2, 2, 40),
                                              of_length(20, 15, 50), of_length(5, 0, 100), of_length(20, 2, 120)};
  const PackedDialogues packed(dialogues, 8, 7, false);
  const DialogueReport& r = packed.report();
  CHECK(r.dialogues == 4);
  CHECK(r.dropped == 2);  // one without targets, one whose targets are beyond the context
  CHECK(r.cut == 12);
  CHECK(r.rows == 3);  // 8; 6 + 2; 3
  CHECK(r.tokens == 19);
  CHECK(r.padding == 5);
  CHECK(packed.count() == 3);
  CHECK(packed.targets() == 3 + 2 + 2 + 1);
  const Batch b = packed.make_batch(0, 4);  // one row too many
  const auto row = [&](const char* name, std::int64_t i) {
    const std::int32_t* begin = b[name].data<std::int32_t>() + 8 * i;
    return std::vector<std::int32_t>(begin, begin + 8);
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(row("inputs", 1) == Ids{20, 21, 22, 23, 24, 25, 40, 41});
  CHECK(row("targets", 1) == Ids{-1, -1, -1, -1, 25, 26, 41, 42});
  CHECK(row("documents", 1) == Ids{0, 0, 0, 0, 0, 0, 6, 6});
  CHECK(row("positions", 1) == Ids{0, 1, 2, 3, 4, 5, 0, 1});
  CHECK(row("inputs", 2) == Ids{10, 11, 12, 0, 0, 0, 0, 0});
  CHECK(row("targets", 2) == Ids{-1, -1, 13, -1, -1, -1, -1, -1});
  CHECK(row("documents", 2) == Ids{0, 0, 0, 3, 3, 3, 3, 3});
  CHECK(row("targets", 3) == Ids(8, -1));
  CHECK(*packed.targets_of(0, 2) == 7);
  CHECK_THROWS_WITH_AS(PackedDialogues({of_length(5, 0, 1)}, 8, 7, true), doctest::Contains("raise --context"), Error);
}

TEST_CASE("each epoch has every row once, in an order of its own, as a pure function of the sample's number") {
  std::vector<TokenizedDialogue> dialogues;
  for (std::int32_t i = 0; i < 11; ++i) dialogues.push_back(of_length(8, 1 + i % 5, 20 * i));
  const PackedDialogues packed(dialogues, 8, 7, true), again(dialogues, 8, 7, true), other(dialogues, 8, 8, true);
  std::vector<std::int32_t> firsts[3];
  for (std::int64_t s = 0; s < 22; ++s) {
    firsts[0].push_back(packed.make_batch(s, 1)["inputs"].data<std::int32_t>()[0]);
    firsts[1].push_back(again.make_batch(s, 1)["inputs"].data<std::int32_t>()[0]);
    firsts[2].push_back(other.make_batch(s, 1)["inputs"].data<std::int32_t>()[0]);
  }
  CHECK(firsts[0] == firsts[1]);
  CHECK(firsts[0] != firsts[2]);
  const std::vector<std::int32_t> first(firsts[0].begin(), firsts[0].begin() + 11),
      second(firsts[0].begin() + 11, firsts[0].end());
  CHECK(first != second);
  CHECK(std::set(first.begin(), first.end()).size() == 11);
  CHECK(std::set(second.begin(), second.end()).size() == 11);
  std::int64_t sum = 0;
  for (std::int64_t s = 0; s < 11; ++s) sum += *packed.targets_of(s, 1);
  CHECK(sum == packed.targets());
  CHECK(*packed.targets_of(0, 11) == sum);
}

}  // namespace dialogues_test

// Chat templates: conversations as transformers renders them, what is refused, and the limits.
#include "data/chat/chat_template.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "data/chat/template_filters.h"
#include "data/chat/template_render.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace chat_template_test {
namespace {

std::string rendered(const std::string& text, const std::string& messages = "[]", const std::string& variables = "") {
  return ChatTemplate::parse(text, "chat.jinja").render_json(messages, {.variables = variables});
}

/// Returns how many cases there were.
std::size_t check_cases(const std::string& path) {
  const auto document = nlohmann::ordered_json::parse(read_file(path));
  for (const auto& c : document["cases"]) {
    const std::string name = c["name"], messages = c["messages"].dump();
    CAPTURE(name);
    CAPTURE(messages);
    const auto tokens = c["special_tokens"].get<std::map<std::string, std::string>>();
    const ChatTemplate::Options options = {.add_generation_prompt = c["add_generation_prompt"],
                                           .variables = c["variables"].dump()};
    const auto render = [&] {
      return ChatTemplate::parse(c["template"].get<std::string>(), "chat.jinja", tokens).render_json(messages, options);
    };
    if (c.contains("refused")) {
      CHECK_THROWS_WITH_AS(render(), doctest::Contains("chat.jinja line 1"), Error);
    } else {
      try {
        CHECK(render() == c["text"].get<std::string>());
        if (!c.contains("marks")) continue;
        std::vector<ChatMessage> turns;
        for (const auto& m : c["messages"]) turns.push_back({m["role"], m["content"]});
        const ChatTemplate chat = ChatTemplate::parse(c["template"].get<std::string>(), "chat.jinja", tokens);
        CHECK(chat.has_marks());
        const ChatTemplate::Marked found = chat.render_marked(turns, options);
        CHECK(found.text == c["text"].get<std::string>());
        CHECK(found.marks == c["marks"].get<std::vector<std::pair<std::size_t, std::size_t>>>());
      } catch (const Error& error) { FAIL_CHECK(error.what()); }
    }
  }
  return document["cases"].size();
}

void refused(const std::string& text, const std::string& part) {
  CAPTURE(text);
  try {
    rendered(text);
    FAIL_CHECK("was not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK_MESSAGE(error.reason().find(part) != std::string::npos, error.what());
  }
}

}  // namespace

TEST_CASE("a template has the special tokens of its model, unless it names its own") {
  ChatTemplate chat = ChatTemplate::parse("{{ bos_token }}{{ eos_token }}", "chat.jinja", {{"eos_token", "</s>"}});
  chat.add_special_tokens({{"bos_token", "<s>"}, {"eos_token", "<end>"}});
  CHECK(chat.render({}, {}) == "<s></s>");
}

TEST_CASE("conversations become the text that transformers makes with the same chat template") {
  CHECK(check_cases("tests/golden/chat_templates.json") > 50);
}

TEST_CASE("more chat templates, from the file that TRIREME_CHAT_CASES names") {
  const char* path = std::getenv("TRIREME_CHAT_CASES");
  if (path == nullptr) {
    MESSAGE("skipped: tests/golden/make_chat_templates.py --more makes such a file");
    return;
  }
  MESSAGE(check_cases(path), " cases");
}

TEST_CASE("a chat template that is not understood is refused with its line") {
  refused("a\n{% if x %}", "chat.jinja line 2: expected '{% endif %}'");
  refused("\n\n{{ 1 + }}", "line 3: expected an expression, got '}}'");
  refused("{{ 'open }}", "does not end");
  refused("{% include 'x' %}", "expected 'for', 'if', 'set', 'macro' or another known tag");
  refused("{# open", "a comment does not end");
  refused("{{ x", "a tag does not end; expected '}}'");
  refused("{{ x ! y }}", "in a tag");
  refused("{% endfor %}", "expected 'for'");
  refused("{% break %}", "a loop around");
  refused("{% for x y %}{% endfor %}", "expected 'in'");
  refused("{{ 99999999999999999999 }}", "too large");
  refused("{{ f(1 2) }}", "expected ','");
  refused("{{ x[1:2:3:4] }}", "expected ']'");
  refused("{{ x[] }}", "an index");
}

TEST_CASE("what a chat template cannot do is refused with its line") {
  refused("\n{{ none + 1 }}", "line 2: none + a number");
  refused("{{ x.y }}", R"("x" is undefined, and has no member "y")");
  refused("{{ x() }}", R"("x" is not known)");
  refused("{{ 5 | trumpet }}", R"(the filter "trumpet" is not known)");
  refused("{{ 5 is loud }}", R"(the test "loud" is not known)");
  refused("{{ 1 // 0 }}", "a division by 0");
  refused("{{ 9223372036854775807 + 1 }}", "too large");
  refused("{{ [1] < 2 }}", "cannot be compared");
  refused("{% for x in 5 %}{% endfor %}", "a loop over a number");
  refused("{% set x.y = 1 %}", "expected a namespace()");
  refused("{{ raise_exception('no ' ~ 1) }}",
          R"(chat.jinja line 1: the template refuses the conversation: "no 1"; change its messages)");
  refused("{{ 'é' | upper }}", "not ASCII");
  refused("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "got 2 arguments; expected at most 1");
  refused("{{ 'abc'.replace('', 'x') }}", "an empty text");
}

TEST_CASE("every filter and test in the lists is known") {
  const auto message_of = [](const std::string& text) -> std::string {
    try {
      ChatTemplate::parse(text, "c.jinja").render({}, {});
      return "";
    } catch (const Error& error) { return error.what(); }
  };
  const auto each = [](std::string names, const std::function<void(const std::string&)>& check) {
    for (std::size_t end = 0; end != std::string::npos; names = end == std::string::npos ? "" : names.substr(end + 2)) {
      end = names.find(", ");
      check(names.substr(0, end));
    }
  };
  each(std::string(chat::known_filters), [&](const std::string& name) {
    CHECK(message_of("{{ [1, 2] | " + name + " }}").find("not known") == std::string::npos);
  });
  each(std::string(chat::known_tests), [&](const std::string& name) {
    CHECK(message_of("{{ 4 is " + name + " 2 }}").find("not known") == std::string::npos);
  });
  CHECK(message_of("{{ [1] | abs }}").find("the filter \"abs\" does not take a list") != std::string::npos);
}

TEST_CASE("nesting, steps and output of a chat template are limited") {
  refused("{{ " + std::string(100, '(') + "1" + std::string(100, ')') + " }}", "nested deeper than 64");
  refused("{{ " + std::string(5000, '-') + "1 }}", "nested deeper than 64");
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += "{% if true %}";
  refused(nested, "nested deeper than 64");
  refused("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "too many steps");
  refused("{{ range(999999999) }}", "too many steps");
  refused("{{ 'x' * 999999999 }}", "too much text");
  refused(
      "{% set ns = namespace(x='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "too");
  refused("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
          "too many steps");
  refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "more than 32 deep");
  refused("{{ 2 ** 99 }}", "a power");
  CHECK_THROWS_AS(ChatTemplate::parse(std::string((1 << 20) + 1, 'x'), "big.jinja"), Error);
}

TEST_CASE("templates are found in a folder, with their special tokens") {
  const TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
  };
  CHECK_THROWS_WITH_AS(ChatTemplate::load(folder.path()), doctest::Contains("has no chat template"), Error);
  write(
      "tokenizer_config.json",
      R"({"eos_token": {"content": "</s>"}, "bos_token": "<s>", "pad_token": null, "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
  const ChatTemplate one = ChatTemplate::load(folder.path());
  CHECK(one.render({{"user", "hi"}}, {}) == "<s>hi</s>");
  CHECK(ChatTemplate::load(folder.path() / "tokenizer_config.json").render({{"user", "hi"}}, {}) == "<s>hi</s>");
  write("chat_template.jinja", "{{ eos_token }}!\n");
  CHECK(ChatTemplate::load(folder.path()).render({}, {}) == "</s>!");
  CHECK(ChatTemplate::load(folder.path() / "chat_template.jinja").render({}, {}) == "!");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]})");
  CHECK(ChatTemplate::load(folder.path() / "tokenizer_config.json").render({}, {}) == "yes");
  CHECK(ChatTemplate::chatml().render({{"user", "hi"}}, {.add_generation_prompt = true}) ==
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace chat_template_test

// Seeds of the targets in chat_targets.cpp.
#include "tests/fuzz/seeds.h"

namespace trireme::fuzz {

std::vector<Seed> chat_seeds(std::string_view target) {
  if (target == "json_lines")
    return {{"prompts", "prompts\n\"a\"\n{\"prompt\": \"b\"}\n{\"ids\": [1, 2]}\n"},
            {"text", "text\none\n\ntwo"},
            {"hellaswag", "questions\n{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"1\"}"},
            {"arc", R"(questions
{"question": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "B"})"},
            {"core", R"(questions
{"query": "a", "choices": ["b", "c"], "gold": 0, "delimiter": ""}
{"context_options": ["a", "b"], "continuation": "c", "gold": 1}
{"context": "a", "continuation": "b"})"},
            {"messages", R"(dialogues
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"},
            {"chat", "chat\n\"a\"\n{\"prompt\": \"b\", \"answer\": \"c\"}\n"},
            {"sharegpt", R"(dialogues
{"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"},
            {"completion", R"(dialogues
{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})"},
            {"answer", "dialogues\n{\"prompt\": \"a\", \"answer\": \"b\"}"}};
  const std::string messages = R"([{"role": "user", "content": "a", "extra": [1, 2.5, null, true, {}]}])";
  return {
      {"loop",
       "{% for m in messages if m.role != 'x' %}{{ loop.index }}{{ m['content'][1:] | trim }}\n{% else %}-{% endfor "
       "%}"},
      {"namespace",
       "{%- set ns = namespace(a=1) -%}{% set ns.a = ns.a + 1 %}{{ ns.a is odd }}{% set b %}x{% endset %}{{ b }}"},
      {"macro", "{% macro f(a, b='c') %}{{ a ~ b }}{% endmacro %}{{ f(1) }}{{ f(b=2, a=[1, {'k': none}]) }}"},
      {"filters", "{{ messages | map(attribute='role') | join(', ') | upper }}{{ messages | tojson(indent=2) }}"},
      {"methods", "{{ 'a,b'.split(',')[-1].strip() }}{% for k, v in messages[0].items() %}{{ k }}{% endfor %}"},
      {"operators",
       "{{ 1 + 2 * 3 // 2 % 5 ** 2 - -1 }}{{ 1 < 2 <= 3 and not false or 'a' in 'abc' }}{{ 'x' if false }}"},
      {"white_space", "{#- a -#}\n  {%+ if true -%} x {%- endif +%}\n{% raw %}{{ }}{% endraw %}"},
      {"marks", "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}"},
      {"messages", "{{ messages[0].extra }}" + std::string(1, '\0') + messages},
      {"refuses", "{{ raise_exception('no\nno') }}"},
      {"doubling", "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"},
      {"deep", "{{ " + std::string(70, '[') + std::string(70, ']') + " }}"}};
}

}  // namespace trireme::fuzz

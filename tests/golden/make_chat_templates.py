#!/usr/bin/env python3
"""Make chat_templates.json: conversations as transformers' apply_chat_template() renders them.

    python3 tests/golden/make_chat_templates.py
    python3 tests/golden/make_chat_templates.py --more FOLDER --out cases.json

The templates are the short ones of published models (Llama 3, Mistral, Gemma 2, ChatML), and some that use the other
parts of the language. --more adds every *.jinja of a folder, such as the long templates of Qwen 2.5, Qwen 3 and
Llama 3.1; then run TRIREME_CHAT_CASES=cases.json build/bin/data_test -tc="*chat template*". Each case has a template,
special tokens, messages and variables, and either the text, or "refused": true. A template with {% generation %} also
has "marks": the bytes of the text that are within, as apply_chat_template(return_assistant_tokens_mask=True) finds
them. Needs transformers and tokenizers.
"""

import argparse
import json
import pathlib

import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

PUBLISHED = {
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "mistral": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "gemma2": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
}

OWN = {
    "white space": "{%- for m in messages %}\n    {% if loop.first %}\n  first\n    {%- else %}\n  later {%+ if true %}kept{% endif +%}\n\n  {% endif %}\n\t{# a comment #}\n  {{- m.role }}  \n{%- endfor -%}\n\n  end {% raw %}{{ not a tag }}{% endraw %}\n\n",
    "namespaces": "{% set ns = namespace(found=false, last=-1) %}{% for m in messages %}{% if m.role == 'assistant' and not ns.found %}{% set ns.found = true %}{% endif %}{% set ns.last = loop.index0 %}{% set inner = 5 %}{% endfor %}{{ ns.found }} {{ ns.last }} {{ inner is defined }} {{ ns.missing is undefined }}",
    "slices": "{% for m in messages[1:] %}{{ m.content[:3] }}|{{ m.content[-2:] }}|{{ m.content[::-1] }}\n{% endfor %}{% for m in messages[::-1] %}{{ loop.revindex }}{{ m['role'][0] }}{% endfor %}{{ messages[-1].role }}{{ messages[99] is defined }}{{ [1, 2, 3][5:] }}",
    "filters": "{{ messages | length }} {{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='content') | first }} {{ 'a-b-c' | replace('-', '+') }} {{ missing | default('none given') }} {{ '' | default('empty', true) }} {{ ' x ' | trim | upper }} {{ 'heLLo woRLD' | title }} {{ 'heLLo' | capitalize }} {{ [3, 1, 2] | sort | join }} {{ ['b', 'A', 'b'] | unique | join }} {{ [1, 2] | last }} {{ '42' | int + 1 }} {{ 3.7 | int }} {{ 2.345 | round(2) }} {{ -5 | abs }} {{ 'a\nb' | indent(2) }} {{ 'a\nb' | indent(2, true) }} {{ {'b': 1, 'a': 2} | dictsort }} {{ [1, 5, 3] | max }}",
    "methods": "{% for m in messages %}{{ m.content.strip().split(' ')[0] }}|{{ m['content'].startswith('W') }}|{{ m.role.upper() }}|{{ m.get('name', 'nobody') }}|{% for key, value in m.items() %}{{ key }}={{ value | length }};{% endfor %}\n{% endfor %}{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'xxabxx'.strip('x') }} {{ 'abc'.replace('b', '') }} {{ 'abcabc'.find('c') }} {{ ', '.join(['x', 'y']) }} {{ '</think>x</think>\n\ny'.split('</think>')[-1].lstrip('\n') }} {{ 'a,b,c'.split(',', 1) }}",
    "operators": "{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 5 }} {{ 'a' ~ 1 ~ none }} {{ 'a' * 3 }} {{ [1] + [2] }} {{ 1 < 2 < 3 }} {{ 3 > 2 and not false or x }} {{ 'b' in 'abc' }} {{ 2 not in [1, 3] }} {{ 'role' in messages[0] }} {{ 1 == 1.0 }} {{ none is none }} {{ 5 is odd }} {{ 6 is divisibleby 3 }} {{ 'x' if false }} {{ 'x' if false else 'y' }} {{ -messages | length if false else 0 }} {{ (1, 'two') }} {{ {'k': [true, none, 1.5]} }} {{ 'it''s' }} {{ \"quote's\" }} {{ [\"quote's\", 'a\"b', 'tab\t'] }} {{ not [] }} {{ 1.0 }} {{ 0.1 + 0.2 }}",
    "tojson": "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }} {{ {'a': [], 'b': {}, 'c': 'é\"<>&\\n'} | tojson }} {{ 1.5 | tojson }} {{ none | tojson }}",
    "macros": "{% macro turn(role, content, end='.') %}[{{ role }}: {{ content }}{{ end }}]{% endmacro %}{% for m in messages %}{{ turn(m.role, m.content | trim) }}{{ turn(m.role, content='x', end='') }}{% endfor %}{% set block %}a {{ 1 + 1 }}{% endset %}{{ block | length }}{{ block }}",
    "loops": "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}{{ ' last' if loop.last }}{{ loop.previtem.role if loop.previtem is defined }}{% for x in range(3) %}{% if x == 1 %}{% continue %}{% endif %}{% if loop.index0 == 2 and m.role == 'user' %}{% break %}{% endif %}{{ x }}{% endfor %}\n{% else %}nothing{% endfor %}{% for x in [] %}x{% else %}empty{% endfor %}{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }},{% endfor %}{{ range(5, 0, -2) | list }}{% generation %}kept{% endgeneration %}",
    "undefined": "{{ nothing }}{{ nothing is defined }}{% if nothing %}x{% endif %}{{ tools is none }}{{ tools is defined }}{{ messages[0].name is defined }}{{ messages[0].content is string }}{{ messages is iterable }}{{ messages[0] is mapping }}{{ enable_thinking is defined and enable_thinking is false }}",
    "marks": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "marks and white space": "{{ bos_token }}\n{%- for m in messages %}\n  {%- if m['role'] != 'assistant' %}\n    {{- '[' + m.role + '] ' + m.content | trim + '\n' }}\n  {%- else %}\n    {{- '[' + m.role + '] ' }}\n    {%- generation %}\n      {%- for line in m.content.split('\n') %}{{ line }}\n{% endfor %}\n      {{- eos_token }}\n    {% endgeneration %}\n  {%- endif %}\n{%- endfor %}\nend",
    "refused member": "{{ nothing.member }}",
    "refused message": "{% if messages | length > 0 %}{{ raise_exception('not these: ' + messages[0].role) }}{% endif %}",
    "refused sum": "{{ 'a' + 1 }}",
}

CONVERSATIONS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [
        {"role": "system", "content": "Be brief.  "},
        {"role": "user", "content": "  Who wrote \"Faust\"?\n"},
        {"role": "assistant", "content": "Goethe. "},
        {"role": "user", "content": "Wann?"},
    ],
    [
        {"role": "user", "content": "Grüße, 你好 👋 <b>&amp;</b>"},
        {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHallo!"},
        {"role": "user", "content": "{{ no_tag }} {% x %}"},
        {"role": "assistant", "content": ""},
    ],
]


def tokenizer(template):
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    result = transformers.PreTrainedTokenizerFast(tokenizer_object=model, **SPECIAL)
    result.chat_template = template
    return result


def marks(text, messages, template, **variables):
    """Of the text: [first byte, byte behind the last] for each mark that is not empty."""
    (same,), (found,) = render_jinja_template(
        conversations=[messages], chat_template=template, return_assistant_tokens_mask=True, **SPECIAL, **variables
    )
    assert same == text
    return [[len(text[:place].encode()) for place in mark] for mark in found if mark[0] < mark[1]]


def cases(name, template, conversations):
    for messages in conversations:
        for variables in ({}, {"enable_thinking": False}):
            for prompt in (False, True):
                case = {"name": name, "template": template, "special_tokens": SPECIAL, "messages": messages}
                case |= {"add_generation_prompt": prompt, "variables": variables}
                try:
                    case["text"] = tokenizer(template).apply_chat_template(
                        messages, tokenize=False, add_generation_prompt=prompt, **variables
                    )
                    if "generation %}" in template:
                        more = variables | {"add_generation_prompt": prompt}
                        case["marks"] = marks(case["text"], messages, template, **more)
                except Exception as error:  # noqa: BLE001  what a template raises is Jinja's choice
                    case["refused"] = True
                    print(f"{name}: refused: {str(error)[:80]}")
                yield case
                if "add_generation_prompt" not in template:
                    break
            if "enable_thinking" not in template:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--more", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_name("chat_templates.json"))
    args = parser.parse_args()
    templates = PUBLISHED | OWN
    if args.more:
        templates = {path.stem: path.read_text() for path in sorted(args.more.glob("*.jinja"))}
    all_cases = [case for name, template in templates.items() for case in cases(name, template, CONVERSATIONS)]
    document = {"versions": {"transformers": transformers.__version__}, "cases": all_cases}
    args.out.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    print(f"{args.out.name}: {len(all_cases)} cases, {args.out.stat().st_size} bytes, {document['versions']}")


if __name__ == "__main__":
    main()

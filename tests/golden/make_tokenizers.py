#!/usr/bin/env python3
"""Writes tests/golden/tokenizers.json: small tokenizers in the manner of published models, texts, and the ids that the
libraries `tokenizers` and `tiktoken` give them.

    VENV/bin/python tests/golden/make_tokenizers.py

Read by tests/data/peer_tokenizers_test.cpp. scripts/peer_tokenizers.py makes the same comparison with large ones.
"""

import base64
import json
import pathlib

import tiktoken
import tokenizers
import tokenizer_recipes
from tokenizer_recipes import CL100K, GPT2, O200K, odd_text

HERE = pathlib.Path(__file__).parent
VOCAB = 400


def expected(tokenizer, texts):
    found = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        with_template = tokenizer.encode(text).ids
        without = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        ordinary = tokenizer.encode(text, add_special_tokens=False).ids
        entry = {
            "text": text,
            "ids": with_template,
            "without_template": without,
            "ordinary": ordinary,
            "decoded": tokenizer.decode(with_template, skip_special_tokens=False),
        }
        if without == with_template:
            del entry["without_template"]
        if ordinary == without:
            del entry["ordinary"]
        if entry["decoded"] == text:
            del entry["decoded"]
        found.append(entry)
    return found


def ranks_of(tokenizer):
    """The tokens of a byte-level tokenizer as bytes, by id, without added ones."""
    alphabet = {c: b for b, c in enumerate_alphabet()}
    model = json.loads(tokenizer.to_str())["model"]["vocab"]
    return {bytes(alphabet[c] for c in token): rank for token, rank in model.items()}


def enumerate_alphabet():
    free = 256
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            yield byte, chr(byte)
        else:
            yield byte, chr(free)
            free += 1


def main():
    prose = (HERE.parent.parent / "docs" / "parallelism.md").read_text(encoding="utf-8")[:40000]
    code = (HERE.parent.parent / "data" / "utf8.cpp").read_text(encoding="utf-8")
    made = tokenizer_recipes.recipes([prose, code, odd_text(20000, 5)], VOCAB)
    texts = [prose[1000:1120], code[2000:2150], "", " ", "a", "\n", *(odd_text(60, seed) for seed in range(6))]
    result = {
        "versions": {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__},
        "hugging_face": [],
        "tiktoken": [],
    }
    for name, tokenizer in made.items():
        result["hugging_face"].append(
            {"name": name, "tokenizer": json.loads(tokenizer.to_str()), "texts": expected(tokenizer, texts)}
        )
    for name, pattern, specials in (("r50k_base", GPT2, 1), ("cl100k_base", CL100K, 5), ("o200k_base", O200K, 2)):
        ranks = ranks_of(made["gpt2"])
        names = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>"]
        names = names[:specials] if specials != 2 else [names[0], names[4]]
        encoding = tiktoken.Encoding(
            name,
            pat_str=pattern,
            mergeable_ranks=ranks,
            special_tokens={n: len(ranks) + i for i, n in enumerate(names)},
        )
        lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
        result["tiktoken"].append(
            {
                "name": name,
                "ranks": lines if name == "r50k_base" else "",
                "texts": [
                    {
                        "text": text,
                        "ids": encoding.encode(text, allowed_special="all"),
                        "ordinary": encoding.encode_ordinary(text),
                    }
                    for text in texts
                ],
            }
        )
    with open(HERE / "tokenizers.json", "w", encoding="utf-8") as out:
        json.dump(result, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


main()

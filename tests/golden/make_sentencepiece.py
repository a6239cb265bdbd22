#!/usr/bin/env python3
"""Writes tests/golden/sentencepiece.json: small models of SentencePiece, texts, and the ids and decoded texts that the
library gives.

    VENV/bin/python tests/golden/make_sentencepiece.py

Read by tests/data/sentencepiece_test.cpp. scripts/peer_tokenizers.py makes the same comparison with large ones.
"""

import base64
import json
import pathlib

import sentencepiece
import sentencepiece_recipes
from sentencepiece import sentencepiece_model_pb2
from tokenizer_recipes import odd_text

HERE = pathlib.Path(__file__).parent
HARD = ["", " ", "   ", "a", "\n", "  two  spaces ", "\u00e4BC ABC AB \uff21\t\u00a0x A", "cafe\u0301 e\u0302 AB\u0301 e",
        "\u2581\u2581\u2581 a\u2581", "<start_of_turn>user\n\n\nhi<tag>", "<s> </s> <0x41> <unk>",
        "aaaaaaaaaaaaa -------", "1234567"]


def long_text(count):
    """Letters of a linear congruential generator, which sentencepiece_test.cpp has too: long enough for sums of scores
    to be rounded."""
    letters, state, text = "etaoin shrdlu ", 1, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        text.append(letters[(state >> 16) % len(letters)])
    return "".join(text)


def with_near_ties(model):
    """A model of unigrams in which a pair of letters scores as its letters do: rounding then decides how to cut."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    scores = {piece.piece: piece.score for piece in proto.pieces}
    for piece in proto.pieces:
        letters = list(piece.piece)
        if piece.type == piece.NORMAL and len(letters) == 2 and all(letter in scores for letter in letters):
            piece.score = scores[letters[0]] + scores[letters[1]]
    return proto.SerializeToString()


def hash_of(ids):
    value = 0
    for token in ids:
        value = (value * 31 + token) % 2**32
    return value


def main():
    prose = (HERE.parent.parent / "docs" / "parallelism.md").read_text(encoding="utf-8")[:40000]
    code = (HERE.parent.parent / "data" / "utf8.cpp").read_text(encoding="utf-8")
    lines = [line for line in (prose + code + odd_text(3000, 5)).splitlines() if line]
    texts = [*HARD, prose[1000:1200], code[2000:2150], *(odd_text(40, seed) for seed in range(4))]
    result = {"version": sentencepiece.__version__, "models": []}
    models = sentencepiece_recipes.recipes(lines, 500, small=True)
    models["unigram_near_ties"] = with_near_ties(models["unigram"])
    for name, model in models.items():
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        found = []
        for text in texts:
            ids = processor.encode(text)
            decoded = processor.decode(ids)
            found.append({"text": text, "ids": ids} if decoded == text else {"text": text, "ids": ids, "decoded": decoded})
        ids = processor.encode(long_text(200000))
        result["models"].append({"name": name, "file": base64.b16encode(model).decode(), "texts": found,
                                 "long": {"ids": len(ids), "hash": hash_of(ids)}})
    with open(HERE / "sentencepiece.json", "w", encoding="utf-8") as out:
        json.dump(result, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


main()

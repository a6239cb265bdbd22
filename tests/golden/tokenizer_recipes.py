"""Tokenizers in the manner of published models, trained on a text here, and texts that are hard to cut.

Used by tests/golden/make_tokenizers.py (small ones, for the tests) and scripts/peer_tokenizers.py (large ones, for a
comparison with the libraries themselves). Needs `tokenizers`.
"""

import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LATER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = LATER.format(digits=r"\p{N}{1,3}")
QWEN2 = LATER.format(digits=r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s"
)
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
META = "\u2581"


def special(text, **options):
    return AddedToken(text, special=True, normalized=False, **options)


def learn(tokenizer, texts, vocab):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)


def byte_level(texts, vocab, split=None, normalizer=None, added=(), steps=(), ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    parts = [*steps]
    if split is not None:
        parts.append(pre_tokenizers.Split(Regex(split), "isolated"))
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None and not steps))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts) if len(parts) > 1 else parts[0]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    learn(tokenizer, texts, vocab)
    tokenizer.add_tokens(list(added))
    return tokenizer


def with_byte_fallback(texts, vocab, first, split=True):
    """A vocabulary as SentencePiece makes it: special tokens, bytes, then what was learnt, with U+2581 for spaces."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(replacement=META, prepend_scheme="always", split=split)
    learner.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocab, show_progress=False, limit_alphabet=vocab // 3)
    )
    learnt = json.loads(learner.to_str())["model"]
    tokens = [*first, *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(learnt["vocab"], key=learnt["vocab"].get)]
    ids = {}
    for token in tokens:
        ids.setdefault(token, len(ids))
    return models.BPE(
        vocab=ids, merges=[tuple(m) for m in learnt["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )


def template(tokenizer, begin, end=None):
    ids = [(t, tokenizer.token_to_id(t)) for t in (begin, end) if t]
    return processors.TemplateProcessing(single=f"{begin} $A" + (f" {end}" if end else ""), special_tokens=ids)


def recipes(texts, vocab):
    """name -> tokenizer. The vocabularies have about `vocab` tokens, learnt from `texts`."""
    made = {}
    made["gpt2"] = byte_level(texts, vocab, added=[special("<|endoftext|>")])

    llama3 = byte_level(
        texts,
        vocab,
        LLAMA3,
        ignore_merges=True,
        added=[special(t) for t in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")],
    )
    llama3.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(llama3, "<|begin_of_text|>")]
    )
    made["llama3"] = llama3

    made["qwen2"] = byte_level(
        texts,
        vocab,
        QWEN2,
        normalizers.NFC(),
        added=[
            special("<|endoftext|>"),
            special("<|im_start|>"),
            special("<|im_end|>"),
            AddedToken("<tool_call>", normalized=False),
            AddedToken("<think>", normalized=False),
        ],
    )
    made["o200k"] = byte_level(texts, vocab, O200K, added=[special("<|endoftext|>"), special("<|endofprompt|>")])
    made["deepseek"] = byte_level(
        texts,
        vocab,
        added=[special("<|end▁of▁sentence|>")],
        normalizer=normalizers.Sequence([]),
        steps=[
            pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
        ],
    )

    llama2 = Tokenizer(with_byte_fallback(texts, vocab, ["<unk>", "<s>", "</s>"]))
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend(META), normalizers.Replace(" ", META)])
    llama2.decoder = decoders.Sequence(
        [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    llama2.add_tokens([special("<unk>"), special("<s>"), special("</s>")])
    llama2.post_processor = template(llama2, "<s>")
    made["llama2"] = llama2

    gemma = Tokenizer(with_byte_fallback(texts, vocab, ["<pad>", "<eos>", "<bos>", "<unk>"]))
    gemma.normalizer = normalizers.Replace(" ", META)
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence([decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse()])
    gemma.add_tokens([special(t) for t in ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")])
    gemma.add_tokens(
        [AddedToken(f"<unused{i}>", normalized=False) for i in range(12)]
        + [AddedToken("\n" * i, normalized=False) for i in range(2, 5)]
    )
    gemma.post_processor = template(gemma, "<bos>")
    made["gemma"] = gemma

    metaspace = Tokenizer(with_byte_fallback(texts, vocab, ["<unk>", "<s>", "</s>"]))
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace(replacement=META, prepend_scheme="first", split=True)
    metaspace.decoder = decoders.Sequence(
        [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    metaspace.add_tokens([special("<unk>"), special("<s>"), special("</s>")])
    metaspace.post_processor = template(metaspace, "<s>", "</s>")
    made["metaspace"] = metaspace

    overlapping = byte_level(
        texts,
        vocab,
        QWEN2,
        added=[
            special("<|a|>"),
            special("<|a|>b", lstrip=True),
            special("<|ab"),
            special("|>b c", rstrip=True),
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("wor", normalized=False),
            AddedToken("left", lstrip=True, normalized=True),
            AddedToken("right", rstrip=True, normalized=True),
            AddedToken("Ünïts", single_word=True, lstrip=True, rstrip=True, normalized=True),
            AddedToken("  indented", normalized=False),
            special("é"),
        ],
        normalizer=normalizers.NFD(),
    )
    made["overlapping"] = overlapping

    lower = byte_level(
        texts,
        vocab,
        GPT2.replace(r"'(?:[sdmt]|ll|ve|re)| ?", "").replace(r"\s++$|", ""),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s{2,}"), " ")]),
        steps=[
            pre_tokenizers.Split("-", "merged_with_next"),
            pre_tokenizers.Split(",", "contiguous"),
            pre_tokenizers.Split(Regex(r"[;:]+"), "merged_with_previous"),
            pre_tokenizers.Split(Regex(r"\p{Sc}"), "removed"),
            pre_tokenizers.Split(Regex(r"[^_]+"), "isolated", invert=True),
        ],
        added=[special("<|endoftext|>"), AddedToken("Straße", normalized=True)],
    )
    made["lower"] = lower
    return made


SCRIPTS = {
    "latin": (0x41, 0x24F),
    "greek": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x4FF),
    "armenian": (0x531, 0x58A),
    "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x620, 0x66F),
    "devanagari": (0x900, 0x97F),
    "bengali": (0x980, 0x9FF),
    "tamil": (0xB80, 0xBFF),
    "telugu": (0xC00, 0xC7F),
    "thai": (0xE00, 0xE7F),
    "tibetan": (0xF00, 0xFDA),
    "georgian": (0x10A0, 0x10FF),
    "hangul": (0xAC00, 0xD7A3),
    "jamo": (0x1100, 0x11FF),
    "ethiopic": (0x1200, 0x137C),
    "khmer": (0x1780, 0x17F9),
    "mongolian": (0x1800, 0x1878),
    "hiragana": (0x3041, 0x309F),
    "katakana": (0x30A0, 0x30FF),
    "han": (0x4E00, 0x9FFF),
    "cherokee": (0x13A0, 0x13F5),
    "deseret": (0x10400, 0x1044F),
    "cuneiform": (0x12000, 0x12399),
    "han_b": (0x20000, 0x2A6DF),
    "han_i": (0x2EBF0, 0x2EE5D),
    "kawi": (0x11F00, 0x11F59),
    "garay": (0x10D40, 0x10D8F),
    "tulu": (0x11380, 0x113E2),
    "unassigned": (0x1DB00, 0x1DC00),
    "letterlike": (0x2100, 0x214F),
    "numbers": (0x2150, 0x218F),
    "enclosed": (0x2460, 0x24FF),
    "fullwidth": (0xFF01, 0xFFEE),
}
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "❤️", "🏳️‍🌈", "1️⃣", "🫠", "🪿", "🫆", "☃", "🧑🏿‍🚀"]
SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\n\n",
    " \n ",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\u2028",
    "\x0b",
    "\x0c",
    "\x85",
    "\u200b",
    "\ufeff",
    "\u1680",
    "\u202f ",
    "\t\t\n",
]
CONTRACTIONS = [
    "I'll",
    "it's",
    "DON'T",
    "we'Re",
    "you'VE",
    "'s",
    "''s",
    "l'\u017f",
    "x'\u212a",
    "I'M",
    "he'd'",
    "'ll've",
    "HTTPServer's",
    "camelCaseWord",
    "ABCdef",
    "ǅungla",
    "ʰa",
    "e\u0301A",
    "\u0301B",
]
SIGNS = list("!?.,;:-_/\\()[]{}<>|@#$%^&*+=~`\"'") + [
    "//",
    "/**\n",
    "://",
    "->",
    "...",
    "\u2026",
    "\u00bf",
    "€",
    "₿",
    "§",
    "\u2581",
    "\u2581\u2581",
    "\ufffd",
    "\ue000",
    "\x00",
    "\x7f",
]
MARKS = [
    0x300,
    0x301,
    0x302,
    0x323,
    0x327,
    0x328,
    0x345,
    0x5B0,
    0x5B7,
    0x64B,
    0x651,
    0x93C,
    0x94D,
    0x9BE,
    0xE38,
    0xE48,
    0x0F71,
    0x0F74,
    0x1161,
    0x11A8,
    0x1DFA,
    0x1AB0,
    0x302A,
    0x3099,
    0x309A,
    0x10A0F,
    0x1E94A,
    0x1D165,
    0x1133E,
    0x11357,
]
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<s>",
    "</s>",
    "<bos>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|a|>",
    "<|a|>b",
    "<|ab",
    "|>b c",
    "  <|a|>b  ",
    "word",
    "words",
    "sword",
    "wor",
    " left",
    "left ",
    "right  ",
    "Ünïts",
    " Ünïts ",
    "  indented",
    "é",
    "<tool_call>",
    "<unused3>",
    "<0x41>",
    "STRASSE",
    "Straße",
    "<unk>",
    "<|endof",
    "|endoftext|>",
    "<|fim_prefix|>",
    "<|endofprompt|>",
]


def scraps(rng):
    """A short text of one kind after the other, forever."""

    def letters(low, high, most=9):
        picked = (chr(rng.randint(low, high)) for _ in range(rng.randint(1, most)))
        return "".join(picked)

    def marked():
        text = ""
        for _ in range(rng.randint(1, 5)):
            text += rng.choice("aAeEoOuUnsS\u0391\u0627\u0915\u0e01\uac00\u1100\u212b\ufb01")
            text += "".join(chr(rng.choice(MARKS)) for _ in range(rng.choice([0, 0, 1, 1, 2, 3])))
        return text

    def anything():
        point = rng.choice([rng.randint(0, 0x2FFF), rng.randint(0, 0x1FFFF), rng.randint(0, 0x10FFFF)])
        return "" if 0xD800 <= point < 0xE000 else chr(point)

    kinds = [
        lambda: letters(*rng.choice(list(SCRIPTS.values()))),
        lambda: rng.choice(EMOJI),
        lambda: rng.choice(SPACES),
        lambda: " ",
        lambda: " ",
        lambda: rng.choice(CONTRACTIONS),
        lambda: rng.choice(SIGNS) * rng.randint(1, 3),
        marked,
        lambda: letters(0x30, 0x39),
        anything,
        lambda: rng.choice(SPECIALS),
        lambda: letters(0x61, 0x7A),
        lambda: letters(0x61, 0x7A).capitalize(),
        lambda: rng.choice(["\n", "\n", " \n", "\n\n"]),
    ]
    while True:
        yield rng.choice(kinds)()


def odd_text(size, seed):
    """About `size` characters of scraps."""
    rng = random.Random(seed)
    parts, length = [], 0
    for part in scraps(rng):
        parts.append(part)
        length += len(part)
        if length >= size:
            return "".join(parts)

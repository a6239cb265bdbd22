#!/usr/bin/env python3
"""Compares ids and speed of our tokenizers with those of the libraries that made them, on a text of many kinds.

    ./trireme peers tokenizers --python VENV/bin/python    (or VENV/bin/python scripts/peer_tokenizers.py)

VENV has `tokenizers`, `tiktoken`, `sentencepiece` and `protobuf` from pip; build/bin/tokenizer_bench must be built.
Tokenizers in the manner of GPT-2, Llama 2 and 3, Qwen, GPT-4o, Gemma, DeepSeek and tiktoken, and models of
SentencePiece, are trained here, on the same text (tests/golden/tokenizer_recipes.py and sentencepiece_recipes.py). A
second text has bytes that are not UTF-8. Ends with 1 if any id differs. The speeds of both are measured in turns, on
one thread, for the beginning of the text; the table has the medians of --rounds, and the median of the ratios within a
round.
"""

import argparse
import base64
import json
import os
import pathlib
import random
import re
import statistics
import time

import sentencepiece
import tiktoken
import tokenizers
from peer_common import ROOT, Report, add_folders, encoded, first_difference, print_versions, run

import sentencepiece_recipes
import tokenizer_recipes as made_by

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"


SPEED_CHARACTERS = 1_500_000  # of which the speed is measured


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folders(parser, "peer_tokenizers")
    parser.add_argument("--prose", action="append", default=[], help="a text file, or a folder of .md and .txt files")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--vocab", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3, help="of the speeds; 0: ids only")
    parser.add_argument("--only", default="", help="names of tokenizers, with commas")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def read_all(paths, endings):
    texts = []
    for path in map(pathlib.Path, paths):
        files = sorted(p for p in path.rglob("*") if p.suffix in endings) if path.is_dir() else [path]
        texts += [file.read_text(encoding="utf-8") for file in files]
    return "\n".join(texts)


def repeated(text, size):
    return (text * (size // max(len(text), 1) + 1))[:size]


def mixed_text(options):
    """Prose, code and scraps, in pieces of a few kilobytes in random order."""
    size = int(options.megabytes * 1e6)
    prose = repeated(read_all(options.prose or [ROOT / "docs"], {".md", ".txt"}), int(size * 0.4))
    code = repeated(read_all([ROOT / "core", ROOT / "train"], {".cpp", ".h"}), int(size * 0.28))
    odd = made_by.odd_text(int(size * 0.22), options.seed)  # its characters take more than two bytes each
    rng = random.Random(options.seed)
    pieces = []
    for text in (prose, code, odd):
        at = 0
        while at < len(text):
            end = at + rng.randint(500, 5000)
            pieces.append(text[at:end])
            at = end
    rng.shuffle(pieces)
    return "".join(pieces)


BROKEN = [b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98"]


def broken(data, seed):
    """The text with bytes that are not UTF-8 in places, also within characters."""
    rng = random.Random(seed)
    parts, at = [], 0
    while at < len(data):
        end = at + rng.randint(1, 4000)
        parts += [data[at:end], rng.choice(BROKEN)]
        at = end
    return b"".join(parts)


def alphabet():
    """GPT-2's characters for the bytes."""
    free = 256
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        yield chr(byte if printable else free)
        free += not printable


def continuing(tokenizer):
    """The same for a text that is not at the beginning: nothing is put in front of it."""
    settings = json.loads(tokenizer.to_str())
    steps = (settings["normalizer"] or {}).get("normalizers", [])
    if any(step["type"] == "Prepend" for step in steps):
        settings["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Prepend"]
    if (settings["pre_tokenizer"] or {}).get("type") == "Metaspace":
        settings["pre_tokenizer"]["prepend_scheme"] = "never"
    result = tokenizers.Tokenizer.from_str(json.dumps(settings))
    result.encode_special_tokens = True
    return result


def decoded_as_spelled(tokenizer, ids):
    """The library's text, but added tokens are as their file spells them. The library normalizes them, and takes their
    letters of Latin-1 for bytes, so that "Straße" is not the text that it was made from."""
    def decode(some):
        return tokenizer.decode(some, skip_special_tokens=False)

    in_model = set(json.loads(tokenizer.to_str())["model"]["vocab"].values())
    spelled = {
        i: token.content
        for i, token in tokenizer.get_added_tokens_decoder().items()
        if i not in in_model and token.normalized and decode([i]) != token.content
    }
    if not spelled:
        return decode(ids)
    parts, begin = [], 0
    for at, i in enumerate(ids):
        if i in spelled:
            parts += [decode(ids[begin:at]), spelled[i]]
            begin = at + 1
    return "".join([*parts, decode(ids[begin:])])


def ids_of_broken(data, first, encode_all, id_of_byte):
    """Each byte that is not UTF-8 is a word of its own, and the text on both sides is cut there: `first` encodes what is
    in front of the first one, `encode_all` the other texts."""
    parts = re.split("([\udc80-\udcff])", data.decode("utf-8", "surrogateescape"))
    ids = list(first(parts[0]))
    for byte, more in zip(parts[1::2], encode_all(parts[2::2])):
        ids.append(id_of_byte(ord(byte) - 0xDC00))
        ids += more
    return ids


def speed_of(o, tokenizer, data, *flags):
    printed = run(o, "tokenizer_bench", "--tokenizer", tokenizer, "--data", data, "--ordinary", *flags)
    return json.loads(printed)["encode_mb_s"]


def compare_ids(report, what, ours, theirs, show):
    if ours == theirs:
        return report.line(True, f"{what}: {len(ours)} ids")
    at = first_difference(ours, theirs)
    pieces = [[show(i) for i in ids[max(at - 3, 0):at + 4]] for ids in (ours, theirs)]
    report.line(False, f"{what}: from {at} of {len(ours)} and {len(theirs)}: ours {pieces[0]}, theirs {pieces[1]}")


def seconds(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


class Comparison:
    """The texts, what was found so far, and the rows of the table of speeds."""

    def __init__(self, o):
        self.o, self.report, self.rows = o, Report(), []
        self.data, self.bad, self.beginning = o.work / "text.txt", o.work / "broken.txt", o.work / "beginning.txt"
        self.data.write_bytes(mixed_text(o).encode("utf-8"))
        self.text = self.data.read_bytes().decode("utf-8")
        self.size = self.data.stat().st_size
        self.bad.write_bytes(broken(self.data.read_bytes(), o.seed))
        self.beginning.write_text(self.text[:SPEED_CHARACTERS], encoding="utf-8")

    def broken(self, name, tokenizer, ids, show):
        ours = encoded(self.o, tokenizer, self.bad, "--ordinary")
        compare_ids(self.report, f"{name}, with bytes that are not UTF-8", ours, ids, show)

    def whole(self, name, tokenizer, encoders, decode, show):
        """`encoders`: what is compared, our flags, the library's function; the speed of the last one is measured."""
        path = self.o.work / "decoded.txt"
        for what, flags, encode in encoders:
            ours, theirs = encoded(self.o, tokenizer, self.data, "--text", path, *flags), encode(self.text)
            compare_ids(self.report, f"{name}, {what}", ours, theirs, show)
            if what == encoders[0][0] and ours == theirs:
                decoded = path.read_bytes().decode("utf-8", errors="replace")  # as the library does
                self.report.line(decoded == decode(theirs), f"{name}, the decoded text")
        text, speeds = self.text[:SPEED_CHARACTERS], []
        for _ in range(self.o.rounds):
            ours = speed_of(self.o, tokenizer, self.beginning)
            theirs = self.beginning.stat().st_size / 1e6 / seconds(encoders[-1][2], text)
            speeds.append((ours, theirs, ours / theirs))
        if speeds:
            two = speed_of(self.o, tokenizer, self.beginning, "--threads", 2)
            self.rows.append((name, *map(statistics.median, zip(*speeds)), two))

    def print_speeds(self):
        if not self.rows:
            return
        print("\n| tokenizer | Trireme, 1 thread | library, 1 thread | ratio | Trireme, 2 threads |")
        print("|---|---|---|---|---|")
        for name, ours, theirs, ratio, two in self.rows:
            print(f"| {name} | {ours:.1f} MB/s | {theirs:.1f} MB/s | {ratio:.1f} | {two:.1f} MB/s |")


def encode_ordinary(tokenizer, texts):
    tokenizer.encode_special_tokens = True
    return [found.ids for found in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def compare_tokenizer_json(c, name, tokenizer):
    path = c.o.work / f"{name}.json"
    path.write_text(tokenizer.to_str(), encoding="utf-8")

    def encode(text, template):
        tokenizer.encode_special_tokens = False
        return tokenizer.encode(text, add_special_tokens=template).ids

    c.whole(
        name,
        f"bpe:{path}",
        [
            ("with template", ["--specials"], lambda text: encode(text, True)),
            ("without template", [], lambda text: encode(text, False)),
            ("special tokens as text", ["--ordinary"], lambda text: encode_ordinary(tokenizer, [text])[0]),
        ],
        lambda ids: decoded_as_spelled(tokenizer, ids),
        tokenizer.id_to_token,
    )
    later = continuing(tokenizer)
    falls_back = json.loads(tokenizer.to_str())["model"]["byte_fallback"]
    spelled = [f"<0x{byte:02X}>" for byte in range(256)] if falls_back else list(alphabet())
    ids = ids_of_broken(
        c.bad.read_bytes(),
        lambda part: encode_ordinary(tokenizer, [part])[0],
        lambda parts: encode_ordinary(later, parts),
        lambda byte: tokenizer.token_to_id(spelled[byte]),
    )
    c.broken(name, f"bpe:{path}", ids, tokenizer.id_to_token)


ALL_NAMES = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>"]
ENCODINGS = {  # their pattern, the number of their ranks, and their special tokens
    "r50k_base": (made_by.GPT2, 50256, {ALL_NAMES[0]: 50256}),
    "cl100k_base": (made_by.CL100K, 100256, dict(zip(ALL_NAMES, [100257, 100258, 100259, 100260, 100276]))),
    "o200k_base": (made_by.O200K, 199998, {ALL_NAMES[0]: 199999, ALL_NAMES[4]: 200018}),
}


def ranks_of(tokenizer):
    bytes_of = {character: byte for byte, character in enumerate(alphabet())}
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    return {bytes(bytes_of[c] for c in token): rank for token, rank in vocab.items()}


def compare_ranks(c, name, ranks):
    path = c.o.work / "ranks.tiktoken"
    pattern, count, specials = ENCODINGS[name]
    # A file with another number of ranks is refused: the rest are tokens that no merge makes.
    ranks = ranks | {b"\xff\xfe\xff" + rank.to_bytes(4, "big"): rank for rank in range(len(ranks), count)}
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    tokenizer = f"tiktoken:{name}:{path}"

    def show(i):
        return encoding.decode_bytes([i])

    c.whole(
        f"{name} (tiktoken)",
        tokenizer,
        [
            ("with template", ["--specials"], lambda text: encoding.encode(text, allowed_special="all")),
            ("special tokens as text", ["--ordinary"], encoding.encode_ordinary),
        ],
        encoding.decode,
        show,
    )
    ids = ids_of_broken(
        c.bad.read_bytes(),
        encoding.encode_ordinary,
        lambda parts: map(encoding.encode_ordinary, parts),
        lambda byte: ranks[bytes([byte])],
    )
    c.broken(f"{name} (tiktoken)", tokenizer, ids, show)


def compare_sentencepiece(c, name, model):
    path = c.o.work / f"{name}.model"
    path.write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    encoders = [("special tokens as text", ["--ordinary"], processor.encode)]
    c.whole(f"{name} (SentencePiece)", f"sentencepiece:{path}", encoders, processor.decode, processor.id_to_piece)
    if name not in ("llama2", "gemma"):  # bytes are tokens there
        c.broken(f"{name} (SentencePiece)", f"sentencepiece:{path}", processor.encode(c.bad.read_bytes()),
                 processor.id_to_piece)


def main():
    o = arguments()
    o.work.mkdir(parents=True, exist_ok=True)
    print_versions("tokenizers", "tiktoken", "sentencepiece")
    c = Comparison(o)
    print(f"text: {c.size} bytes, {len(c.text)} characters, {len(set(c.text))} different ones", flush=True)
    names = set(filter(None, o.only.split(",")))

    def wanted(name, kind=None):
        return not names or name in names or kind in names

    begin = time.perf_counter()
    training = [c.text[i : i + 2000] for i in range(0, len(c.text), 10000)]
    lines = [line for part in training for line in part.splitlines() if line]
    made = made_by.recipes(training, o.vocab)
    models = sentencepiece_recipes.recipes(lines[:40000], o.vocab // 4, small=False)
    print(f"trained {len(made)} tokenizers of about {o.vocab} tokens and {len(models)} models of SentencePiece of "
          f"{o.vocab // 4} in {time.perf_counter() - begin:.0f} s", flush=True)
    for name, tokenizer in made.items():
        if wanted(name):
            compare_tokenizer_json(c, name, tokenizer)
    ranks = ranks_of(made["gpt2"])
    for name in ENCODINGS:
        if wanted(name):
            compare_ranks(c, name, ranks)
    for name, model in models.items():
        if wanted(name, "sentencepiece"):
            compare_sentencepiece(c, name, model)
    c.print_speeds()
    c.report.end()


if __name__ == "__main__":
    main()

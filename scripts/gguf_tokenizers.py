"""Compares the tokenizers of our GGUF files with llama.cpp's, on a text of many kinds: for scripts/peer_gguf.py.

Needs `tokenizers`, `sentencepiece` and `protobuf` besides, which train the tokenizers here. Each goes through a model
in Hugging Face's layout: a folder with its tokenizer.json or tokenizer.model, then a GGUF file. Characters that
Python's Unicode tables lack (version 14 in Python 3.11) are left out: those of llama.cpp are older than ours.
"""

import json
import shutil
import unicodedata

import llama_cpp
from peer_common import ROOT, encoded, first_difference, run
from tokenizers import normalizers

import sentencepiece_recipes
import tokenizer_recipes

MODEL = ["--layers", "1", "--heads", "1", "--width", "32", "--context", "64", "--ffn-width", "32", "--norm", "rms",
         "--positions", "rope", "--bias", "off", "--activation", "swiglu", "--steps", "1", "--eval-every", "0"]


def cut_as_llama_cpp(settings):
    """llama.cpp's pattern of GPT-4o takes letters beyond ASCII for both upper and lower case. Marks (M) are no parts of
    words there, and its endings such as 's have ASCII letters only."""
    ending = "(?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?"
    pattern = tokenizer_recipes.O200K
    for part, by in ((tokenizer_recipes.UPPER, r"(?:(?![a-z])\p{L})"), (tokenizer_recipes.LOWER, r"(?:(?![A-Z])\p{L})"),
                     (tokenizer_recipes.ENDING, ending)):
        assert pattern.count(part) == 2
        pattern = pattern.replace(part, by)
    step = settings["pre_tokenizer"]["pretokenizers"][0]
    assert step["pattern"]["Regex"] == tokenizer_recipes.O200K
    step["pattern"]["Regex"] = pattern


def find_as_llama_cpp(settings):
    """llama.cpp looks for a user's pieces before U+2581 stands for spaces. Those that have it, such as Gemma's for runs
    of spaces, are then found where the text has it; runs of spaces, or of both, are merged."""
    kept = [token for token in settings["added_tokens"] if token["normalized"]]
    assert any("\u2581" in token["content"] for token in kept)
    for token in kept:
        token["normalized"] = False


# Where llama.cpp is known to give other ids: what makes our tokenizer.json follow its rule. Our ids must then be
# llama.cpp's, so that any other difference is found.
KNOWN = {("o200k", "odd"): cut_as_llama_cpp, ("gemma", "odd"): find_as_llama_cpp}


def text_of(megabytes, odd):
    size = int(megabytes * 1e6)
    files = [path for folder in ("docs", "core") for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in (".md", ".cpp")]
    prose = "\n".join(path.read_text(encoding="utf-8") for path in files)
    parts = [prose[at : at + 3000] for at in range(0, min(len(prose), size), 3000)]
    if odd:
        scraps = tokenizer_recipes.odd_text(size // 4, 3)
        scraps = "".join(c for c in scraps if unicodedata.category(c) != "Cn")
        parts += [scraps[at : at + 1000] for at in range(0, len(scraps), 1000)]
    return "\n".join(parts)


def folder_of(o, name, specification, from_folder):
    """A small model with this tokenizer, in Hugging Face's layout."""
    data = o.work / "short.txt"
    data.write_text("A short text to train on. " * 200, encoding="utf-8")
    trained, folder = o.work / f"{name}-run", o.work / f"{name}-folder"
    tokenizer = "byte" if from_folder else specification
    vocab = ["--vocab", "65000"] if from_folder else []
    run(o, "train_gpt", "--data", data, "--tokenizer", tokenizer, *vocab, *MODEL, "--out", trained)
    run(o, "convert", "hf", trained, folder)
    if from_folder:
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
        shutil.copy(specification.split(":", 1)[1], folder / from_folder)
    return folder


def changed(o, name, folder, change):
    """Our tokenizer with a change of its tokenizer.json, which a folder with tokenizer.model gets by an import."""
    path = o.work / f"{name}-changed.json"
    if path.exists():
        return f"bpe:{path}"
    if not (folder / "tokenizer.json").exists():
        imported, exported = o.work / f"{name}-imported", o.work / f"{name}-exported"
        run(o, "convert", "hf", folder, imported)
        run(o, "convert", "hf", imported, exported)
        folder = exported
    settings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(settings)
    path.write_text(json.dumps(settings), encoding="utf-8")
    return f"bpe:{path}"


def difference(ours, theirs, peer):
    at = first_difference(ours, theirs)
    front, own, other = (peer.detokenize(ids, special=True)
                         for ids in (theirs[max(at - 4, 0):at], ours[at:at + 6], theirs[at:at + 6]))
    return f"from {at} of {len(ours)} and {len(theirs)}: behind {front!r}, ours {own!r}, llama.cpp's {other!r}"


def compare(o, report, texts, name, specification, from_folder):
    folder, path = folder_of(o, name, specification, from_folder), o.work / f"{name}-tokenizer.gguf"
    run(o, "convert", "gguf", folder, path)
    peer = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for what, text in texts.items():
        if name == "qwen2":  # llama.cpp has no NFC
            text = normalizers.NFC().normalize_str(text)
        data = o.work / "text.txt"
        data.write_bytes(text.encode())
        for flags, special in ((["--ordinary"], False), ([], True)):
            ours = encoded(o, specification if specification == "byte" else f"bpe:{folder}", data, *flags)
            theirs = peer.tokenize(text.encode(), add_bos=False, special=special)
            note = f"{len(theirs)} ids"
            if ours != theirs:
                note = difference(ours, theirs, peer)
                change = KNOWN.get((name, what))
                if change is not None:
                    as_theirs = encoded(o, changed(o, name, folder, change), data, *flags)
                    same = as_theirs == theirs
                    note += f"; with its rule: {'the same' if same else difference(as_theirs, theirs, peer)}"
                    ours = as_theirs
            report.line(ours == theirs,
                        f"{name:8} {what:7} {'special tokens found' if special else 'special tokens as text'}: {note}")


def compare_all(o, report):
    texts = {"prose": text_of(o.megabytes, False), "odd": text_of(o.megabytes, True)}
    training = [texts["odd"][at : at + 2000] for at in range(0, len(texts["odd"]), 4000)]
    made = []
    for name, tokenizer in tokenizer_recipes.recipes(training, 8000).items():
        if name in ("gpt2", "llama3", "qwen2", "o200k"):
            path = o.work / f"{name}.json"
            path.write_text(tokenizer.to_str(), encoding="utf-8")
            made.append((name, f"bpe:{path}", None))
    lines = [line for part in training for line in part.splitlines() if line]
    for name, model in sentencepiece_recipes.plain(lines, 6000).items():
        path = o.work / f"{name}.model"
        path.write_bytes(model)
        made.append((name, f"sentencepiece:{path}", "tokenizer.model"))
    made.append(("byte", "byte", None))
    for name, *how in made:
        if o.only in (None, name):
            compare(o, report, texts, name, *how)

"""Models of SentencePiece in the manner of published ones, trained on a text here.

Used by tests/golden/make_sentencepiece.py (small ones, for the tests) and scripts/peer_tokenizers.py (large ones, for a
comparison with the library itself). Needs `sentencepiece` and `protobuf`.
"""

import io
import os
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as messages

PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
BYTES = {"byte_fallback": True, "character_coverage": 0.98}
KEPT = ["\n", "\n\n", "<start_of_turn>", "\u2581\u2581", "\u2581\u2581\u2581", "<tag"]
# What the rules of the library do, in few bytes: the rules of NFKC take 240 kB.
RULES = [("\uff21", "A"), ("\u00e4", "ae"), ("\t", " "), ("\u00a0", " "), ("ABC", "x y"), ("AB", "q"), ("\u200b", ""),
         ("e\u0301", "\u00e9")]


def trained(texts, vocab, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocab,
        hard_vocab_limit=False,
        max_sentence_length=100000,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def with_ties(model):
    """As for languages that were added to a published model: many pieces have one score."""
    message = messages.ModelProto.FromString(model)
    normal = [piece for piece in message.pieces if piece.type == messages.ModelProto.SentencePiece.NORMAL]
    for i, piece in enumerate(normal):
        if i % 3 == 0 and len(piece.piece) > 1:
            piece.score = -5.0
    return message.SerializeToString()


def plain(texts, vocab):
    """Models of merges alone, which a tokenizer.json and a GGUF file can hold."""
    return {
        "llama2": trained(texts, vocab, model_type="bpe", split_digits=True, allow_whitespace_only_pieces=True,
                          **PLAIN, **BYTES),
        "gemma": trained(texts, vocab, model_type="bpe", add_dummy_prefix=False, user_defined_symbols=KEPT,
                         control_symbols=["<mask>"], split_digits=True, **PLAIN, **BYTES),
    }


def recipes(texts, vocab, small):
    """name -> bytes of a model. `small`: without the library's rules."""
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w", encoding="utf-8") as file:
            for text, by in RULES:
                file.write(" ".join(f"{ord(c):x}" for c in text) + "\t" + " ".join(f"{ord(c):x}" for c in by) + "\n")
        changed = {"normalization_rule_tsv": rules} if small else {"normalization_rule_name": "nmt_nfkc"}
        rare = {"character_coverage": 0.98}  # the others are unknown
        folded = changed if small else {"normalization_rule_name": "nmt_nfkc_cf"}
        made = {
            **plain(texts, vocab),
            "bpe": trained(texts, vocab, model_type="bpe", **changed, **rare),
            "bpe_kept": trained(texts, vocab, model_type="bpe", user_defined_symbols=KEPT, **folded, **BYTES),
            "bpe_across": trained(texts, vocab, model_type="bpe", split_by_whitespace=False, **changed, **rare),
            "unigram": trained(texts, vocab, model_type="unigram", **changed, **rare),
            "unigram_kept": trained(texts, vocab, model_type="unigram", user_defined_symbols=KEPT, **PLAIN, **BYTES),
            "unigram_suffix": trained(texts, vocab, model_type="unigram", treat_whitespace_as_suffix=True, **changed, **rare),
            "unigram_across": trained(texts, vocab, model_type="unigram", split_by_whitespace=False, **PLAIN, **rare),
        }
    made["llama2_ties"] = with_ties(made["llama2"])
    return made

#!/usr/bin/env python3
"""Writes data/unicode_data.cpp: the Unicode properties that tokenizers need, as the libraries themselves know them.

    VENV/bin/python scripts/make_unicode_tables.py data/unicode_data.cpp

VENV has `tokenizers` and `tiktoken` from pip. They are asked about every code point, so that a text gets their ids with
code points of any Unicode version: PCRE2's tables, and Python's, are of other versions.
Read next: data/unicode.h, which reads the tables.
"""

import sys

import tiktoken
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
BATCH = 4096


def batches():
    for first in range(0, len(CODE_POINTS), BATCH):
        part = CODE_POINTS[first : first + BATCH]
        yield part, "".join(map(chr, part))


def of_tokenizers(step):
    """The code points that a pre-tokenizer removes."""
    found = set()
    for part, text in batches():
        kept = set("".join(piece for piece, _ in step.pre_tokenize_str(text)))
        found.update(c for c in part if chr(c) not in kept)
    return found


def of_tiktoken(pattern):
    """The code points that the pattern matches: tiktoken drops all others."""
    ranks = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    found = set()
    for _, text in batches():
        found.update(map(ord, encoding.decode(encoding.encode_ordinary(text))))
    return found


def removed(pattern):
    return of_tokenizers(pre_tokenizers.Split(Regex(pattern), "removed"))


def runs(value_of):
    """(first code point, value) where the value changes."""
    result = []
    for c in range(0x110000):
        value = value_of(c)
        if not result or result[-1][1] != value:
            result.append((c, value))
    return result


def in_ranges(points):
    return [c << 1 | int(inside) for c, inside in runs(lambda c: c in points)]


def combining_classes(marks):
    """The canonical combining class of each mark, from the order into which NFD brings pairs of marks. The classes are
    numbered by their order, from 1: only comparisons matter."""
    nfd = normalizers.NFD()

    def above(a, b):
        return a != b and nfd.normalize_str("a" + chr(a) + chr(b)) == "a" + chr(b) + chr(a)

    reordering = [c for c in marks if above(c, 0x0334) or above(0x0345, c) or above(0x0334, c)]
    representatives = []  # one of each class, ascending
    classes = {}
    for c in reordering:
        low = 0
        while low < len(representatives) and above(c, representatives[low]):
            low += 1
        if low == len(representatives) or above(representatives[low], c):
            representatives.insert(low, c)
    for c in reordering:
        classes[c] = 1 + sum(above(c, r) for r in representatives)
    return classes


def wide(name, values, comment):
    lines = [
        f"// {comment}",
        f"constexpr std::uint32_t {name}_values[] = {{",
    ]
    line = "     "
    for value in values:
        item = f" {value:#x},"
        if len(line) + len(item) > 120:
            lines.append(line)
            line = "     "
        line += item
    return "\n".join(lines + [line, "};", f"std::span<const std::uint32_t> {name}() {{ return {name}_values; }}", ""])


def main():
    category = {}
    for number, name in enumerate(CATEGORIES[1:], 1):
        for c in removed(rf"\p{{{name}}}"):
            assert c not in category, (name, hex(c))
            category[c] = number
    letters = {c for c, n in category.items() if CATEGORIES[n][0] == "L"}
    numbers = {c for c, n in category.items() if CATEGORIES[n][0] == "N"}
    marks = {c for c, n in category.items() if CATEGORIES[n][0] == "M"}
    assert letters == of_tiktoken(r"\p{L}") and numbers == of_tiktoken(r"\p{N}")
    assert marks == of_tiktoken(r"\p{M}")
    spaces = removed(r"\s")
    assert spaces == of_tiktoken(r"\s")
    assert removed(r"\d") == {c for c, n in category.items() if CATEGORIES[n] == "Nd"} == of_tiktoken(r"\d")
    digits = pre_tokenizers.Digits()
    numeric = {c for c in CODE_POINTS if len(digits.pre_tokenize_str(f"x{chr(c)}x")) == 3}
    plain = letters | marks | {c for c, n in category.items() if CATEGORIES[n] in ("Nd", "Nl", "Pc")}
    words = of_tiktoken(r"\w") ^ plain

    def mapped(step):
        normalize = step.normalize_str
        return {c: normalize(chr(c)) for c in CODE_POINTS if normalize(chr(c)) != chr(c)}

    hangul = range(0xAC00, 0xD7A4)
    canonical = {c: t for c, t in mapped(normalizers.NFD()).items() if c not in hangul}
    compatible = {c: t for c, t in mapped(normalizers.NFKD()).items() if c not in hangul and canonical.get(c) != t}
    lower = mapped(normalizers.Lowercase())
    classes = combining_classes(sorted(marks - canonical.keys()))
    nfc = normalizers.NFC()
    pairs = []  # first, second, composed
    for c, text in sorted(canonical.items()):
        # A full decomposition of three characters or more composes step by step: all but the last, then the last.
        first = nfc.normalize_str(text[:-1])
        if len(text) > 1 and len(first) == 1 and nfc.normalize_str(first + text[-1]) == chr(c):
            pairs += [ord(first), ord(text[-1]), c]

    def texts(table):
        result = []
        for c, text in sorted(table.items()):
            result += [len(text) << 24 | c, *map(ord, text)]
        return result

    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(
            f"""// Generated by scripts/make_unicode_tables.py; do not edit. From tokenizers {tokenizers.__version__} and
// tiktoken {tiktoken.__version__}, which have the properties of Unicode 16, and tokenizers' own tables for normal forms.
// Read next: data/unicode.h.
#include "data/unicode_data.h"

// clang-format off

namespace trireme::unicode_data {{

"""
        )
        out.write(
            wide(
                "category_runs",
                [c << 5 | n for c, n in runs(lambda c: category.get(c, 0))],
                "first code point << 5 | general category, for each run of equal ones",
            )
        )
        out.write("\n" + wide("space_runs", in_ranges(spaces), "first code point << 1 | whether White_Space"))
        out.write(
            "\n"
            + wide(
                "word_exceptions",
                in_ranges(words),
                "first code point << 1 | whether \\w differs from L, M, Nd, Nl and Pc",
            )
        )
        out.write(
            "\n"
            + wide(
                "numeric_exceptions",
                in_ranges(numeric ^ numbers),
                "first code point << 1 | whether a number to the Digits step only, whose Unicode is 17",
            )
        )
        out.write(
            "\n"
            + wide(
                "combining_classes",
                [c << 8 | n for c, n in sorted(classes.items())],
                "code point << 8 | the number of its canonical combining class, by order, from 1",
            )
        )
        out.write("\n" + wide("canonical", texts(canonical), "length << 24 | code point, then its full decomposition"))
        out.write("\n" + wide("compatible", texts(compatible), "the same for NFKD, where it differs"))
        out.write("\n" + wide("compositions", pairs, "first, second, composed"))
        out.write("\n" + wide("lower_case", texts(lower), "length << 24 | code point, then its lower case"))
        out.write("\n}  // namespace trireme::unicode_data\n")


main()

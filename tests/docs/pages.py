"""The pages of the documentation, taken apart: fenced blocks, inline code, commands. Used by the tests beside it.

A fenced block has a language. ```cpp is code that compiles (snippets_test.py says how), ```sh is commands that are run
(commands_test.py), ```text is shown output, or commands that take long or have placeholders: of these, programs and
flags are checked.
"""

import os
import re
import shlex

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCE = re.compile(r"^( *)```([\w+-]*)\s*$")
COMMENT = re.compile(r"^ *<!-- (.*) -->\s*$")
COMMAND = re.compile(r"^ *(?:\w+=\S* )*(?:\./trireme|\.ci/run|build/bin/|mpirun|scripts/|bench/|cmake |sbatch)")
SEPARATORS = {"&&", "||", "|", ";", "--", "&"}


class Block:
    """A fenced block: `line` is that of its first line in the page, `note` the HTML comment above it, or ''."""

    def __init__(self, page, line, language, lines, note):
        self.page, self.line, self.language, self.lines, self.note = page, line, language, lines, note
        self.where = f"{page}:{line}"


def pages():
    """README and every page of docs, bench, the labs and the museum, relative to the root."""
    found = ["README.md", "bench/README.md"]
    labs = sorted(f"examples/labs/{name}" for name in os.listdir(os.path.join(ROOT, "examples/labs")))
    for folder in ("docs", "bench/results", "examples/museum", "examples/labs", *labs):
        if not os.path.isdir(os.path.join(ROOT, folder)):
            continue
        inside = os.listdir(os.path.join(ROOT, folder))
        found += [f"{folder}/{name}" for name in sorted(inside) if name.endswith(".md")]
    return found


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def blocks(page):
    found, note, opened = [], "", None
    for number, line in enumerate(read(page).splitlines(), 1):
        fence = FENCE.match(line)
        if opened is not None:
            if fence and fence[1] == opened.indent and not fence[2]:
                found.append(opened)
                opened = None
            else:
                opened.lines.append(line[len(opened.indent):])
        elif fence:
            opened = Block(page, number + 1, fence[2], [], note)
            opened.indent = fence[1]
            note = ""
        elif line.strip():
            comment = COMMENT.match(line)
            note = comment[1] if comment else ""
    if opened is not None:
        raise ValueError(f"{opened.where}: the fence is not closed")
    return found


def tables(page):
    """(line, note, cells) of each row below an HTML comment `<!-- rows in: .. -->`; cells: their `code`, or ''."""
    note, found = "", []
    for number, line in enumerate(read(page).splitlines(), 1):
        comment = COMMENT.match(line)
        if comment:
            note = comment[1] if comment[1].startswith("rows in: ") else ""
        elif note and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if any("`" in cell for cell in cells):
                found.append((number, note, [cell.strip("`") if cell.startswith("`") else "" for cell in cells]))
        elif line.strip():
            note = ""
    return found


def prose(page):
    """The page without fenced blocks and HTML comments; as many lines as the page has."""
    kept, inside = [], False
    for line in read(page).splitlines():
        fence = FENCE.match(line)
        kept.append("" if inside or fence or COMMENT.match(line) else line)
        if fence:
            inside = not inside
    return "\n".join(kept)


def inline_code(page):
    """(line, text) of each `piece of code` in the prose; one that is broken over two lines is joined."""
    text = prose(page)
    for found in re.finditer(r"`([^`\n]+(?:\n[^`\n]+)?)`", text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[1].split())


def command_lines(block):
    """(line, command) of each command in a block, continued lines joined, without those that are output."""
    number = 0
    while number < len(block.lines):
        first, text = number, block.lines[number]
        while text.endswith("\\") and number + 1 < len(block.lines):
            number += 1
            text = text[:-1] + block.lines[number]
        if COMMAND.match(text):
            yield block.line + first, text
        number += 1


def calls(command):
    """The programs that a command calls: [[program, word, ...], ...]. Words of none are left out."""
    try:
        words = shlex.split(re.sub(r"(^|\s)#.*", "", command))
    except ValueError:  # an apostrophe in prose
        words = command.split()
    found, current = [], None
    for word in words:
        if re.match(r"(build/bin/|scripts/|bench/)[^ ]* ", word):  # a quoted command
            found.append(shlex.split(word))
        elif re.match(r"(\./trireme$|\.ci/run$|build/bin/|scripts/|bench/)", word):
            current = [word]
            found.append(current)
        elif word in SEPARATORS or word == "mpirun":
            current = None
        elif current is not None:
            current.append(word)
    return found

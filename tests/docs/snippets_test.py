#!/usr/bin/env python3
"""Every ```cpp block of the documentation compiles, or stands in a source that does.

    tests/docs/snippets_test.py --build build

An HTML comment above the fence says what a block is:

    (none)                                          a whole program or file
    <!-- compiled in: tests/docs/saving.cpp -->     put in the place of the line `// SNIPPET` of that file
    <!-- excerpt of: nn/linear.cpp -->              its lines stand in that file, one after the other, whatever their
                                                    indentation; a line `...` stands for lines that were left out

The rows of a table of code are in a source that is a test, too:

    <!-- rows in: tests/reference/from_pytorch_test.cpp -->           its last cell
    <!-- rows in: tests/reference/from_pytorch_test.cpp, values -->   both cells, as same("first cell", last cell)

All blocks are compiled as one source, each in a namespace of its own, with the flags of the build but without warnings.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pages  # noqa: E402

BUILD = "build"
FLAGS_OF = "examples/tutorials/own_block.cpp"  # a source that may include every layer


def compile_flags():
    """The compiler and its flags for a source of the examples; None without a configured build."""
    path = os.path.join(BUILD, "compile_commands.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        entries = [e for e in json.load(file) if e["file"] == os.path.join(pages.ROOT, FLAGS_OF)]
    if not entries:
        return None
    words = shlex.split(entries[0]["command"])
    kept = [w for w in words if w != "-c" and not w.endswith((".cpp", ".o")) and w != "-o"]
    return kept + ["-w", "-fsyntax-only", "-x", "c++"], entries[0]["directory"]


def compiled_source(block):
    """The text of a block with what its comment adds, and compiler messages that name the page."""
    snippet = f'#line {block.line} "{block.page}"\n' + "\n".join(block.lines) + "\n"
    if not block.note.startswith("compiled in: "):
        return snippet
    context = block.note.removeprefix("compiled in: ")
    before, after = re.split(r"^ *// SNIPPET\n", pages.read(context), flags=re.M)
    line = before.count("\n") + 2
    return f'#line 1 "{context}"\n{before}{snippet}#line {line} "{context}"\n{after}'


def together(sources):
    """One source: the includes of all on top, then each in a namespace."""
    includes, bodies = {}, []
    for number, source in enumerate(sources):
        kept = []
        for line in source.splitlines():
            if line.startswith("#include"):
                includes[line] = None
            kept.append("" if line.startswith("#include") else line)
        bodies.append(f"namespace snippet_{number} {{\n" + "\n".join(kept) + "\n}\n")
    return "\n".join([*includes, *bodies])


def excerpt_error(lines, source):
    """What is wrong with an excerpt; '' when each line follows the one before in the source, but where `...` stands."""
    there = [line.strip() for line in source.splitlines() if line.strip()]
    at, gap = 0, True
    for line in filter(None, map(str.strip, lines)):
        if line == "...":
            gap = True
            continue
        places = [i for i in range(at, len(there)) if there[i] == line] if gap else [at][:there[at:at + 1] == [line]]
        if not places:
            return f"this line does not stand there{'' if gap else ' after the one before'}: {line}"
        at, gap = places[0] + 1, False
    return ""


def without_spaces(code):
    """A long string may be in two pieces."""
    return re.sub(r'\s|""', "", code)


def row_error(note, cells, source):
    """What is wrong with a row of a table; '' if nothing."""
    wanted = cells[-1]
    if note.endswith(", values"):
        wanted = 'same("' + cells[0].replace('"', '\\"') + f'", {cells[-1]});'
    return "" if cells[-1] and without_spaces(wanted) in without_spaces(source) else f"this is not there: {wanted}"


class Snippets(unittest.TestCase):
    def setUp(self):
        self.blocks = [b for page in pages.pages() for b in pages.blocks(page) if b.language == "cpp"]

    def test_compiled(self):
        flags = compile_flags()
        if flags is None:
            self.skipTest(f"{BUILD} has no compile_commands.json with {FLAGS_OF}")
        chosen = [b for b in self.blocks if not b.note.startswith("excerpt of: ")]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "snippets.cpp")
            with open(path, "w", encoding="utf-8") as file:
                file.write(together([compiled_source(b) for b in chosen]))
            command, directory = flags
            ended = subprocess.run([*command, path], cwd=directory, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, f"of {', '.join(b.where for b in chosen)}:\n{ended.stderr[:6000]}")
        print(f"{len(chosen)} snippets compile")

    def test_excerpts(self):
        chosen = [b for b in self.blocks if b.note.startswith("excerpt of: ")]
        for block in chosen:
            with self.subTest(block.where):
                path = block.note.removeprefix("excerpt of: ")
                self.assertEqual(excerpt_error(block.lines, pages.read(path)), "", f"{block.where}, excerpt of {path}")
        print(f"{len(chosen)} snippets stand in their sources")

    def test_rows(self):
        count = 0
        for page in pages.pages():
            for line, note, cells in pages.tables(page):
                count += 1
                path = note.removeprefix("rows in: ").removesuffix(", values")
                with self.subTest(f"{page}:{line}"):
                    self.assertEqual(row_error(note, cells, pages.read(path)), "", f"{page}:{line}, rows in {path}")
        print(f"{count} rows of tables stand in their sources")

    def test_every_context_is_used(self):
        here = os.path.dirname(os.path.abspath(__file__))
        contexts = {f"tests/docs/{name}" for name in os.listdir(here) if name.endswith(".cpp")}
        self.assertEqual(contexts, {b.note.removeprefix("compiled in: ") for b in self.blocks if "compiled" in b.note})


class TestOfTheTest(unittest.TestCase):
    source = "int a;\n\n  int b;\nint c;\nint d;\n"

    def test_excerpts(self):
        self.assertEqual(excerpt_error(["int a;", "int b;"], self.source), "")
        self.assertEqual(excerpt_error(["int b;", "...", "int d;"], self.source), "")
        self.assertIn("after the one before: int c;", excerpt_error(["int a;", "int c;"], self.source))
        self.assertIn("int a;", excerpt_error(["int b;", "...", "int a;"], self.source))

    def test_rows(self):
        source = 'same("a[\\"b\\"]",\n     f(a,\n  1));\ng(a);'
        self.assertEqual(row_error("rows in: x.cpp, values", ['a["b"]', "f(a, 1)"], source), "")
        self.assertEqual(row_error("rows in: x.cpp", ["what", "g(a);"], source), "")
        self.assertIn("f(a, 2)", row_error("rows in: x.cpp, values", ['a["b"]', "f(a, 2)"], source))
        self.assertIn("not there", row_error("rows in: x.cpp", ["what", ""], source))

    def test_a_wrong_snippet_is_named(self):
        flags = compile_flags()
        if flags is None:
            self.skipTest("no configured build")
        wrong = pages.Block("docs/page.md", 7, "cpp", ["int three() {", "  return four;", "}"], "")
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write(together([compiled_source(wrong)]))
            file.flush()
            ended = subprocess.run([*flags[0], file.name], cwd=flags[1], capture_output=True, text=True)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("docs/page.md:8:", ended.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=BUILD, help="a configured build folder (default: %(default)s)")
    options, rest = parser.parse_known_args()
    BUILD = os.path.join(pages.ROOT, options.build)
    unittest.main(argv=[sys.argv[0], *rest])

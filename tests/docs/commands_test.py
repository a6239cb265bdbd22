#!/usr/bin/env python3
"""Every command of the documentation names programs and flags that exist, and those in ```sh blocks run.

    tests/docs/commands_test.py --build build [--mpiexec mpirun]

The ```sh blocks of a page run one after the other, in one temporary folder that has this repository's texts and the
built programs under the paths that the page uses. Lines that begin with ./trireme or .ci/run do nothing there: they
install and build. What takes more than seconds, has placeholders or needs a GPU is a ```text block: its programs and
flags are looked up, as are those of commands and flags in the prose. The programs' flags are those of --help.
A block ends with status 0, or with that of a comment above it: <!-- ends with 1 -->.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pages  # noqa: E402

BIN = "build/bin"
MPIEXEC = "mpirun"
TEXTS = ("LICENSE", "README.md", "docs", "examples", "tests")  # what commands read
STUBS = ("trireme", ".ci/run")
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl": "vader,self"}
# Which programs take the flags of ./trireme COMMAND, besides those that ./trireme help names.
BEHIND = {"parity": ["build/bin/parity", "build/bin/parity_matrix"], "explore": ["build/bin/explore"],
          "bench": ["bench/compare.py"],
          "museum": ["build/bin/train_gpt", "build/bin/parity", "scripts/museum.py", "scripts/museum_proof.py"],
          "peers": [f"scripts/peer_{name}.py" for name in ("common", "gguf", "hf", "lm_eval", "tokenizers")]}
# Flags in the prose of programs that are not ours.
FOREIGN = {"--allow-run-as-root", "--index-url", "--learning-rate", "--map-by", "--oversubscribe"}


def flags_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z0-9][\w-]*", text))


@functools.lru_cache(None)
def flags_of(program):
    """Of a program or script; None when it is not built or has no --help."""
    if program.startswith("build/bin/"):
        path = os.path.join(BIN, program.removeprefix("build/bin/"))
        if not os.access(path, os.X_OK):
            return None
        shown = subprocess.run([path, "--help"], capture_output=True, text=True, cwd=pages.ROOT)
        return flags_in(shown.stdout) if shown.returncode == 0 and "--help" in shown.stdout else None
    text = pages.read(program)  # a loop may add the dashes
    return flags_in(text) | {"--help"} | {f"--{word}" for word in re.findall(r'"([a-z][\w-]*)"', text)}


@functools.lru_cache(None)
def trireme_usage():
    text = subprocess.run(["./trireme", "help"], capture_output=True, text=True, cwd=pages.ROOT, check=True).stdout
    return {found[1] for found in re.finditer(r"^  ([a-z]+)\b", text, re.M)}, flags_in(text)


@functools.lru_cache(None)
def declared():
    """Names of programs: all words of the CMakeLists.txt files, as loops make some of them."""
    words = set()
    for folder, folders, names in os.walk(pages.ROOT):
        folders[:] = [f for f in folders if not f.startswith((".", "build", "run"))]
        if "CMakeLists.txt" in names:
            text = pages.read(os.path.join(folder, "CMakeLists.txt"))
            words |= set(re.findall(r"\w+", text))
            for loop in re.finditer(r"foreach\((\w+)\s+([^)]*)\)(.*?)endforeach", text, re.S):
                for pattern in re.findall(r"\w*\$\{" + loop[1] + r"\}\w*", loop[3]):
                    words |= {pattern.replace("${" + loop[1] + "}", value) for value in loop[2].split()}
    return words


def faults_of(call, page_text):
    """What is wrong with a call [program, word, ...], as a list of lines."""
    program, words = call[0], call[1:]
    given = [w.split("=")[0] for w in words if re.match(r"--[a-z]", w)]
    if program == ".ci/run":
        return []
    if program == "./trireme":
        commands, known = trireme_usage()
        if words and words[0] not in commands and re.match(r"[a-z]", words[0]):
            return [f"./trireme has no command {words[0]}"]
        behind = [flags_of(p) for p in BEHIND.get(words[0] if words else "", [])]
        if None in behind:
            return []
        return [f"./trireme {words[0]} has no {flag}" for flag in given if flag not in known.union(*behind)]
    if program.startswith("build/bin/"):
        name = program.removeprefix("build/bin/")
        if not re.fullmatch(r"\w+", name):  # a pattern or a placeholder
            return []
        if name not in declared() and f"trireme_program({name} " not in page_text:
            return [f"there is no program {program}"]
        if name not in declared():
            return []
    elif "<" in program:  # a placeholder
        folder = program[: program.index("<")].rpartition("/")[0]
        return [] if os.path.isdir(os.path.join(pages.ROOT, folder)) else [f"there is no folder {folder}"]
    elif not os.path.exists(os.path.join(pages.ROOT, program)):
        return [f"there is no {program}"]
    elif os.path.isdir(os.path.join(pages.ROOT, program)):
        return []
    known = flags_of(program)
    return [] if known is None else [f"{program} has no {flag}" for flag in given if flag not in known]


def commands_of(page):
    """(line, command) of each command, in blocks and in the prose."""
    for block in pages.blocks(page):
        if block.language in ("sh", "text"):
            yield from pages.command_lines(block)
    for line, code in pages.inline_code(page):
        if pages.COMMAND.match(code):
            yield line, code


class Named(unittest.TestCase):
    def test_programs_and_flags(self):
        count, wrong = 0, []
        for page in pages.pages():
            text = pages.read(page)
            for line, command in commands_of(page):
                for call in pages.calls(command):
                    count += 1
                    wrong += [f"{page}:{line}: {fault}" for fault in faults_of(call, text)]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        print(f"{count} calls of programs name what exists")

    def test_flags_in_the_prose(self):
        """A flag alone, as in `--zero 3`, is one of some program or script."""
        programs = [name for folder in ("examples", "bench") for name in
                    re.findall(r"^trireme_(?:program|benchmark)\((\w+)", pages.read(f"{folder}/CMakeLists.txt"), re.M)]
        known = set(FOREIGN)
        for name in programs:
            if not os.access(os.path.join(BIN, name), os.X_OK):
                self.skipTest(f"{name} is not built in {BIN}")
            known |= flags_of(f"build/bin/{name}") or set()
        for folder, _, names in [(".", [], ["trireme", ".ci/run"]), *os.walk(os.path.join(pages.ROOT, "scripts")),
                                 *os.walk(os.path.join(pages.ROOT, "bench"))]:
            for name in names:
                if not name.endswith((".json", ".md")):
                    known |= flags_in(pages.read(os.path.join(folder, name)))
        wrong = [f"{page}:{line}: no program has {flag}" for page in pages.pages()
                 for line, code in pages.inline_code(page) if code.startswith("--")
                 for flag in sorted(flags_in(code)) if flag not in known]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_languages(self):
        wrong = [b.where for page in pages.pages() for b in pages.blocks(page)
                 if b.language not in ("cpp", "sh", "text") and not b.page.startswith("examples/museum/")]
        self.assertEqual(wrong, [], "expected ```cpp, ```sh or ```text")


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="trireme-docs-")
        self.addCleanup(self.folder.cleanup)
        root = self.folder.name
        os.mkdir(os.path.join(root, "build"))
        os.symlink(os.path.abspath(BIN), os.path.join(root, "build", "bin"))
        for name in TEXTS:
            os.symlink(os.path.join(pages.ROOT, name), os.path.join(root, name))
        for name in STUBS:
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")
            os.chmod(path, 0o755)

    def missing(self, block):
        """What a block needs that is not here, or ''."""
        for _, command in pages.command_lines(block):
            if re.search(r"\bmpirun\b", command) and not shutil.which(MPIEXEC):
                return "mpirun is not installed"
            for program, *_ in pages.calls(command):
                if program.startswith("build/bin/") and not os.access(os.path.join(self.folder.name, program), os.X_OK):
                    return f"{program} is not built"
        return ""

    def run_page(self, page):
        count, skipped = 0, []
        for block in pages.blocks(page):
            if block.language != "sh":
                continue
            if why := self.missing(block):
                skipped.append(f"{block.where}: {why}")
                continue
            began = os.times()
            ended = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(block.lines)], cwd=self.folder.name,
                                   env=os.environ | MPI, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
            now = os.times()
            spent = now.children_user + now.children_system - began.children_user - began.children_system
            print(f"{block.where}: {spent:.1f} s of CPU", flush=True)
            expected = int(block.note.removeprefix("ends with ")) if block.note.startswith("ends with ") else 0
            self.assertEqual(ended.returncode, expected, f"{block.where}:\n{ended.stdout[-3000:]}")
            count += 1
        if skipped:
            self.skipTest("; ".join(skipped))


def add_page(page):
    def test(self):
        self.run_page(page)
    setattr(Run, "test_" + re.sub(r"\W", "_", page), test)


for each in pages.pages():
    if any(b.language == "sh" for b in pages.blocks(each)):
        add_page(each)


class TestOfTheTest(unittest.TestCase):
    def wrong(self, command):
        return [fault for call in pages.calls(command) for fault in faults_of(call, "")]

    def test_what_is_wrong(self):
        self.assertEqual(self.wrong("./trireme no_such"), ["./trireme has no command no_such"])
        self.assertEqual(self.wrong("./trireme demo --fast"), ["./trireme demo has no --fast"])
        self.assertEqual(self.wrong("build/bin/no_such --x"), ["there is no program build/bin/no_such"])
        self.assertEqual(self.wrong("bench/compare.py --no-such"), ["bench/compare.py has no --no-such"])
        self.assertEqual(self.wrong("./trireme bench peers --python V --readme  # --not-a-flag"), [])
        self.assertEqual(pages.calls("A=b build/bin/run --x 1 -- mpirun --y -n 2 build/bin/train_gpt --z"),
                         [["build/bin/run", "--x", "1"], ["build/bin/train_gpt", "--z"]])
        self.assertEqual(pages.calls("build/bin/run --x 'scripts/a b c' -- build/bin/train_gpt"),
                         [["build/bin/run", "--x"], ["scripts/a", "b", "c"], ["build/bin/train_gpt"]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="a build folder (default: %(default)s)")
    parser.add_argument("--mpiexec", default=MPIEXEC, help="of the MPI that was built with (default: %(default)s)")
    options, rest = parser.parse_known_args()
    BIN = os.path.join(pages.ROOT, options.build, "bin")
    MPIEXEC = options.mpiexec
    unittest.main(argv=[sys.argv[0], *rest])

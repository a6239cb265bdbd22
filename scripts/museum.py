#!/usr/bin/env python3
"""The museum of silent bugs: its pages, and the copy of the sources in which all exhibits are planted.
`./trireme museum` is the program to visit it; examples/museum/README.md says how.

  scripts/museum.py                 lists the exhibits
  scripts/museum.py NAME            prints the page of one, without its answer
  scripts/museum.py --answer NAME   prints the answer
  scripts/museum.py --plant         writes the sources with all exhibits into build-museum

A page is examples/museum/NAME.md. Its last section, the answer, has the planted lines as blocks of ```diff: the path of
a file, the text to replace, which occurs there once, and the new text, which asks museum::shows("NAME").
Read next: scripts/museum_proof.py.
"""
import argparse
import difflib
import os
import re
import signal
import sys
from dataclasses import dataclass

import planted

PAGES = os.path.join(planted.ROOT, "examples", "museum")
COPY = os.path.join(planted.ROOT, "build-museum")
HEADER = "core/museum.h"  # of the copy
SECTIONS = ["The story", "What one sees", "The hunt", "Answer"]


@dataclass
class Exhibit:
    name: str
    title: str
    sections: dict  # by heading, in the order of the page

    @property
    def answer(self):
        return self.sections["Answer"]

    def blocks(self, section, language):
        return re.findall(rf"^```{language}\n(.*?)^```$", self.sections[section], re.MULTILINE | re.DOTALL)

    def replacements(self):
        found = []
        for block in self.blocks("Answer", "diff"):
            for hunk in re.split(r"^--- ", block, flags=re.MULTILINE)[1:]:
                path, *lines = hunk.rstrip("\n").split("\n")
                old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
                found.append(planted.Replacement(path, old, new))
        return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def exhibit_of(name):
    title, *rest = re.split(r"^## (.*)\n", read(os.path.join(PAGES, name + ".md")), flags=re.MULTILINE)
    return Exhibit(name, title.strip().removeprefix("# "), dict(zip(rest[::2], rest[1::2])))


def exhibits():
    """In the order of the table of README.md."""
    names = re.findall(r"^\| \[([a-z0-9_]+)\]", read(os.path.join(PAGES, "README.md")), re.MULTILINE)
    return [exhibit_of(name) for name in names]


def find(name):
    known = [exhibit.name for exhibit in exhibits()]
    if name in known:
        return exhibit_of(name)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else "./trireme museum lists them"
    print(f"trireme: museum: no exhibit is named '{name}'; {hint}", file=sys.stderr)
    sys.exit(64)


def plant(files, all_exhibits):
    """Plants all exhibits in {path: (content, executable)}. Returns what is wrong, one line for each text."""
    wrong, touched = [], set()
    for exhibit in all_exhibits:
        for replacement in exhibit.replacements():
            content, executable = files.get(replacement.file, (b"", False))
            source = content.decode()
            why = planted.why_not_planted(replacement, source)
            if f'museum::shows("{exhibit.name}")' not in replacement.new:
                why = why or f"the new text for {replacement.file} does not ask for the exhibit"
            if why:
                wrong.append(f"{exhibit.name}: {why}")
                continue
            files[replacement.file] = (source.replace(replacement.old, replacement.new).encode(), executable)
            touched.add(replacement.file)
    for path in touched:
        content, executable = files[path]
        files[path] = (content.replace(b"#include", f'#include "{HEADER}"\n#include'.encode(), 1), executable)
    files[HEADER] = (read(os.path.join(PAGES, "museum.h")).encode(), False)
    return wrong


def write_copy():
    files = planted.committed()
    if wrong := plant(files, exhibits()):
        print("\n".join(["trireme: museum: cannot plant the exhibits", *wrong]), file=sys.stderr)
        sys.exit(70)
    stamp = os.path.join(COPY, "build", "planted")
    if planted.write_changed(COPY, files) or not os.path.exists(stamp):
        os.makedirs(os.path.dirname(stamp), exist_ok=True)
        with open(stamp, "w", encoding="utf-8"):
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--answer", metavar="NAME")
    parser.add_argument("--known", metavar="NAME", help="the status is 64 when no exhibit has this name")
    parser.add_argument("--plant", action="store_true")
    options = parser.parse_args()
    if options.plant:
        write_copy()
    elif options.known:
        find(options.known)
    elif options.answer:
        print(find(options.answer).answer.strip())
    elif options.name:
        exhibit = find(options.name)
        print(f"# {exhibit.title}\n")
        for heading, text in exhibit.sections.items():
            if heading != "Answer":
                print(f"## {heading}\n{text.rstrip()}\n")
        print(f"The answer: ./trireme museum --answer {exhibit.name}")
    else:
        for exhibit in exhibits():
            print(f"{exhibit.name:28} {exhibit.title}")
        print("\n./trireme museum NAME prints a page")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as when the list goes to `head`
    main()

#!/usr/bin/env python3
"""Every relative link of the documentation leads to a file, its anchor to a heading, and a named test exists; every
file that a source names under "Read next" exists.

    tests/docs/links_test.py
"""

import os
import re
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pages  # noqa: E402

NAMED_TESTS = re.compile(r'`([a-z_]+/[a-z_0-9]+)`:((?: ?"[^"]+"(?: \([^)]*\))?;?)+)')
LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(page):
    """Those that GitHub makes of the headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", pages.prose(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        base = anchor = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{base}-{number}"
        found.add(anchor)
    return found


def wrong_links(page):
    text = pages.prose(page)
    for link in LINK.finditer(text):
        where = f"{page}:{text.count(chr(10), 0, link.start()) + 1}: {link[1]}"
        if re.match(r"[a-z]+:", link[1]):
            continue
        path, _, anchor = link[1].partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(pages.ROOT, target)):
            yield f"{where}: there is no {target}"
        elif anchor and target.endswith(".md") and anchor not in anchors(target):
            yield f"{where}: {target} has no such heading"


def sources():
    for root, folders, names in os.walk(pages.ROOT):
        folders[:] = [folder for folder in folders if not folder.startswith((".", "build"))]
        yield from (os.path.relpath(os.path.join(root, name), pages.ROOT) for name in names
                    if name.endswith((".h", ".cpp", ".cu", ".py", ".sh", ".cmake")))


def read_next(source):
    """The paths in the sentence that begins with "Read next:"."""
    text = re.sub(r"\s*\n *(?://+|#) ?", " ", pages.read(source))
    for words in re.findall(r"Read next: (.{0,300})", text):
        yield from re.findall(r"(?:[\w.-]+/)+[\w.-]*\w", re.split(r"\.\s", words)[0])


class Links(unittest.TestCase):
    def test_links(self):
        wrong = [fault for page in pages.pages() for fault in wrong_links(page)]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_named_tests(self):
        """As in `comm/threads_test`: "threads pass the suite"; "bf16 sums" (a remark)."""
        count, wrong = 0, []
        for page in pages.pages():
            for path, names in NAMED_TESTS.findall(pages.prose(page)):
                count += 1
                source = re.sub(r'"\s*\n\s*"', "", pages.read(f"tests/{path}.cpp"))
                wrong += [f"{page}: tests/{path}.cpp has no \"{name}" for name in re.findall(r'"([^"]+)"', names)
                          if name not in source]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertGreater(count, 0)

    def test_what_sources_say_to_read_next(self):
        named = [(source, path) for source in sources() for path in read_next(source)]
        self.assertGreater(len(named), 500)
        wrong = [f"{source}: there is no {path}" for source, path in named
                 if not os.path.exists(os.path.join(pages.ROOT, path))]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_the_readme_is_short(self):
        lines = pages.read("README.md").splitlines()
        self.assertLessEqual(len(lines), 130)
        self.assertEqual([line for line in lines if len(line) > 120 and not line.startswith("| ")], [])

    def test_headings(self):
        """A heading twice on a page makes anchors that change when one of them goes."""
        for page in pages.pages():
            with self.subTest(page):
                headings = re.findall(r"^#+ (.*)$", pages.prose(page), re.M)
                self.assertEqual(sorted(headings), sorted(set(headings)))


if __name__ == "__main__":
    unittest.main()

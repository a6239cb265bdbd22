#!/usr/bin/env python3
"""The museum of silent bugs: its pages are complete, and each planted text occurs in the sources once. Whether a bug
hides and is found takes programs and minutes: `./trireme museum --prove`, a part of ./trireme soak.

    tests/museum/museum_test.py
"""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import museum  # noqa: E402
import museum_proof  # noqa: E402

EXHIBITS = museum.exhibits()


def run(*arguments):
    return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "scripts", "museum.py"), *arguments],
                          capture_output=True, text=True, check=False)


class Pages(unittest.TestCase):
    def test_every_page_has_its_row(self):
        pages = {name[:-3] for name in os.listdir(museum.PAGES) if name.endswith(".md") and name != "README.md"}
        self.assertEqual(pages, {exhibit.name for exhibit in EXHIBITS})
        self.assertEqual(len(EXHIBITS), len(pages), "a row is there twice")

    def test_sections(self):
        for exhibit in EXHIBITS:
            page = museum.read(os.path.join(museum.PAGES, exhibit.name + ".md"))
            with self.subTest(exhibit.name):
                self.assertEqual(list(exhibit.sections), museum.SECTIONS)
                self.assertLessEqual(page.count("\n"), 60)
                story = " ".join(exhibit.sections["The story"].split())
                self.assertRegex(story, r"\w+/[\w-]+ (issue|pull request)s? \d+")
                self.assertRegex(exhibit.sections["What one sees"], r"\| with the bug \|( \d\.\d{4} \|){4}")
                self.assertNotIn("museum::shows", page[:page.index("## Answer")])

    def test_commands(self):
        """Those that are proved show this exhibit, and so say something about it."""
        for exhibit in EXHIBITS:
            shown = f"./trireme museum --exhibit {exhibit.name} "
            with self.subTest(exhibit.name):
                training = museum_proof.training_of(exhibit)
                self.assertTrue(training[-1].text.startswith(shown + "train_gpt "), training[-1].text)
                self.assertIn(f"--out run-{exhibit.name}", training[-1].text)
                evidence = museum_proof.evidence_of(exhibit)
                self.assertTrue(any(command.text.startswith(shown) for command in evidence))
                self.assertTrue(evidence[-1].code or evidence[-1].expected, "the last command is to show the bug")
                named = re.findall(r"--exhibit (\w+)", " ".join(exhibit.sections.values()))
                self.assertEqual(set(named), {exhibit.name})

    def test_texts_are_in_the_sources_once(self):
        files = {}
        for exhibit in EXHIBITS:
            self.assertTrue(exhibit.replacements(), exhibit.name)
            for replacement in exhibit.replacements():
                path = os.path.join(ROOT, replacement.file)
                if os.path.exists(path):
                    files[replacement.file] = (museum.read(path).encode(), False)
        self.assertEqual(museum.plant(files, EXHIBITS), [])


class Visit(unittest.TestCase):
    def test_list(self):
        self.assertEqual([line.split()[0] for line in run().stdout.split("\n\n")[0].splitlines()], [e.name for e in EXHIBITS])

    def test_a_page_keeps_its_answer(self):
        page, answer = run(EXHIBITS[0].name).stdout, run("--answer", EXHIBITS[0].name).stdout
        self.assertIn("## The hunt", page)
        self.assertNotIn("```diff", page)
        self.assertIn("```diff", answer)

    def test_unknown_names(self):
        ended = run(EXHIBITS[0].name[:-1])
        self.assertEqual(ended.returncode, 64)
        self.assertIn(f"did you mean {EXHIBITS[0].name}?", ended.stderr)


if __name__ == "__main__":
    unittest.main()

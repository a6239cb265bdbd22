#!/usr/bin/env python3
"""The reference: how headers are prepared for Doxygen, and that every example in it is one of the tested ones.

    tests/docs/reference_test.py
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "scripts", "doxygen")
sys.path.insert(0, TOOLS)
import check  # noqa: E402
import headers  # noqa: E402

HEADER = """\
// Linear: y = x W^T.
//
//   Linear f(b);
//   f(x);
//
// Sizes are <= 10.
#pragma once

namespace trireme {

class Linear {
 public:
  // Of this one and all below it.
  int parameters() const;
  int buffers() const { return f("}{"); }

  int size() const;  // in bytes
  int size(int dim) const;
};

// ---- add.cpp: shapes broadcast ----
Tensor add(Tensor a, Tensor b);

/// The larger one.
Tensor max(Tensor a);
Tensor max(Tensor a, int dim);
Tensor min(Tensor a);

}  // namespace trireme
"""


def prepared(text):
    """The lines of a header nn/linear.h, as headers.py writes them."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "nn"))
        with open(os.path.join(folder, "nn/linear.h"), "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([os.path.join(TOOLS, "headers.py"), "out", "nn/linear.h"], cwd=folder, check=True)
        with open(os.path.join(folder, "out/nn/linear.h"), encoding="utf-8") as file:
            return file.read().splitlines()


def repository_files(*folders):
    for folder in folders:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith((".h", ".cpp", ".dox")):
                    with open(os.path.join(where, name), encoding="utf-8") as file:
                        yield os.path.relpath(os.path.join(where, name), ROOT), file.read()


class Headers(unittest.TestCase):
    def setUp(self):
        self.lines = prepared(HEADER)

    def line(self, code):
        found = [line for line in self.lines if code in line]
        self.assertEqual(len(found), 1, code)
        return found[0]

    def test_lines_keep_their_numbers(self):
        self.assertEqual(len(self.lines), len(HEADER.splitlines()))
        for before, after in zip(HEADER.splitlines(), self.lines):
            if not before.strip().startswith(("//", "#", "}")) and before:
                self.assertIn(before.split("  //")[0], after)

    def test_the_comment_on_top(self):
        self.assertIn("@code{.cpp}", self.lines[1])
        self.assertIn("@endcode", self.lines[3])
        self.assertIn("&lt;= 10", self.lines[5])
        self.assertIn("@file", self.lines[6])
        self.assertIn("y = x W^T. More: nn/linear.h.", self.line("class Linear"))
        self.assertIn("@layer{nn}", self.line("namespace trireme {"))

    def test_which_comment_is_whose(self):
        self.assertIn("Of this one", self.line("buffers()"))
        self.assertIn("///< in bytes", self.line("size() const"))
        self.assertIn("/** in bytes */", self.line("size(int dim)"))
        self.assertIn("shapes broadcast", self.line("Tensor add"))
        self.assertIn("The larger one", self.line("max(Tensor a, int dim)"))
        self.assertNotIn("larger", self.line("min(Tensor a)"))


class Messages(unittest.TestCase):
    def test_what_needs_work(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.h")
            with open(path, "w", encoding="utf-8") as file:
                file.write("int size() const { return size_; }\nint add(int a);\n")
            self.assertEqual(check.needs_work(f"{path}:1: warning: Member size() is not documented.", folder), "")
            self.assertIn("add", check.needs_work(f"{path}:2: warning: Member add() is not documented.", folder))
            self.assertIn("twice", check.needs_work(f"{path}:1: warning: documented twice", folder))
            self.assertEqual(check.needs_work("error: no input", folder), "error: no input")


class Examples(unittest.TestCase):
    def test_every_example_is_shown_and_tested(self):
        tested = {(name.rpartition("/")[2], marker) for name, text in repository_files("tests/reference")
                  for marker in re.findall(r"//! \[(\w+)\]", text)}
        folders = ("autograd", "core", "data", "models", "nn", "optim", "parallel", "train", "scripts/doxygen")
        shown = {found for _, text in repository_files(*folders) for found in re.findall(r"@snippet (\S+) (\w+)", text)}
        self.assertEqual(shown, tested)


if __name__ == "__main__":
    unittest.main()

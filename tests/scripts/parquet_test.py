#!/usr/bin/env python3
"""scripts/parquet_to_jsonl.py with files that pyarrow writes; skipped (77) where pyarrow is not installed."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "scripts", "parquet_to_jsonl.py")
PREPARE_DATA = sys.argv.pop(1) if len(sys.argv) > 1 else ""
try:
    import pyarrow
    from pyarrow import parquet
except ImportError:
    print("skipped: the package pyarrow is not installed")
    sys.exit(77)

TEXTS = [f"document {i} with \"quotes\",\na line and \u00fc {'x' * (i % 50)}" for i in range(3000)]


def run(*arguments):
    done = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Parquet(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = lambda name: os.path.join(self.folder.name, name)
        parquet.write_table(pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS}), self.path("a.parquet"),
                            row_group_size=700)

    def tearDown(self):
        self.folder.cleanup()

    def test_texts_in_order(self):
        parquet.write_table(pyarrow.table({"text": ["last"]}), self.path("b.parquet"))
        code, out, _ = run(self.folder.name)
        self.assertEqual(code, 0)
        self.assertEqual([json.loads(line)["text"] for line in out.splitlines()], TEXTS + ["last"])

    def test_refusals(self):
        parquet.write_table(pyarrow.table({"text": ["a", None]}), self.path("null.parquet"))
        with open(self.path("a.parquet"), "rb") as whole, open(self.path("cut.parquet"), "wb") as cut:
            cut.write(whole.read()[:20000])
        for arguments, code, part in (([self.path("a.parquet"), "--text-field", "body"], 65, "there is no column 'body'; found id, text"),
                                      ([self.path("null.parquet")], 65, "null.parquet row 1: 'text' is None"),
                                      ([self.path("cut.parquet")], 65, "cut.parquet: not a Parquet file"),
                                      ([self.path("absent")], 64, "absent does not exist")):
            found, out, errors = run(*arguments)
            self.assertEqual(found, code, errors)
            self.assertIn(part, errors)
            self.assertIn("parquet_to_jsonl: ", out.splitlines()[-1])

    def test_prepare_data_takes_the_pipe_or_refuses_a_part(self):
        if not PREPARE_DATA:
            return
        out = self.path("shards")
        line = (f"{sys.executable} {PROGRAM} {{}} | {PREPARE_DATA} --data - --format jsonl --tokenizer byte "
                f"--out {out}")
        with open(self.path("cut.parquet"), "wb") as cut:
            cut.write(b"PAR1")
        self.assertEqual(subprocess.run(line.format(self.path("cut.parquet")), shell=True, capture_output=True).returncode, 65)
        self.assertFalse(os.path.exists(out))
        self.assertEqual(subprocess.run(line.format(self.path("a.parquet")), shell=True, capture_output=True).returncode, 0)
        self.assertTrue(os.path.exists(os.path.join(out, "tokens_00000.tokens")))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Prints how many documents each --packing cuts, and how many tokens it leaves out or pads, as a table of docs/data.md.

    python3 scripts/packing_table.py war_and_peace.txt --tokenizer bpe:gpt2

The text is taken twice: by paragraphs, which blank lines divide, and by chapters, each of which begins with a line
CHAPTER. build/bin must have prepare_data and train_gpt, whose dry run knows the numbers: nothing is trained. Needs
nothing but Python.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r": ([\d,]+) documents in ([\d,]+) rows; ([\d,]+) documents are cut \(windows would cut ([\d,]+)\), "
                 r"(\S+) % of the tokens cropped, (\S+) % padding")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path, help="a book in plain text")
    parser.add_argument("--tokenizer", required=True, help="as for prepare_data; it must have an end-of-text token")
    parser.add_argument("--context", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--bin", default=str(ROOT / "build" / "bin"), help="folder of our programs")
    return parser.parse_args()


def run(o, program, *flags):
    done = subprocess.run([f"{o.bin}/{program}", *map(str, flags)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, flags))}\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout + done.stderr


def documents_of(text):
    paragraphs = [p.strip() for p in re.split(r"\n\s*\n", text) if p.strip()]
    chapters = [c.strip() for c in re.split(r"(?m)^CHAPTER .*$", text) if len(c.strip()) > 500]  # not the contents
    return {"paragraphs": paragraphs, "chapters": chapters}


def figures(o, shards, context, packing):
    plan = run(o, "train_gpt", "--data", shards, "--val-fraction", 0, "--layers", 1, "--heads", 1, "--width", 8,
               "--micro-batch", 1, "--steps", 1, "--context", context, "--packing", packing, "--dry-run")
    found = ROW.search(" ".join(plan.split()))
    if not found:
        sys.exit(f"train_gpt --dry-run printed no row of packing:\n{plan}")
    return found.groups()


def main():
    o = arguments()
    print("| documents, `--context` | | documents cut | tokens cropped | padding |\n|---|---|---|---|---|")
    for name, documents in documents_of(o.text.read_text(encoding="utf-8")).items():
        with tempfile.TemporaryDirectory() as folder:
            lines, shards = pathlib.Path(folder) / "texts.jsonl", pathlib.Path(folder) / "shards"
            lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
            run(o, "prepare_data", "--data", lines, "--tokenizer", o.tokenizer, "--out", shards)
            for context in o.context:
                label = f"{name}, {context}"
                for packing in ("best-fit", "best-fit-crop"):
                    count, _, cut, by_windows, cropped, padding = figures(o, shards, context, packing)
                    if packing == "best-fit":
                        print(f"| {label} | `cut` | {by_windows} of {count} | 0 | 0 |")
                    print(f"| | `{packing}` | {cut} | {cropped} % | {padding} % |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the text column of Parquet files as lines of JSON, for prepare_data to read through a pipe:

    python3 scripts/parquet_to_jsonl.py FOLDER | build/bin/prepare_data --data - --format jsonl --tokenizer byte --out shards

Each argument is a file, or a folder whose *.parquet files are taken in the order of their names. Row groups are read one
batch at a time, so memory does not depend on the size of a file. Needs the package pyarrow (pip install pyarrow): Debian
has neither it nor a C++ library that reads Parquet.

Fails with code 64 (arguments) or 65 (data), and with a message. It then writes a line that is not JSON as well, so that
prepare_data does not take the texts so far for all texts.
"""
import argparse
import json
import os
import pathlib
import sys

READ = 1024  # rows at once


def fail(code, what):
    message = f"parquet_to_jsonl: {what}"
    try:
        print(message, flush=True)
    except BrokenPipeError:
        pass
    print(message, file=sys.stderr)
    os._exit(code)  # standard output may be closed, which an ordinary exit would report again


def files_of(paths):
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            found = sorted(path.rglob("*.parquet"))
            if not found:
                fail(64, f"{path} has no file *.parquet; expected at least one; give another folder")
            yield from found
        elif path.exists():
            yield path
        else:
            fail(64, f"{path} does not exist; expected a Parquet file or a folder of them")


def write_texts(path, field, parquet, out):
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has many kinds
        fail(65, f"{path}: not a Parquet file: {error}")
    names = file.schema_arrow.names
    if field not in names:
        fail(65, f"{path}: there is no column {field!r}; found {', '.join(names[:8])}; change --text-field")
    row = 0
    try:
        for batch in file.iter_batches(batch_size=READ, columns=[field]):
            for text in batch.column(0).to_pylist():
                if not isinstance(text, str):
                    fail(65, f"{path} row {row}: {field!r} is {text!r:.60}; expected a text")
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                row += 1
    except (BrokenPipeError, UnicodeError):
        raise
    except Exception as error:
        fail(65, f"{path} row {row}: cannot be read: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a Parquet file, or a folder of them")
    parser.add_argument("--text-field", default="text", metavar="NAME", help="the column that holds the text (text)")
    options = parser.parse_args()
    try:
        from pyarrow import parquet
    except ImportError as error:
        fail(64, f"the package pyarrow is missing ({error}); install it: pip install pyarrow")
    out = open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", buffering=1 << 20, closefd=False)
    try:
        for path in files_of(options.paths):
            write_texts(path, options.text_field, parquet, out)
        out.flush()
    except BrokenPipeError:
        os._exit(141)  # prepare_data has ended, and said why


if __name__ == "__main__":
    main()

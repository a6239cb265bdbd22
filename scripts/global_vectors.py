#!/usr/bin/env python3
"""Finds functions with vector instructions beyond SSE that any code of a portable program could call.

    scripts/global_vectors.py PROGRAM

In a portable build (TRIREME_ARCH=portable) only the kernels of the higher levels have such instructions, and they are
reached through core/cpu/level.h alone. So no function with a global symbol may use AVX: an inline function that was
compiled both with and without it would have been merged the wrong way. Reads the output of nm and objdump. Prints the
functions found; the status is 1 if there are some, and also if the program has no AVX at all, which means that it is
not a portable one.
"""

import re
import subprocess
import sys

FUNCTION = re.compile(r"^([0-9a-f]+) <.*>:$")
AVX = re.compile(r"^\s+[0-9a-f]+:\s+v[a-z]|%[yz]mm")


def lines(*command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield from process.stdout
    if process.returncode != 0:
        sys.exit(f"global_vectors.py: {' '.join(command)} ended with {process.returncode}")


def global_functions(program):
    found = {}
    for line in lines("nm", "-C", "--defined-only", program):
        address, kind, name = line.rstrip("\n").split(" ", 2)
        if kind in "TWi":
            found[int(address, 16)] = name
    return found


def functions_with_avx(program):
    found, current = set(), None
    for line in lines("objdump", "-d", "--no-show-raw-insn", program):
        begin = FUNCTION.match(line)
        if begin:
            current = int(begin[1], 16)
        elif AVX.search(line):
            found.add(current)
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    named, avx = global_functions(sys.argv[1]), functions_with_avx(sys.argv[1])
    leaks = sorted(named[address] for address in avx if address in named)
    for name in leaks:
        print(f"a global function with AVX: {name}")
    print(f"{len(avx)} functions with AVX, {len(leaks)} of them global")
    sys.exit(1 if leaks or not avx else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Shows Doxygen's messages that need work; ends with 1 if there is one.

    scripts/doxygen/check.py build/docs/messages.txt build/docs/headers

Every class, enumeration, type and function needs a comment. Without one may stay: members of a struct, whose names and
types say what they are; functions without arguments that return a value in one line; constructors, destructors,
assignments and comparisons, as the comment of the class says what they do; and the headers of INTERNAL.
"""

import os
import re
import sys

# Installed because others include them. Programs do not.
INTERNAL = re.compile(r"""
    core/(cpu/|exact_sum|formulas|gemm_steps|half|heartbeat|host_copy|io_|machine_|device_work|profiled|packed|nearest
         |conv_geometry|update_scale|nested_values|writing_kernels|kernels)
  | autograd/(row_norm|reduced_dims|deferred|linear_gradients|support|conv_by|saved_versions)
  | cuda/ | optim/(whole_matrices|check_values) | parallel/zero/(bucket|shard_hashes)
  | parallel/comm/(?!process_group|mpi/transport)
  | train/events/ | check/
  | train/program/(output|version|units|text_width)""", re.X)
MESSAGE = re.compile(r"(.*?):(\d+): (?:warning|error): (.*)")
IMPLIED = re.compile(r"\w+\(\) const (?:override )?\{ return .*; \}"
                     r"|^(?:explicit |constexpr |inline )*([A-Z]\w+)\((?!\))|^\s*[A-Z]\w+\(\)"
                     r"|= (?:delete|default);|operator==|operator=\(|~\w+\(|^using (\w+)::\2;| override;$|^Tensor forward\(")


def needs_work(line, root):
    """The message in short; '' if it needs none."""
    found = MESSAGE.match(line)
    if found is None:
        return line
    path, number, text = found.groups()
    with open(path, encoding="utf-8") as file:
        source = file.read().splitlines()[int(number) - 1].strip()
    path = os.path.relpath(path, root)
    if "is not documented" not in text:
        return f"{path}:{number}: {text}"
    if "(variable)" in text or INTERNAL.match(path) or IMPLIED.search(source):
        return ""
    return f"{path}:{number}: has no comment: {source}"


def main(log, root):
    with open(log, encoding="utf-8") as file:
        found = sorted({shown for line in file if line.strip() and (shown := needs_work(line.strip(), root))})
    for shown in found:
        print(shown)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

#!/usr/bin/env python3
"""Proves the exhibits of the museum of silent bugs, as `./trireme museum --prove`, which builds both programs before.

  scripts/museum_proof.py [--record] [NAME...]    all, or those named; --record writes the figures into the pages

For each exhibit:
  1. Without it, the museum's build trains as the normal build does: equal losses and norms, equal bits of the weights.
  2. With it, the validation loss looks fine: at steps 50, 100, 150 and 200 it differs from that of the right run by
     less than the right runs with two other seeds do (the largest of all these differences counts).
  3. The commands of its answer print what the page shows, where ... stands for any text, and end with the exit code
     that it shows. Without the exhibit they do not.
The commands run in a folder of their own below build-museum.
"""
import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

import museum
import planted

STEPS = (50, 100, 150, 200)
SEEDS = (2, 3)
WORK = os.path.join(museum.COPY, "build", "work")
NORMAL = os.path.join(planted.ROOT, "build", "bin")
MUSEUM = os.path.join(museum.COPY, "build", "bin")
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


@dataclass
class Command:
    text: str
    expected: list  # lines of its output
    code: int = 0


def commands_of(block):
    """Lines that begin with "$ " are commands, the others what the one above prints; "exit code N" is its status."""
    commands = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], []))
        elif code := re.fullmatch(r"exit code (\d+)", line):
            commands[-1].code = int(code[1])
        elif line.strip() not in ("", "..."):
            commands[-1].expected.append(line)
    return commands


def training_of(exhibit):
    block = exhibit.blocks("What one sees", "text")[0].replace("\\\n", " ")
    return [Command(line.strip(), []) for line in block.splitlines()]


def evidence_of(exhibit):
    return commands_of(next(block for block in exhibit.blocks("Answer", "text") if block.startswith("$ ")))


def shell(text, shown, folder, extra=""):
    """Runs a command of a page: with the museum's build and the exhibit `shown`, where the page says --exhibit."""
    text = re.sub(r"\./trireme museum --exhibit \w+ ", f"TRIREME_EXHIBIT={shown} '{folder}'/", text)
    text = text.replace("build/bin/", f"'{NORMAL}'/")
    done = subprocess.run(["bash", "-c", f"{text} {extra}"], cwd=WORK, capture_output=True, text=True, errors="replace",
                          check=False)
    return done.returncode, done.stdout + done.stderr


def fresh_folder():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    for name in ("docs", "examples"):
        os.symlink(os.path.join(planted.ROOT, name), os.path.join(WORK, name))


def train(exhibit, shown, folder, extra=""):
    """[{step, loss, ..}] of a run, whose folder is then run-KIND."""
    run = os.path.join(WORK, f"run-{exhibit.name}")
    shutil.rmtree(run, ignore_errors=True)
    for command in training_of(exhibit):
        code, said = shell(command.text, shown, folder, extra if "train_gpt" in command.text else "")
        if code != 0:
            raise AssertionError(f"{command.text} ended with {code}: {said[-600:]}")
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def losses(lines):
    return {line["step"]: line["val_loss"] for line in lines if line["step"] in STEPS}


def check_same_build(exhibit):
    """Returns the right run's lines."""
    def numbers(lines):
        return [[line.get(key) for key in ("step", "loss", "lr", "grad_norm", "val_loss")] for line in lines]
    run, kept = (os.path.join(WORK, name) for name in (f"run-{exhibit.name}", "run-normal"))
    normal = train(exhibit, "", NORMAL)
    os.rename(run, kept)
    right = train(exhibit, "", MUSEUM)
    assert numbers(normal) == numbers(right), "without the exhibit, the museum's build logs other numbers"
    code, said = shell(f"build/bin/checkpoint diff {kept} {run}", "", MUSEUM)
    assert code == 0, f"without the exhibit, the museum's build trains other weights: {said[:300]}"
    return right


def missing(exhibit, shown):
    """What the commands of the answer do not print or do; empty: all is as shown."""
    fresh_folder()
    for command in evidence_of(exhibit):
        code, said = shell(command.text, shown, MUSEUM)
        lines = [" ".join(line.split()) for line in said.splitlines()]
        for line in command.expected:
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("..."))
            pattern = pattern.replace(".*", " ?.* ?")
            at = next((i for i, each in enumerate(lines) if re.fullmatch(pattern, each)), None)
            if at is None:
                return f"'{command.text}' did not print '{line}':\n{said[-1500:]}"
            lines = lines[at + 1:]
        if code != command.code:
            return f"'{command.text}' ended with {code}, not {command.code}:\n{said[-1500:]}"
    return ""


def largest(right, *others):
    return max(abs(other[step] - right[step]) for other in others for step in STEPS)


def prove(exhibit):
    """The losses of a right run, of one with the bug, and of right ones with other seeds. Throws AssertionError."""
    fresh_folder()
    right = losses(check_same_build(exhibit))
    wrong = losses(train(exhibit, exhibit.name, MUSEUM))
    seeds = [losses(train(exhibit, "", MUSEUM, f"--seed {seed}")) for seed in SEEDS]
    bug, other = largest(right, wrong), largest(right, *seeds)
    assert bug > 0, "the bug changes nothing in this run"
    assert bug < other, f"the loss curve shows the bug: it differs by {bug:.4f}, another seed by {other:.4f}"
    why = missing(exhibit, exhibit.name)
    assert not why, f"the tool does not find it: {why}"
    assert missing(exhibit, ""), "the tool says the same without the bug"
    return right, wrong, seeds


def replace_between(path, text):
    page = museum.read(path)
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page[:begin] + text + page[end:])


def record(exhibit, right, wrong, seeds):
    rows = [("right", right), ("with the bug", wrong)]
    rows += [(f"right, seed {seed}", run) for seed, run in zip(SEEDS, seeds)]
    table = [f"| validation loss at step | {' | '.join(map(str, STEPS))} |", "|---|---|---|---|---|",
             *(f"| {name} | {' | '.join(f'{run[step]:.4f}' for step in STEPS)} |" for name, run in rows)]
    replace_between(os.path.join(museum.PAGES, exhibit.name + ".md"), "\n".join(table) + "\n")
    path = os.path.join(museum.PAGES, "README.md")
    figures = f"{largest(right, wrong):.4f} | {largest(right, *seeds):.4f}"
    page = re.sub(rf"(?m)^(\| \[{exhibit.name}\]\S* \| [^|]* \| [^|]* \| ).*( \|)$", rf"\g<1>{figures}\g<2>",
                  museum.read(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)


def record_where():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=planted.ROOT, capture_output=True, text=True,
                            check=True).stdout.strip()
    text = f"Measured {datetime.date.today()}, commit {commit}, {models[0] if models else 'unknown processor'}.\n"
    replace_between(os.path.join(museum.PAGES, "README.md"), text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--record", action="store_true", help="write the figures into the pages")
    options = parser.parse_args()
    chosen = [museum.find(name) for name in options.names] or museum.exhibits()
    failed = 0
    for exhibit in chosen:
        try:
            runs = prove(exhibit)
            if options.record:
                record(exhibit, *runs)
            print(f"passed | {exhibit.name}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAILED | {exhibit.name} | {error}", flush=True)
    if options.record and not options.names:
        record_where()
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Reports: what each stage found, which cases did not pass and why, and the figures. Written after every stage, from
whatever files there are; several runs, each on a machine of its own, are joined with --from.
"""
import json
import os
import re
import time

from . import limits, machine
from .place import ROOT, load_json, save_json, save_text

RESULTS = ("compare.json", "step.json", "step_kernels_gpt2.json", "step_kernels_llama.json")


def load_lines(path):
    """Lines of JSON, of which the last may be cut off."""
    rows = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as saved:
            for line in saved:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    return rows


def collect(place, gpu, stages, earlier=()):
    """Everything as one value. earlier: folders with the report.json of other runs."""
    # What --pack was made from, if it was: the sources may have come without .git, or with a part of it.
    commit = load_json(place.path("manifest.json"), {}).get("commit") or machine.commit()
    report = {"about": {"gpu": gpu or {"name": "none, emulated"}, "commit": commit,
                        "date": time.strftime("%Y-%m-%d")},
              "stages": {}, "cases": [], "rows": [], "failures": [], "skipped": [], "kernels": []}
    for folder in earlier:
        before = load_json(os.path.join(folder, "report.json"), {})
        if before and not stages:  # only joined: the machine is that of the runs
            report["about"] = before["about"]
        for key, value in report.items():
            if key != "about":
                (value.update if key == "stages" else value.extend)(before.get(key, []))
    report["stages"].update({name: {k: v for k, v in state.items() if k != "key"} for name, state in stages.items()})
    latest = {(case["stage"], case["program"], case["case"]): case for case in
              [*report["cases"], *load_lines(place.path("cases.jsonl"))]}
    report["cases"] = list(latest.values())
    for name in RESULTS:
        more = load_json(place.path(name), {})
        report["rows"] += more.get("rows", [])
        report["failures"] += more.get("failures", [])
        report["skipped"] += more.get("skipped", [])
        report["kernels"] += more.get("kernels", [])
    return report


def write(report, base):
    save_json(base + ".json", report)
    save_text(base + ".md", markdown(report))


def name_of(report):
    """The file for the repository's results."""
    gpu = re.sub(r"[^a-z0-9]+", "_", report["about"]["gpu"]["name"].lower()).strip("_")
    return os.path.join(ROOT, "bench", "results", "gpu_" + gpu)


def cell(text, characters=400):
    return " ".join(str(text).split()).replace("|", "\\|")[:characters]


def markdown(report):
    about = report["about"]
    lines = [f"# Kernels on {about['gpu']['name']}", "",
             f"Commit {about['commit']}, {about['date']}; " + ", ".join(f"{k} {v}" for k, v in about["gpu"].items()) +
             ". Made by `scripts/gpu_check`.", ""]
    lines += stage_lines(report["stages"]) + case_lines(report["cases"]) + figure_lines(report["rows"], about["gpu"])
    lines += kernel_lines(report["kernels"])
    for failure in report["failures"]:
        lines.append(f"\nFAILED {failure['case']}: {cell(failure['error'])}")
    lines += [f"\nSkipped: {reason}" for reason in report["skipped"]]
    return "\n".join(lines) + "\n"


def stage_lines(stages):
    lines = ["| stage | | seconds | |", "|---|---|---|---|"]
    for name, state in stages.items():
        lines.append(f"| {name} | {state['status']} | {state['seconds']} | {cell((state['line'].splitlines() or [''])[0])} |")
    for name, state in stages.items():
        for what, failure in state.get("failures", {}).items():
            lines.append(f"\n{name}: {what}: {cell(failure, 800)}")
    return [*lines, ""]


def case_lines(cases):
    if not cases:
        return []
    by_stage = {}
    for case in cases:
        counts = by_stage.setdefault(case["stage"], {})
        counts[case["status"]] = counts.get(case["status"], 0) + 1
    lines = ["## Test cases", ""]
    lines += [f"- {stage}: " + ", ".join(f"{n} {status}" for status, n in counts.items())
              for stage, counts in by_stage.items()]
    wrong = [case for case in cases if case["status"] != "passed"]
    if wrong:
        lines += ["", "| case | | seconds | reason |", "|---|---|---|---|"]
        lines += [f"| {cell(c['case'])} | {c['status']} | {c['seconds']} | {cell(c['reason'])} |" for c in wrong]
    return [*lines, ""]


def figure_lines(rows, gpu):
    if not rows:
        return []
    known = limits.of(gpu["name"])
    lines = ["## Figures", "", limits.statement(gpu["name"], limits.megahertz(gpu)), "",
             "A ratio above 1 means that ours is faster than the best of the others. The distance is that of all "
             "elements together, relative; in the ladders of kernels that memory bounds, the worst element's as part of "
             "what is accepted.", "", "| case | distance to f64 | milliseconds | rate | of the limit | ratio |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        times = ", ".join(f"{who} {ms:.4g}" for who, ms in row.get("ms", {}).items()) or "not timed"
        rate = " ".join(f"{row[key]:.0f} {unit}" for key, unit in (("tflops", "TFLOP/s"), ("gbytes_per_s", "GB/s"))
                        if key in row)
        part = limits.share(known, row)
        of_limit = "; ".join(f"{who} {used:.1%}" for who, used in row.get("utilisation", {}).items())
        of_limit = of_limit if part is None else f"{part:.0%}"
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        error = f"{row['error']:.1e}" if row.get("error") is not None else ""
        lines.append(f"| {row['case']} | {error} | {times} | {rate} | {of_limit} | {ratio} |")
    return lines


def kernel_lines(rows):
    if not rows:
        return []
    lines = ["", "## The kernels of a training step", "", "By Nsight Compute, which runs one at a time."]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        total = sum(row["ms"] for row in mine)
        lines += ["", f"{model}: {total:.2f} ms in {sum(row['launches'] for row in mine):.0f} launches.", "",
                  "| kernel | ms | part | launches | GB | GB/s |", "|---|---|---|---|---|---|"]
        lines += [f"| `{cell(row['kernel'], 110)}` | {row['ms']:.3f} | {row['ms'] / total:.1%} | {row['launches']} | "
                  f"{row['gbytes']:.2f} | {1e3 * row['gbytes'] / max(row['ms'], 1e-9):.0f} |" for row in mine]
    return lines

#!/usr/bin/env python3
"""browser_test.py TRAIN_GPT VIEW SOURCES: a run is trained and drawn; its page works in headless Chromium.

Exits with 77, and says why, if there is no Chromium."""
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser as browsers  # noqa: E402

if browsers.program() is None:
    print("skipped: no chromium is installed")
    sys.exit(77)

train_gpt, view, sources = sys.argv[1:4]
failures = []


def check(holds, what):
    if not holds:
        failures.append(what)
        print("FAIL", what)


def call(*command, **more):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stdout}{result.stderr}")
    return result.stdout


def train(folder, name, mesh, *flags, **environment):
    call(train_gpt, "--data", os.path.join(sources, "LICENSE"), "--layers", "2", "--heads", "2", "--width", "32",
         "--context", "32", "--micro-batch", "2", "--micro-batches", "2", "--steps", "5", "--log-every", "1",
         "--eval-batches", "1", "--mesh", mesh, "--out", name, *flags, cwd=folder, env={**os.environ, **environment})


def metrics_of(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def events_of(trace, category, rank):
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return [e for e in events if e.get("cat") == category and e["pid"] == rank]


DATA = "JSON.parse(document.getElementById('data').textContent)"


def check_whole_page(browser, folder):
    run = os.path.join(folder, "a run <!--<script>")
    page = browser.open(os.path.join(run, "view.html"))
    check(page.errors == [], f"console: {page.errors}")
    check(all(url.startswith("file:") or url.startswith("data:") for url in page.requests), f"loads {page.requests}")
    check(page.run("document.querySelector('h1').textContent") == "a run <!--<script>", "the title is not the run's name")
    shown = page.run("[...document.querySelectorAll('main > section:not([hidden])')].map(s => s.id)")
    check({"findings", "mesh", "timeline", "memory", "curves", "placements", "options"} <= set(shown), f"sections {shown}")

    # Figures are those of the files.
    data, metrics = page.run(DATA), metrics_of(run)
    for key in ("step", "loss", "lr", "grad_norm", "tokens_per_s"):
        check(data["metrics"][key] == [line[key] for line in metrics], f"{key} of metrics.jsonl")
    check([x for x in data["metrics"]["val_loss"] if x is not None] == [line["val_loss"] for line in metrics if "val_loss" in line],
          "val_loss")
    trace = os.path.join(folder, "trace of a run.json")
    steps = events_of(trace, "step", 0)
    check([step["name"] for step in data["profile"]["steps"]] == [step["name"] for step in steps], "steps of the trace")
    for rank in range(4):
        within = [e for e in events_of(trace, "pipeline", rank) if e["ts"] < steps[0]["ts"] + steps[0]["dur"]]
        forwards = [e for e in within if e["name"].startswith("forward")]
        parts = data["profile"]["steps"][0]["ranks"][rank]["parts"]
        durations = [parts[i + 1] for i in range(0, len(parts), 6) if data["profile"]["labels"][parts[i + 2]] == "forward"]
        check(len(durations) == len(forwards) and all(abs(d / 10 - e["dur"]) < 0.2 for d, e in zip(durations, forwards)),
              f"forwards of rank {rank}: {durations}, {forwards}")
    check(page.run("document.querySelectorAll('#mesh .rank').length") == 4, "a tile for each rank")
    check(page.run("document.querySelectorAll('#memory-bars .bar').length") == 4, "a bar for each rank")
    check(page.run("document.querySelectorAll('#placement-table tbody tr').length") > 10, "placements")
    check("rank" in page.run("document.querySelector('#finding-list').textContent"), "findings")

    check_timeline(page)
    page.run("document.getElementById('theme').click()")
    page.run("document.getElementById('theme').click()")
    check(page.run("document.documentElement.dataset.theme") == "dark", "the switch of the theme")
    check(page.run("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)", "the dark page")
    page.run("document.querySelectorAll('#mesh .rank')[3].focus()")
    check("Rank 3" in page.run("document.getElementById('mesh-details').textContent"), "a focused tile")
    check(page.errors == [], f"console: {page.errors}")

    narrow = browser.open(os.path.join(run, "view.html"), width=390, height=800, dark=True)
    check(narrow.errors == [], f"console: {narrow.errors}")
    check(narrow.run("document.documentElement.scrollWidth") <= 390, "a phone scrolls sideways")


def tooltip_at(page, across, down):
    """Whether there is one of a rank at these percents of the timeline. Which rank is opened, and so where boxes are, is
    not the same in every run: it is the slowest one."""
    x, y, width, height = page.run("(() => { const b = document.getElementById('timeline-canvas').getBoundingClientRect();"
                                   " return [b.x, b.y, b.width, b.height]; })()")
    page.point(x + width * across / 100, y + height * down / 100)
    return "Rank" in page.run("document.getElementById('tooltip').textContent")


def check_timeline(page):
    canvas = page.run("(() => { const c = document.getElementById('timeline-canvas'); c.scrollIntoView({block: 'center'}); c.focus();"
                      " const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
    page.frame()
    details = "document.getElementById('timeline-details').textContent"
    picture = "document.getElementById('timeline-canvas').toDataURL()"
    before = page.run(picture)
    page.key("ArrowRight")
    check("forward of micro-batch 0" in page.run(details), f"the first box: {page.run(details)}")
    page.key("ArrowRight")
    check("micro-batch" in page.run(details), "the second box")
    for key in ("+", "+", "d", "c", "m", "s"):
        page.key(key)
    page.frame()
    check(page.run(picture) != before, "zooming draws something else")
    page.key("0")
    page.key("Enter")
    page.frame()
    check(page.run("document.getElementById('timeline-canvas').getBoundingClientRect().height") > canvas[3], "an open rank")
    check(any(tooltip_at(page, across, down) for down in range(4, 100, 3) for across in (30, 50, 70)), "a tooltip")


def check_without_trace(browser, folder):
    page = browser.open(os.path.join(folder, "plain.html"))
    check(page.errors == [], f"console: {page.errors}")
    check("--profile FILE" in page.run("document.getElementById('missing').textContent"), "what is missing is said")
    check(page.run("document.getElementById('timeline').hidden"), "no timeline without a trace")
    check(not page.run("document.getElementById('curves').hidden"), "curves without a trace")


with tempfile.TemporaryDirectory(prefix="trireme view ") as folder:
    train(folder, "a run <!--<script>", "dp=1,tp=2,pp=2", "--profile", "trace of a run.json", "--profile-steps", "2")
    said = call(view, "a run <!--<script>", cwd=folder)
    check("view.html" in said, f"view prints {said}")
    call(view, "trace of a run.json", cwd=folder)
    train(folder, "plain", "dp=2")
    call(view, "plain", "--out", "plain.html", cwd=folder)
    refused = subprocess.run([view, "plain", "--trace", "trace of a run.json"], cwd=folder, capture_output=True, text=True,
                             check=False)
    check(refused.returncode == 64 and "expected the run's own trace" in refused.stderr, f"another mesh: {refused.stderr}")
    with browsers.Browser() as browser:
        check_whole_page(browser, folder)
        check_without_trace(browser, folder)
        alone = browser.open(os.path.join(folder, "trace of a run.html"))
        check(alone.errors == [] and not alone.run("document.getElementById('timeline').hidden"), "a trace alone")

print("failed:" if failures else "passed", *failures)
sys.exit(1 if failures else 0)

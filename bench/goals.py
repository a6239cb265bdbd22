"""The table of performance goals, from the results of bench/compare.py: one row per goal, and the page around it.

bench/README.md explains each figure. `results` is the JSON of compare.py: for each contest the date, the commit, the
machine's state, and its sides by name.
"""

import json
import statistics


def limit(dtype, ready, machine):
    """Seconds of a step whose products run at peak, plus one pass of AdamW at memory speed, which for each parameter
    reads 4 f32 numbers and writes 3, and for bf16 also writes the copy."""
    optimizer = ready["parameters"] * (28 if dtype == "f32" else 30)
    return ready["flops"] / machine[f"{dtype}_flops"] + optimizer / machine["update_bytes"]


def seconds(side):
    return statistics.median(side["round_seconds"])


def ratio(peer, ours):
    """How many times as fast ours is: the median over rounds, the lowest and the highest."""
    each = [p / o for p, o in zip(peer["round_seconds"], ours["round_seconds"])]
    return {"ratio": statistics.median(each), "ratio_low": min(each), "ratio_high": max(each)}


def best(sides, prefix, key=seconds):
    """The name of the best side whose name begins with `prefix`; None if there is none."""
    return min((who for who in sides if who.startswith(prefix)), key=lambda who: key(sides[who]), default=None)


def row(what, goal, ours, peer="", met=None, of_limit=None, **more):
    return {"what": what, "goal": goal, "ours": ours, "peer": peer, "met": met, "of_limit": of_limit} | more


def against(sides, peer, what, goal, least, show, of_limit=None, also=True):
    """A row whose goal is that Trireme is at least `least` times as fast as a peer."""
    ours = sides["Trireme"]
    if peer is None:
        return row(what, goal, show(ours), of_limit=of_limit, met=None if also else False)
    compared = ratio(sides[peer], ours)
    return row(what, goal, show(ours), f"{peer}: {show(sides[peer])}", compared["ratio"] >= least and also, of_limit,
               **compared)


def gpt2_rows(name, sides, machine):
    dtype, length = name.split("-T")
    what = f"GPT-2 124M step, {dtype}, B=4 T={length}"

    def rate(side):
        return f"{side['ready']['tokens'] / seconds(side):.0f} tok/s"

    ours = sides["Trireme"]
    share = limit(dtype, ours["ready"], machine) / seconds(ours)
    pytorch = best(sides, "PyTorch")
    if dtype == "f32":
        rows = [against(sides, pytorch, what, "1.3 x PyTorch", 1.3, rate, share)]
        if "llm.c" in sides:
            rows.append(against(sides, "llm.c", what, "10 x llm.c", 10, rate, share))
    else:
        least = 1200 if length == "256" else 0
        goal = "1.5 x PyTorch" + (", 1200 tok/s" if least else "")
        rows = [against(sides, pytorch, what, goal, 1.5, rate, share, ours["ready"]["tokens"] / seconds(ours) >= least)]
    if length == "256":
        rows.append(memory_row(what, sides))
    return rows


def memory_row(what, sides):
    peer = best(sides, "PyTorch", lambda side: side["end"]["peak_rss"])
    ours = sides["Trireme"]["end"]["peak_rss"]
    theirs = sides[peer]["end"]["peak_rss"] if peer else None
    return row(f"{what}: peak memory of the process", "at most PyTorch's", f"{ours / 1e9:.2f} GB",
               f"{peer}: {theirs / 1e9:.2f} GB" if peer else "", ours <= theirs if peer else None,
               **({"ratio": ours / theirs} if peer else {}))


def char_rows(sides, machine):
    ours = sides["Trireme"]

    def show(side):
        return f"{1e3 * seconds(side):.1f} ms"

    return [against(sides, best(sides, "PyTorch"), "small character model, step, f32", "20 ms, 2 x PyTorch", 2, show,
                    limit("f32", ours["ready"], machine) / seconds(ours), seconds(ours) <= 0.020)]


def recompute_rows(sides):
    full, none = sides["Trireme"], sides["Trireme none"]
    bytes_kept = full["end"]["activation_bytes"] / none["end"]["activation_bytes"]
    slower = 1 / ratio(none, full)["ratio"]
    return [row("--recompute full, GPT-2 124M, f32, B=4 T=256", "activations 1/2, time 1.35 x",
                f"{full['end']['activation_bytes'] / 1e6:.0f} MB, {seconds(full):.2f} s",
                f"none: {none['end']['activation_bytes'] / 1e6:.0f} MB, {seconds(none):.2f} s",
                bytes_kept <= 0.5 and slower <= 1.35, activations=bytes_kept, time=slower)]


def rank_rows(name, sides):
    rows = []
    one = sides["Trireme one rank"]
    for who in ("Trireme dp=2", "Trireme tp=2"):
        compared = ratio(one, sides[who])
        tokens = one["ready"]["tokens"]
        rows.append(row(f"{who[8:]}, one core per rank, GPT-2 124M, {name[6:]}, B=4 T=256", "0.9 x one rank",
                        f"{tokens / seconds(sides[who]):.0f} tok/s", f"one rank: {tokens / seconds(one):.0f} tok/s",
                        compared["ratio"] >= 0.9, **compared))
    return rows


def generate_rows(name, sides):
    ours, memory = sides["Trireme"], sides["memory"]
    size = ours["ready"]["weight_bytes"] / memory["ready"]["bytes"]  # weights in units of one read
    share = size * ratio(memory, ours)["ratio"]

    def show(side):
        return f"{1 / seconds(side):.1f} tok/s"

    return [against(sides, best(sides, "PyTorch"), f"generation, GPT-2 124M, {name[9:]}, batch 1",
                    "60% of memory bandwidth, 1 x PyTorch", 1, show, share, share >= 0.6)]


def fault_rows(contests):
    """Page faults per step: the worst of all Trireme runs of all contests, on one rank or several. Fewer than ten come
    from reading the clock and writing to the pipe."""
    faults = {f"{name}{who.removeprefix('Trireme')}": side["minor_faults"] + side["major_faults"]
              for name, c in contests.items() for who, side in c["sides"].items() if who.startswith("Trireme")}
    if not faults:
        return []
    worst = max(faults, key=faults.get)
    where = worst if round(faults[worst]) else f"in each of {len(faults)} runs"
    return [row("page faults a step, after the warm-up, the worst of all contests", "0",
                f"{faults[worst]:.0f} ({where})", met=faults[worst] < 10)]


def rows(results):
    contests, found = results["contests"], []
    for name, contest in contests.items():
        sides, machine = contest["sides"], contest["machine"]
        if "-T" in name:
            found += gpt2_rows(name, sides, machine)
        elif name == "char":
            found += char_rows(sides, machine)
        elif name == "recompute":
            found += recompute_rows(sides)
        elif name.startswith("ranks-"):
            found += rank_rows(name, sides)
        else:
            found += generate_rows(name, sides)
    return found + fault_rows(contests)


def groups(contests):
    """Contests grouped by the command that measured them: [{machine, commit, dates, names}], most contests first, then
    newest first."""
    found = {}
    for name, c in contests.items():
        key = json.dumps([c["machine"], c["commit"]], sort_keys=True)
        group = found.setdefault(key, {"machine": c["machine"], "commit": c["commit"], "dates": set(), "names": []})
        group["dates"].add(c["date"])
        group["names"].append(name)
    return sorted(found.values(), key=lambda group: (len(group["names"]), max(group["dates"])), reverse=True)


def system(m):
    features = ", ".join(m["features"]) or "no AVX"
    return (f"{m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GiB, {features}; "
            f"Linux {m['kernel']}; {m['compiler']}")


def speed(m):
    return (f"{m['threads']} thread{'s' if m['threads'] > 1 else ''}: {m['f32_flops'] / 1e9:.0f} GFLOP/s in f32, "
            f"{m['bf16_flops'] / 1e9:.0f} in bf16 ({m['bf16_unit']}); {m['read_bytes'] / 1e9:.1f} GB/s read, "
            f"{m['update_bytes'] / 1e9:.1f} GB/s updated in place")


def machine_lines(m, when="Measured on the spot"):
    return f"{system(m)}.\n\n{when}, {speed(m)}."


def group_lines(contests):
    """The machine of the largest group, and a line for each other group."""
    first, *others = groups(contests)

    def when(group):
        return f"{' to '.join(sorted(group['dates']))}, commit {group['commit']}"

    lines = [machine_lines(first["machine"], f"Measured on the spot, {when(first)}")]
    for group in others:
        where = "" if system(group["machine"]) == system(first["machine"]) else f", on {system(group['machine'])}"
        lines.append(f"Measured apart, {when(group)}{where}: {', '.join(group['names'])}; {speed(group['machine'])}.")
    return "\n\n".join(lines)


def share(row_of_table):
    return "" if row_of_table["of_limit"] is None else f"{100 * row_of_table['of_limit']:.0f}%"


def met(row_of_table):
    return {True: "yes", False: "**no**", None: "not measured"}[row_of_table["met"]]


def table(results):
    """The machine, and one line per row."""
    lines = [group_lines(results["contests"]), "",
             "| what | goal | Trireme | peer | ratio (rounds) | of the limit | goal met |",
             "|---|---|---|---|---|---|---|"]
    for r in results["rows"]:
        compared = f"{r['ratio']:.2f}" if "ratio" in r else ""
        if "ratio_low" in r:
            compared += f" ({r['ratio_low']:.2f} to {r['ratio_high']:.2f})"
        if "activations" in r:
            compared = f"activations {r['activations']:.2f}, time {r['time']:.2f}"
        lines.append(f"| {r['what']} | {r['goal']} | {r['ours']} | {r['peer']} | {compared} | {share(r)} | {met(r)} |")
    return "\n".join(lines) + "\n"


# The rows of the README, by their `what`; the whole table is in bench/results/.
TELLING = {"GPT-2 124M step, f32, B=4 T=256", "GPT-2 124M step, f32, B=4 T=256: peak memory of the process",
           "GPT-2 124M step, bf16, B=4 T=256", "small character model, step, f32",
           "dp=2, one core per rank, GPT-2 124M, bf16, B=4 T=256", "generation, GPT-2 124M, bf16, batch 1"}


def summary(results):
    """A few rows of the table for the README, without ranges and goals."""
    first = groups(results["contests"])[0]
    m = first["machine"]
    lines = [f"{m['cpu']}, {m['cores']} cores, {m['threads']} thread{'s' if m['threads'] > 1 else ''}, "
             f"{' to '.join(sorted(first['dates']))}, commit {first['commit']}:", "",
             "| what | Trireme | peer | ratio | of the limit |", "|---|---|---|---|---|"]
    for r in results["rows"]:
        if r["what"] in TELLING:
            compared = f"{r['ratio']:.2f}" if "ratio" in r else ""
            cells = (r["what"], r["ours"], r["peer"], compared, share(r))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(results):
    contests = results["contests"]
    cpu = groups(contests)[0]["machine"]["cpu"]
    lines = [f"# CPU: goals and figures, {cpu}", "", table(results), "How each was run:", ""]
    for name, contest in contests.items():
        rounds = max(len(side["round_seconds"]) for side in contest["sides"].values())
        lines.append(f"- {name}: {rounds} rounds, {contest['date']}, commit {contest['commit']}")
        for who, side in contest["sides"].items():
            settings = " ".join(f"{k}={v}" for k, v in side["environment"].items())
            version = side["ready"].get("version")
            name, command = " ".join(filter(None, [who, version])), " ".join(filter(None, [settings, side["command"]]))
            lines.append(f"  - {name}: `{command}`, "
                         f"median {1e3 * seconds(side):.1f} ms, {side['end']['peak_rss'] / 1e9:.2f} GB, "
                         f"{side['minor_faults']:.0f} page faults a step")
    return "\n".join(lines) + "\n"

"""The tables of the kernel benchmarks, by number of threads. Rows that another program disturbed are measured again.

    tables(run, threads)    # run("gemm_bench", "--dtype", "f32"): the lines of its table

Read next: bench/compare.py, which makes a page of them.
"""

BY_TEAM = ["gemm_bench", "attention_bench"]  # a column for each number of threads; kernel_bench: a table
PROGRAMS = [*BY_TEAM, "kernel_bench"]
TRIES = 3

# A row is slow if two threads are less than 1.2 times as fast as one. With more threads small shapes may always be so.
SLOW = 0.6 * 2


def tables(run, threads):
    """All lines. A table: its title, nothing, the names of its columns, a rule, rows, nothing."""
    lines, teams = [], sorted({1, threads})
    for program in BY_TEAM:
        for dtype in ("f32", "bf16"):
            flags = [program, "--dtype", dtype, "--threads", ",".join(map(str, teams))]
            lines += with_slow_models_again(run(*flags), lambda model, f=flags: run(*f, "--only", model))
    for team in teams:
        table = run("kernel_bench", str(team))
        title = table[0].replace("by memory", f"by memory, {team} thread{'s' if team > 1 else ''}")
        lines += [title, *table[1:]]
    return lines


def with_slow_models_again(table, measure):
    """The table after its models with slow rows were measured again, with a remark if some are still slow."""
    for _ in range(TRIES - 1):
        for model in sorted({model_of(row) for row in slow_rows(table)}):
            again = measure(model)
            if len(slow_rows(again)) < sum(model_of(row) == model for row in slow_rows(table)):
                rows = iter(again[4:])
                table = [next(rows) if model_of(line) == model else line for line in table]
    slow = [" ".join(cell for cell in cells(row) if "%" not in cell) for row in slow_rows(table)]
    if not slow:
        return table
    remark = f"Not to be relied on, as another program probably had a core: on two threads nothing was faster than " \
             f"{SLOW:.1f} times one, measured {TRIES} times, for {'; '.join(slow)}."
    return [*table[:2], remark, "", *table[2:]]


def slow_rows(table):
    """Rows in which no implementation gained from a second thread; empty if the table has no column for two threads."""
    one, two = ({name.split(",")[0]: at for at, name in enumerate(cells(table[2])) if name.endswith(team)}
                for team in (", 1 thread", ", 2 threads"))

    def gain(row, name):
        return speed(row[two[name]]) / speed(row[one[name]])

    return [line for line in table[4:] if two and line and all(gain(cells(line), name) < SLOW for name in two)]


def speed(cell):  # of "102 (87%)"
    return float(cell.split()[0])


def cells(row):
    return [cell.strip() for cell in row.strip("| ").split(" | ")]


def model_of(line):  # its first word; what --only takes
    return cells(line)[0].split()[0] if line.startswith("| ") else None

#!/usr/bin/env bash
# A second job in the folder of one that runs is refused with 73, naming host, process and since when;
# the first does not notice.
# row: 8 two jobs in one directory
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run=(--steps 400 --checkpoint-every 20 --out "$work/run")
run_threads alone "${run[@]}" --mesh dp=2 --out "$work/alone"

# The first is stopped while the others try: in a step that takes long, so that it has not ended by then.
TRIREME_FAULT='slow@step=30,ms=10000,rank=all' start_threads first "${run[@]}" --mesh dp=2 --timeout 1800 \
  --allow-fault-injection
first=$pid
wait_for '^saved step 20 ' first || note 'the first job has not begun'
kill -STOP "$first"

# refused NAME: the last job was.
refused() {
  expect_code 73 "$1" &&
    expect_text "FATAL\[73\].*another run is writing to .*host $(hostname), process [0-9]+, since 20[0-9-]+ [0-9:]+ UTC" "$1" &&
    [ "$(fatal_lines "$1")" -eq 1 ]
}
slowest=0
attempt() {
  local start status=0
  start=$(now)
  "$@"
  slowest=$(awk -v a="$slowest" -v b="$(elapsed "$start")" 'BEGIN { print (a > b) ? a : b }')
  refused "$2" || status=1
  kill -0 "$first" 2>/dev/null || { note 'the first job had ended'; status=1; }
  return "$status"
}
bad=0
attempt run_threads resuming "${run[@]}" --mesh dp=2 --resume auto || bad=1
attempt run_threads elsewhere "${run[@]}" --mesh tp=2 --resume auto || bad=1
check '8 a second job, ranks by threads' "$bad" "exit=$code" "slowest=${slowest}s"

slowest=0 bad=0
attempt run_mpi processes 2 "${run[@]}" --mesh dp=2 --resume auto || bad=1
check '8 a second job under mpirun' "$bad" "exit=$code" "slowest=${slowest}s" 'of_which_mpirun_starts_and_ends'

kill -CONT "$first"
wait "$first"
code=$?
status=0
expect_code 0 first && same_bits "$work/alone" "$work/run" || status=1
[ "$(losses "$work/alone")" = "$(losses "$work/run")" ] || status=1
check '8 the first is untouched' "$status" "exit=$code" 'diff=0'

# The lock goes with its owner, however that ends.
start_threads third --mesh dp=2 --steps 100000 --out "$work/third"
wait_for '^step 1/' third
kill -KILL "$pid"
wait "$pid" 2>/dev/null
status=0
run_threads fourth --mesh dp=2 --steps 4 --out "$work/third" --resume auto
expect_code 0 fourth || status=1
check '8 after kill -9 of the owner' "$status" "exit=$code"
finish

#!/usr/bin/env bash
# A rank that is slower than those that do the same work is named within 20 steps, and training goes on; in a pipeline,
# whose stages differ by design, and on a clean run nobody is.
# row: 10 slow rank
# clock: who is slow is measured
# alone: what else runs makes other ranks slow too, and they are named, rightly
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

runs=6 clean_steps=300
[ "$quick" = no ] || { runs=2 clean_steps=60; }
points=(data forward backward optimizer)
meshes=(dp=4 'dp=2,tp=2' 'dp=2,pp=2')

named=0 worst=0
for ((run = 1; run <= runs; ++run)); do
  name=slow$run
  mesh=${meshes[RANDOM % ${#meshes[@]}]} rank=$((RANDOM % 4)) point=${points[RANDOM % ${#points[@]}]}
  first=$((5 + RANDOM % 10))
  export TRIREME_FAULT="slow@rank=$rank,step=$first-1000,point=$point,ms=60"
  flags=(--mesh "$mesh" --steps $((first + 30)) --allow-fault-injection)
  if [ $((run % 2)) -eq 0 ]; then run_threads "$name" "${flags[@]}"; else run_mpi "$name" 4 "${flags[@]}"; fi
  unset TRIREME_FAULT
  line=$(grep -E "warning: straggler: rank $rank \(" "$work/$name.log" | head -n 1)
  last=$(sed -n 's/.*in steps [0-9]* to \([0-9]*\);.*/\1/p' <<<"$line")
  others=$(grep -E 'warning: straggler: ' "$work/$name.log" | grep -cvE "straggler: rank $rank \(")
  if [ "$code" -eq 0 ] && [ -n "$last" ] && [ "$others" -eq 0 ] && [ $((last - first)) -lt 20 ]; then
    named=$((named + 1))
    [ $((last - first + 1)) -le "$worst" ] || worst=$((last - first + 1))
  else
    note "$mesh, rank $rank slow in $point from step $first on: exit code $code, '$line'"
    show "$name"
  fi
done
[ "$named" -eq "$runs" ]
check '10 slow rank named' $? "named=$named/$runs worst_steps=$worst target=20 aborts=0"

run_threads clean --mesh dp=2,pp=2 --layers 4 --steps "$clean_steps" --log-every 50
alarms=$(grep -c 'warning: straggler' "$work/clean.log")
[ "$code" -eq 0 ] && [ "$alarms" -eq 0 ]
check '10 slow rank: no false alarm' $? "clean_steps=$clean_steps alarms=$alarms"
[ "$alarms" -eq 0 ] || grep 'warning: straggler' "$work/clean.log" | sed 's/^/     | /'
finish

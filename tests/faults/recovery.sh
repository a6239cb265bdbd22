#!/usr/bin/env bash
# Ranks killed in the middle of a step: the supervisor has the job training again within ten seconds, and its last
# weights are those of a run that was left alone. A model of 10M parameters; --quick: a tiny one.
# row: 1 kill -9 a rank mid step
# clock: training goes on within ten seconds
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$quick" = no ]; then
  model=(--layers 6 --heads 6 --width 384 --context 64 --global-batch 4 --micro-batch 2 --steps 60)
else
  model=(--layers 2 --heads 2 --width 64 --context 32 --global-batch 4 --micro-batch 2 --steps 400)
fi
flags=("${model[@]}" --dropout 0.1 --mesh dp=2 --checkpoint-every 10 --keep 2)

run_threads whole "${flags[@]}" --out "$work/whole"
expect_code 0 whole || verdict FAIL '1 kill -9 a rank mid step'
size=$(sed -n 's/^parameters *//p' "$work/whole.log")

child_of() { tr -d ' ' <"/proc/$1/task/$1/children"; }

# killed WAY: a run under the supervisor; after its second checkpoint one rank is killed, or with threads the process.
# Sets $seconds from the kill to the first step made again.
killed() {
  local name=killed_$1 launcher=() from job victim
  if [ "$1" = mpirun ]; then launcher=(mpirun --oversubscribe -n 2); fi
  # The tiny model's steps are over before one of them can be aimed at, unless they wait; those made again need not.
  local fault=()
  if [ "$quick" = yes ]; then fault=(TRIREME_FAULT='slow@rank=all,step=21-400,point=step,ms=15'); fi
  env "${fault[@]}" timeout -s KILL "$limit" "$bin/run" -- "${launcher[@]}" "$bin/train_gpt" "${tiny[@]}" "${flags[@]}" \
    --allow-fault-injection --out "$work/$name" >"$work/$name.log" 2>&1 </dev/null &
  pid=$!
  wait_for '^saved step 20 ' "$name" || { show "$name" && return 1; }
  job=$(child_of "$(child_of "$pid")") # of timeout, of run
  victim=$job
  if [ "$1" = mpirun ]; then victim=$(rank_pids "$job" | tail -n 1); fi
  from=$(now)
  kill -KILL "$victim"
  wait_for '^run: training again' "$name" || { show "$name" && return 1; }
  seconds=$(elapsed "$from")
  wait "$pid"
  code=$?
  expect_code 0 "$name" || return 1
  local cause='signal 9 \(Killed\)'
  # mpirun reports the end that it learns of first: of the killed rank, or of the rank that missed it.
  if [ "$1" = mpirun ]; then cause='(signal 9 \(Killed\)|exit code 75 \(a rank was lost or late\)), rank 1$'; fi
  expect_text "run: the job ended with $cause" "$name" || return 1
  none_left || { note "$name left processes" && return 1; }
  weights=other
  same_bits "$(newest "$work/$name")" "$(newest "$work/whole")" || { note "$name: other weights" && return 1; }
  weights=bit-identical
}

for way in threads mpirun; do
  seconds=- weights=unknown
  killed "$way"
  status=$?
  awk -v s="$seconds" 'BEGIN { exit !(s + 0 <= 10) }' ||
    { note "training again after $seconds s; expected at most 10" && status=1; }
  check '1 kill -9 a rank mid step' "$status" "ranks=$way" "parameters=$size" \
    "training_again_s=$seconds" "weights=$weights"
done
finish

#!/usr/bin/env bash
# Runs whose ranks are killed again and again, at points and steps drawn by chance (always the same), each time resumed:
# on the same mesh to the same final weights and losses, bit for bit, as a run that nothing happened to; on meshes that
# change each time to the same losses but for rounding.
# row: 1 kill -9 a rank mid step
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

steps=60
[ "$quick" = no ] || steps=24
points=(data forward backward optimizer step)
RANDOM=7
kills=0 longest=0

# killed_run NAME HOW RANKS MESH OUT FROM: one start, killed at most 6 steps after FROM; sets $at to the step of the
# newest checkpoint. HOW: threads or mpi.
killed_run() {
  local name=$1 how=$2 ranks=$3 mesh=$4 out=$5 from=$6 start
  local step=$((from + 1 + RANDOM % 6)) rank=$((RANDOM % ranks)) point=${points[RANDOM % ${#points[@]}]}
  export TRIREME_FAULT="kill@rank=$rank,step=$step,point=$point"
  start=$(now)
  if [ "$how" = mpi ]; then
    run_mpi "$name" "$ranks" "${run[@]}" --mesh "$mesh" --out "$out" --allow-fault-injection
  else
    run_threads "$name" "${run[@]}" --mesh "$mesh" --out "$out" --allow-fault-injection
  fi
  unset TRIREME_FAULT
  kill_left_overs
  # Under mpirun, a rank that waits for the killed one may see that it is gone before mpirun does, and end the job: 75.
  if [ "$code" -ne 137 ] &&
    ! { [ "$how" = mpi ] && [ "$code" -eq 75 ] && grep -q 'ended by signal 9' "$work/$name.log"; }; then
    note "$name: expected a killed run, got exit code $code"
    show "$name"
    return 1
  fi
  kills=$((kills + 1))
  longest=$(awk -v a="$longest" -v b="$(elapsed "$start")" 'BEGIN { print (a > b) ? a : b }')
  at=$(newest "$out")
  at=${at##*_}
  at=$((10#${at:-0}))
}

run=(--steps "$steps" --checkpoint-every 2 --keep 3 --resume auto)

# same_mesh HOW RANKS MESH KILLS: many kills, one final result.
same_mesh() {
  local how=$1 ranks=$2 mesh=$3 times=$4 out=$work/$1.$2 i before=$kills at=0
  run_threads "whole.$how" "${run[@]}" --mesh "$mesh" --out "$out.whole"
  for ((i = 0; i < times; ++i)); do
    killed_run "$how$i" "$how" "$ranks" "$mesh" "$out" "$at" || { check "1 killed and resumed on $mesh" 1; return; }
  done
  run_threads "last.$how" "${run[@]}" --mesh "$mesh" --out "$out"
  local diff=0 curve=0
  expect_code 0 "last.$how" || diff=1
  same_bits "$(newest "$out.whole")" "$(newest "$out")" || { diff=1; sed 's/^/     | /' "$work/diff.log"; }
  [ "$(losses "$out.whole")" = "$(losses "$out")" ] || curve=1
  check "1 killed and resumed on $mesh, ranks by $how" $((diff + curve)) "kills=$((kills - before))" "diff=$diff" \
    "losses_differ=$curve" "slowest_end=${longest}s"
}

if [ "$quick" = yes ]; then
  same_mesh threads 4 dp=2,tp=2 2
  same_mesh mpi 2 dp=2 1
else
  same_mesh threads 4 dp=2,tp=2 10
  same_mesh mpi 2 dp=2 10
fi

# Another mesh at every start.
meshes=(dp=2 tp=2 pp=2 'dp=2,pp=2' dp=4 dp=1)
sizes=(2 2 2 4 4 1)
flags=('--zero 2' '' '--micro-batch 4' '' '--zero 3' '')
at=0 status=0 before=$kills
run_threads whole.moving "${run[@]}" --mesh dp=1 --out "$work/moving.whole"
for ((i = 0; i < ${#meshes[@]}; ++i)); do
  [ "$quick" = no ] || [ "$i" -lt 2 ] || break
  read -ra more <<<"${flags[i]}"
  run=(--steps "$steps" --checkpoint-every 2 --keep 3 --resume auto "${more[@]}")
  killed_run "moving$i" threads "${sizes[i]}" "${meshes[i]}" "$work/moving" "$at" || status=1
done
run=(--steps "$steps" --checkpoint-every 2 --keep 3 --resume auto)
run_threads moving.last "${run[@]}" --mesh tp=2,dp=2 --out "$work/moving"
expect_code 0 moving.last || status=1
worst=$(paste <(losses "$work/moving.whole") <(losses "$work/moving") |
  awk -v n=$steps '$1 != $3 { bad = 1 } { d = ($2 - $4) / $2; if (d < 0) d = -d; if (d > worst) worst = d; ++lines }
    END { printf "%g", (bad || lines != n) ? 1 : worst }')
awk -v worst="$worst" 'BEGIN { exit !(worst < 1e-4) }' || status=1
check '1 killed and resumed on other meshes' "$status" "kills=$((kills - before))" "largest_relative_loss_difference=$worst"
finish

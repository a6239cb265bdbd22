#!/usr/bin/env bash
# One bit of one rank's weights or optimizer state falls over: found within ten steps, named, and nothing of it is saved.
# row: 13 bit flip in one replica's weights
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

at=13 # the step with the flip; copies are compared after every tenth

# flipped HOW ROW RANKS TENSOR EXPECTED FLAGS...: a flip on rank 1.
runs=0
flipped() {
  local how=$1 row=$2 ranks=$3 tensor=$4 expected=$5 name=flip$runs wrong=0 step
  shift 5
  runs=$((runs + 1))
  # Slow for some steps, so that the checkpoint of step 8 is on disk by then.
  export TRIREME_FAULT="slow@step=9-12,ms=200,point=step;flip@step=$at,rank=1,tensor=$tensor,bit=3"
  if [ "$how" = mpi ]; then
    run_mpi "$name" "$ranks" --steps 40 --checkpoint-every 8 --allow-fault-injection --out "$work/$name" "$@"
  else
    run_threads "$name" --steps 40 --checkpoint-every 8 --allow-fault-injection --out "$work/$name" "$@"
  fi
  unset TRIREME_FAULT
  expect_code 75 "$name" || wrong=1
  expect_text "$expected" "$name" || wrong=1
  step=$(sed -n 's/.*FATAL\[75\] rank [^:]* step \([0-9]*\): .*/\1/p' "$work/$name.log" | head -n 1)
  [ -n "$step" ] && [ "$((step - at))" -le 10 ] || wrong=1
  [ "$(fatal_lines "$name")" -eq 1 ] || wrong=1
  # What was saved before is whole, and what was not yet found wrong is not saved after.
  [ "$(basename "$(newest "$work/$name")")" = step_00000008 ] || wrong=1
  "$bin/checkpoint" verify "$work/$name" >"$work/verify.log" 2>&1 || wrong=1
  check "13 $row" "$wrong" "steps_to_detect=$((${step:-999} - at))" "exit=$code" "fatal_lines=$(fatal_lines "$name")"
}

weight=blocks.1.mlp.up.weight
flipped threads 'bit flip, dp=3: the odd rank by majority' 3 $weight \
  "\[replicas\] $weight on rank 1 differs from 2 copies that are equal, on ranks 0, 2" --mesh dp=3 --global-batch 12
flipped mpi 'bit flip, dp=2: both are named' 2 $weight "$weight differs between rank 0 and rank 1" --mesh dp=2
flipped threads 'bit flip, ZeRO-3: a sealed shard' 2 $weight "rank 1 .*\[seal\] the shard of $weight changed" \
  --mesh dp=2 --zero 3 --zero-resident 0
if [ "$quick" = no ]; then
  flipped threads 'bit flip, a norm on dp=2,tp=2: four copies' 4 blocks.1.norm1.weight \
    'blocks.1.norm1.weight on rank 1 differs from 3 copies' --mesh dp=2,tp=2
  flipped mpi 'bit flip of optimizer state, ZeRO-1: sealed' 2 optimizer.m.$weight \
    "rank 1 .*\[seal\] the shard of optimizer.m.$weight changed" --mesh dp=2 --zero 1 --check-state
  flipped mpi 'bit flip of a master weight, ZeRO-2 in bf16: sealed' 4 optimizer.master.$weight \
    "\[seal\] the shard of optimizer.master.$weight changed" --mesh dp=2,tp=2 --zero 2 --dtype bf16
  if [ -x "$bin/guards_bench" ]; then "$bin/guards_bench" | sed 's/^/     /'; fi
fi
finish

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
  # A run of eight steps is whole on disk when its program has ended; what goes on from there is flipped.
  run_threads "$name" --steps 8 --out "$work/$name" "$@"
  expect_code 0 "$name" || wrong=1
  export TRIREME_FAULT="flip@step=$at,rank=1,tensor=$tensor,bit=3"
  local flags=(--steps 40 --checkpoint-every 8 --resume auto --allow-fault-injection --out "$work/$name" "$@")
  if [ "$how" = mpi ]; then run_mpi "$name" "$ranks" "${flags[@]}"; else run_threads "$name" "${flags[@]}"; fi
  unset TRIREME_FAULT
  expect_code 75 "$name" || wrong=1
  expect_text "$expected" "$name" || wrong=1
  step=$(sed -n 's/.*FATAL\[75\] rank [^:]* step \([0-9]*\): .*/\1/p' "$work/$name.log" | head -n 1)
  [ -n "$step" ] && [ "$((step - at))" -le 10 ] || wrong=1
  [ "$(fatal_lines "$name")" -eq 1 ] || wrong=1
  # Checkpoints from before the flip are whole: that of step 8, or a later one with a lower validation loss. After the
  # flip nothing is saved.
  case $(basename "$(newest "$work/$name")") in step_00000008 | step_00000009 | step_0000001[0-2]) ;; *) wrong=1 ;; esac
  "$bin/checkpoint" verify "$work/$name" >"$work/verify.log" 2>&1 || wrong=1
  check "13 $row" "$wrong" "steps_to_detect=$((${step:-999} - at))" "exit=$code" "fatal_lines=$(fatal_lines "$name")"
}

weight=blocks.1.mlp.up.weight
flipped threads 'bit flip, dp=3: the odd rank by majority' 3 $weight \
  "\[replicas\] $weight on rank 1 differs from 2 copies that are equal, on ranks 0, 2" --mesh dp=3 --global-batch 12
flipped mpi 'bit flip, dp=2: both are named' 2 $weight "$weight differs between rank 0 and rank 1" --mesh dp=2
flipped threads 'bit flip, ZeRO-3: a hashed shard' 2 $weight "rank 1 .*\[shard-hash\] the shard of $weight changed" \
  --mesh dp=2 --zero 3 --zero-resident 0

# What has copies is compared whatever the dtype: in bf16 a flip in a master or a moment may show in no weight for long.
last=30
fault_free() { run_threads "clean_$1" --mesh dp=2 --dtype "$1" --steps "$last" --out "$work/clean_$1"; }

# one_bit DTYPE TENSOR BIT: a flip on rank 1; writes found, harmless (a run without the flip ends with the same bits: the
# next updates have rounded it away) or undetected.
one_bit() {
  local name=$1.$2.$3 result=undetected
  export TRIREME_FAULT="flip@step=$at,rank=1,tensor=$2,element=7,bit=$3"
  run_threads "$name" --mesh dp=2 --dtype "$1" --steps "$last" --allow-fault-injection --out "$work/$name"
  unset TRIREME_FAULT
  if [ "$code" -eq 75 ] && expect_text "\[replicas\] .*$weight" "$name" >/dev/null; then
    result=found
  elif [ "$code" -eq 0 ] && same_bits "$(newest "$work/$name")" "$(newest "$work/clean_$1")"; then
    result=harmless
  fi
  echo "$result" >"$work/bits/$name"
  rm -rf "${work:?}/$name"
}

# every_bit DTYPE TENSOR: all bits of an element, one run each. Rounding may take away the lowest only.
every_bit() {
  local bits counts found
  rm -rf "$work/bits" && mkdir "$work/bits"
  if [ "$quick" = yes ]; then bits=(0 9 22 31); else mapfile -t bits < <(seq 0 31); fi
  each_of "one_bit $1 $2" "${bits[@]}"
  counts=$(cat "$work/bits"/* | sort | uniq -c | awk '{ printf "%s%s=%s", (NR > 1 ? " " : ""), $2, $1 }')
  found=$(cat "$work/bits"/* | grep -c found)
  [ "$((${#bits[@]} - found))" -le 4 ] && ! grep -q undetected "$work/bits"/*
  check "13 bit flips in $2, $1, ZeRO 0" $? "flips=${#bits[@]}" "$counts"
}
fault_free bf16
every_bit bf16 optimizer.master.$weight
if [ "$quick" = no ]; then
  fault_free f16
  fault_free f32
  for moment in m v; do
    for dtype in bf16 f16 f32; do every_bit $dtype optimizer.$moment.$weight; done
  done
  every_bit f16 optimizer.master.$weight
  every_bit f32 $weight
  flipped threads 'bit flip, a norm on dp=2,tp=2: four copies' 4 blocks.1.norm1.weight \
    'blocks.1.norm1.weight on rank 1 differs from 3 copies' --mesh dp=2,tp=2
  flipped mpi 'bit flip of optimizer state, ZeRO-1: hashed' 2 optimizer.m.$weight \
    "rank 1 .*\[shard-hash\] the shard of optimizer.m.$weight changed" --mesh dp=2 --zero 1 --check-state
  flipped mpi 'bit flip of a master weight, ZeRO-2 in bf16: hashed' 4 optimizer.master.$weight \
    "\[shard-hash\] the shard of optimizer.master.$weight changed" --mesh dp=2,tp=2 --zero 2 --dtype bf16
  if [ -x "$bin/guards_bench" ]; then "$bin/guards_bench" | sed 's/^/     /'; fi
fi
finish

#!/usr/bin/env bash
# A NaN in one rank's gradient: the step is skipped on all ranks, its origin named, and only the position in the data
# changes. What cannot be seen from outside, weights after a skipped step, shows in what follows: runs that skip one
# step for different reasons end with the same bits. Too many in a row end the run.
# row: 11 NaN gradient on one rank
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# poisoned HOW NAME RANKS RANK TENSOR FLAGS...: a run of 6 steps with a NaN in the fourth; whether it was told of.
poisoned() {
  local how=$1 name=$2 ranks=$3 rank=$4 tensor=$5
  shift 5
  export TRIREME_FAULT="nan@step=4,rank=$rank,tensor=$tensor,element=3"
  if [ "$how" = mpi ]; then
    run_mpi "$name" "$ranks" --steps 6 --allow-fault-injection --out "$work/$name" "$@"
  else
    run_threads "$name" --steps 6 --allow-fault-injection --out "$work/$name" "$@"
  fi
  unset TRIREME_FAULT
  expect_code 0 "$name" || return 1
  expect_text "^warning: step 4 skipped: the gradient norm is nan: the gradient of $tensor on rank $rank \(.*, samples [0-9]" "$name"
}

# skipped MESH RANKS FLAGS...: three such runs with one result.
skipped() {
  local mesh=$1 ranks=$2 last=$(($2 - 1)) told=0 unchanged=0 a
  shift 2
  a=$work/$mesh.a
  poisoned threads "$mesh.a" "$ranks" "$last" blocks.1.mlp.up.weight --mesh "$mesh" "$@" || told=1
  poisoned threads "$mesh.b" "$ranks" "$last" blocks.1.norm2.bias --mesh "$mesh" "$@" || told=1
  poisoned mpi "$mesh.c" "$ranks" "$last" blocks.1.mlp.down.weight --mesh "$mesh" "$@" || told=1
  same_bits "$(newest "$a")" "$(newest "$work/$mesh.b")" || unchanged=1
  same_bits "$(newest "$a")" "$(newest "$work/$mesh.c")" || unchanged=1
  check "11 NaN gradient on rank $last of $mesh${*:+, }$*" $((told + unchanged)) \
    "unchanged=$([ $unchanged -eq 0 ] && echo yes || echo no)" "origin_named=$([ $told -eq 0 ] && echo 3/3 || echo no)"
}

skipped dp=2 2
skipped dp=2,tp=2 4 --zero 1
if [ "$quick" = no ]; then
  skipped dp=2,pp=2 4 --zero 2
  skipped dp=2,tp=2,pp=2 8
  skipped dp=3 3 --zero 3 --zero-resident 0 --global-batch 12
fi

# A NaN that comes back whenever the step is made, and in the second look as well.
faults=$(printf 'nan@step=3,rank=1;%.0s' {1..40})
export TRIREME_FAULT=${faults%;}
run_threads in_a_row --steps 6 --mesh dp=2 --checkpoint-every 1 --allow-fault-injection --out "$work/in_a_row"
unset TRIREME_FAULT
ended=0
expect_code 77 in_a_row || ended=1
expect_text '5 steps in a row.* on rank 1 \(.*, micro-batch 0, samples .*a second computation gives the same' in_a_row || ended=1
"$bin/checkpoint" verify "$work/in_a_row/checkpoints/step_00000001" >"$work/verify.log" 2>&1 || ended=1
check '11 five NaN steps in a row' "$ended" "exit=$code" "fatal_lines=$(fatal_lines in_a_row)" \
  "skipped=$(grep -c ' skipped: ' "$work/in_a_row.log")"
finish

#!/usr/bin/env bash
# A loss spike: the run goes back to its newest checkpoint and on with the samples after those that led to the spike, the
# same way on threads and on processes, and also when it is killed and resumed after that. At most as often as it may.
# row: 12 loss spike
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run=(--steps 14 --checkpoint-every 4 --spike-threshold 50 --spike-window 5 --allow-fault-injection)

# spiky HOW NAME RANKS FAULTS FLAGS...
spiky() {
  local how=$1 name=$2 ranks=$3
  export TRIREME_FAULT=$4
  shift 4
  if [ "$how" = mpi ]; then
    run_mpi "$name" "$ranks" "${run[@]}" --out "$work/$name" "$@"
  else
    run_threads "$name" "${run[@]}" --out "$work/$name" "$@"
  fi
  unset TRIREME_FAULT
}

# rolled_back MESH RANKS FLAGS...: global batch 8: step 7 has samples 48 to 55, those since step 4 begin with 32.
rolled_back() {
  local mesh=$1 ranks=$2 told=0 same=0
  shift 2
  spiky threads "$mesh.a" "$ranks" 'spike@step=7' --mesh "$mesh" "$@"
  expect_code 0 "$mesh.a" || told=1
  expect_text 'back to step 4, on with the samples after 32 to 55 \(1 of 2 rollbacks\)' "$mesh.a" || told=1
  spiky mpi "$mesh.b" "$ranks" 'spike@step=7' --mesh "$mesh" "$@"
  expect_code 0 "$mesh.b" || told=1
  # Killed after the checkpoint that knows of the rollback. If that was not on disk yet, the spike is met once more.
  spiky threads "$mesh.c" "$ranks" 'spike@step=7;kill@step=12' --mesh "$mesh" "$@"
  expect_code 137 "$mesh.c" || told=1
  spiky threads "$mesh.c" "$ranks" 'spike@step=7' --mesh "$mesh" --resume auto "$@"
  expect_code 0 "$mesh.c" || told=1
  same_bits "$(newest "$work/$mesh.a")" "$(newest "$work/$mesh.b")" || same=1
  same_bits "$(newest "$work/$mesh.a")" "$(newest "$work/$mesh.c")" || same=1
  [ "$(losses "$work/$mesh.a")" = "$(losses "$work/$mesh.c")" ] || same=1
  check "12 loss spike on $mesh${*:+, }$*" $((told + same)) "deterministic=$([ $same -eq 0 ] && echo yes || echo no)" \
    'rollbacks=1' 'skipped_samples=24'
}

rolled_back dp=2 2
if [ "$quick" = no ]; then
  rolled_back dp=2,tp=2 4 --zero 1
  rolled_back dp=2,pp=2 4 --zero 3 --zero-resident 0
fi

spiky threads often 2 'spike@step=7;spike@step=8;spike@step=9' --mesh dp=2
ended=0
expect_code 77 often || ended=1
expect_text 'after 2 rollbacks, as many as --spike-rollbacks allows' often || ended=1
check '12 a third loss spike' "$ended" "exit=$code" "rollbacks=$(grep -c 'back to step' "$work/often.log")" \
  "fatal_lines=$(fatal_lines often)"
finish

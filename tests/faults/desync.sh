#!/usr/bin/env bash
# A rank that takes part in an operation that no other rank knows of: both operations are named, with their counts and
# call sites, and the job ends with 76; under --verify it does so at the call.
# row: 14 collective out of order
# clock: the steps are random, and ranks count as late after three seconds
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

runs=10
[ "$quick" = no ] || runs=2
both='operation #[0-9]+ of group .* differs between ranks: .*(rank [0-9]+ \(world rank [0-9]+\) (called|is at) [a-z_]+\([^)]*\) in [a-z].*){2}'
sites='(.* in [a-z].*){2}'

for kind in threads processes verify; do
  good=0 begun=$(now)
  for ((run = 1; run <= runs; ++run)); do
    name=$kind$run
    export TRIREME_FAULT="desync@rank=$((RANDOM % 4)),step=$((2 + RANDOM % 10))"
    flags=(--mesh 'dp=2,tp=2' --steps 40 --timeout 3 --out "$work/out$name" --allow-fault-injection)
    case $kind in
      threads) run_threads "$name" "${flags[@]}" ;;
      processes) run_mpi "$name" 4 "${flags[@]}" ;;
      verify) run_mpi "$name" 4 "${flags[@]}" --verify ;;
    esac
    unset TRIREME_FAULT
    pattern="FATAL\[76\] .*$both"
    [ "$kind" != verify ] || pattern+="|FATAL\[76\] .*differs between ranks$sites"
    if expect_code 76 "$name" && expect_text "$pattern" "$name" && [ "$(fatal_lines "$name")" -eq 1 ] &&
      [ -s "$work/out$name/flight_recorder.txt" ]; then good=$((good + 1)); fi
  done
  [ "$good" -eq "$runs" ]
  check "14 out of order, $kind" $? "named=$good/$runs seconds_each=$(awk -v s="$(elapsed "$begun")" -v n="$runs" 'BEGIN { printf "%.1f", s / n }')"
done
finish

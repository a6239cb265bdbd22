#!/usr/bin/env bash
# A run that saves four times, with pruning, is ended at every single file operation it makes:
#  - by SIGKILL, after which it is resumed: from a checkpoint not older than the last it had said to be saved, to the
#    same final weights, bit for bit, as a run that nothing happened to;
#  - by a power failure, which takes with it what was not synced: worked out from a journal of the operations.
# row: 2 kill -9 at every I/O call of a save
# row: 3 un-synced writes dropped
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run=(--mesh dp=2 --steps 4 --checkpoint-every 1 --keep 1)
stride=1
[ "$quick" = no ] || stride=9

run_threads whole "${run[@]}" --out "$work/whole"
expect_code 0 whole || { verdict FAIL '2 killed in a save' reference=none; finish; }
want=$(newest "$work/whole")

mkdir "$work/before" "$work/walk"
export TRIREME_IO_FAULT=kind=count,journal=$work/journal
run_threads counted "${run[@]}" --allow-fault-injection --out "$work/walk/run"
unset TRIREME_IO_FAULT
operations=$(sed -n 's/^trireme: \([0-9]*\) operations on files$/\1/p' "$work/counted.log")

# point N: prints "ok" with how many unfinished checkpoints were named as skipped, or "lost", "stuck", "differs".
point() {
  local out=$work/kill$1 name=kill$1 said from
  TRIREME_IO_FAULT=kind=kill,op=$1 run_threads "$name" "${run[@]}" --allow-fault-injection --out "$out"
  # The count differs by a few from run to run, as threads write side by side: past the last there is no kill.
  if [ "$code" -ne 137 ] && [ "$code" -ne 0 ]; then echo "unexpected($1:$code)"; return; fi
  said=$(sed -n 's/^saved step \([0-9]*\) in.*/\1/p' "$work/$name.log" | tail -n 1)
  run_threads "$name.again" "${run[@]}" --out "$out" --resume auto
  if [ "$code" -ne 0 ]; then echo "stuck($1:$code)"; show "$name.again" 3; return; fi
  from=$(sed -n -e 's/^resuming after step \([0-9]*\) from.*/\1/p' \
    -e 's/^warning: nothing to do: .* has made \([0-9]*\) steps, .*/\1/p' "$work/$name.again.log")
  if [ "${from:-0}" -lt "${said:-0}" ]; then echo "lost($1:${from:-0}<$said)"; return; fi
  if same_bits_of "$want" "$(newest "$out")"; then
    echo "ok $(grep -c '^warning: skipped step_.*: \(no manifest\|its saving was interrupted\)' "$work/$name.again.log")"
  else
    echo "differs($1)"
  fi
  rm -rf "$out" "$work/$name.log" "$work/$name.again.log"
}
same_bits_of() { "$bin/checkpoint" diff "$1" "$2" >/dev/null 2>&1; }

start=$(now)
mapfile -t points < <(seq 1 "$stride" "$((operations + 3))")
each_of point "${points[@]}" >"$work/points"
bad=$(grep -vc '^ok ' "$work/points")
lost=$(grep -c '^lost' "$work/points") said=$(grep -c '^ok [1-9]' "$work/points")
[ "$bad" -eq 0 ] || grep -v '^ok ' "$work/points" | head -n 10 | sed 's/^/     /'
check '2 killed at every file operation' "$([ "$bad" -eq 0 ] && [ "${#points[@]}" -gt 20 ] && [ "$said" -gt 0 ]; echo $?)" \
  "operations=$operations" "kills=${#points[@]}" "skipped_and_said=$said" "lost=$lost" "other=$((bad - lost))" \
  "seconds=$(elapsed "$start")"

start=$(now)
seeds=4
[ "$quick" = no ] || seeds=1
"$bin/fault_disk_walk" "$work/journal" "$work/before" "$work/walk/run" "$seeds" >"$work/walk.log" 2>&1
status=$?
[ "$status" -eq 0 ] || sed 's/^/     /' "$work/walk.log"
check '3 power lost after every file operation' "$status" "$(tail -n 1 "$work/walk.log")" "seconds=$(elapsed "$start")"

# The judge is judged: a disk that forgets what was synced must be seen to lose checkpoints.
"$bin/fault_disk_walk" "$work/journal" "$work/before" "$work/walk/run" 0 nosync >"$work/nosync.log" 2>&1
[ $? -eq 1 ]
check '3 a disk that ignores syncs is caught' $? \
  "caught=$(sed -n 's/.* lost=\([0-9]*\) .*/\1/p' "$work/nosync.log")"
finish

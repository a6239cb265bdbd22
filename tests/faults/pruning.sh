#!/usr/bin/env bash
# --keep K under fire: killed at every file operation that has to do with removing a checkpoint, and with disks on which
# removing fails, there is always a whole checkpoint, no half-removed one is taken for one, and the next run ends with K.
# row: 2 kill -9 while older checkpoints are removed
# row: 7 the last valid checkpoint stays
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run=(--mesh dp=2 --steps 6 --checkpoint-every 1 --keep 2)
run_threads whole "${run[@]}" --out "$work/whole"
count() { find "$1/checkpoints" -mindepth 1 -maxdepth 1 -type d | wc -l; }
status=0
expect_code 0 whole || status=1
[ "$(count "$work/whole")" -eq 2 ] || status=1
check '2 keep 2 keeps two' "$status" "checkpoints=$(count "$work/whole")"

TRIREME_IO_FAULT=kind=count,path=.del. run_threads counted "${run[@]}" --out "$work/counted" --allow-fault-injection
operations=$(sed -n 's/^trireme: \([0-9]*\) operations on files$/\1/p' "$work/counted.log")

point() {
  local out=$work/prune$1 name=prune$1 valid=0 folder
  TRIREME_IO_FAULT=kind=kill,path=.del.,op=$1 run_threads "$name" "${run[@]}" --out "$out" --allow-fault-injection
  if [ "$code" -ne 137 ]; then echo "unexpected($1:$code)"; return; fi
  for folder in "$out"/checkpoints/step_????????; do
    "$bin/checkpoint" verify "$folder" >/dev/null 2>&1 || { echo "half($1:$(basename "$folder"))"; return; }
    valid=$((valid + 1))
  done
  # What is being removed has been replaced by a newer one already.
  if [ "$valid" -lt 2 ]; then echo "lost($1:$valid)"; return; fi
  run_threads "$name.again" "${run[@]}" --out "$out" --resume auto
  if [ "$code" -ne 0 ] || [ "$(count "$out")" -ne 2 ]; then echo "left($1:$code:$(count "$out"))"; return; fi
  if "$bin/checkpoint" diff "$work/whole" "$out" >/dev/null 2>&1; then echo ok; else echo "differs($1)"; fi
  rm -rf "$out"
}
stride=1
[ "$quick" = no ] || stride=4
# Not in the last removal: a run that finds all its steps made saves nothing, and so removes nothing.
mapfile -t points < <(seq 1 $stride $((operations - 5)))
each_of point "${points[@]}" >"$work/points"
bad=$(grep -vcx ok "$work/points")
[ "$bad" -eq 0 ] || grep -vx ok "$work/points" | head -n 10 | sed 's/^/     /'
check '2 killed while pruning' "$([ "$bad" -eq 0 ] && [ "${#points[@]}" -ge 4 ]; echo $?)" "kills=${#points[@]}" "bad=$bad"

# Removing fails: the save is good all the same, and it is said.
TRIREME_IO_FAULT=kind=eio,call=unlink,path=.del. run_threads stuck "${run[@]}" --out "$work/stuck" --allow-fault-injection
status=0
expect_code 0 stuck && expect_text '^saved step [0-9]+ in .*; cannot remove' stuck &&
  "$bin/checkpoint" verify "$work/stuck" >/dev/null 2>&1 || status=1
check '2 older ones that cannot be removed' "$status" "exit=$code"

# The newest, when it is damaged, never costs an older one its place: what counts as kept is what is valid.
cp -r "$work/whole" "$work/damaged"
printf x >>"$work/damaged/checkpoints/step_00000006/manifest.json"
run_threads again "${run[@]}" --out "$work/damaged" --resume auto --keep 1
status=0
expect_code 0 again && expect_text '^warning: skipped step_00000006' again && expect_text '^resuming after step 5' again || status=1
"$bin/checkpoint" diff "$work/whole" "$work/damaged" >/dev/null 2>&1 || status=1
check '7 a damaged newest one is replaced' "$status" "exit=$code"

# A new one that cannot be read back is no reason to remove an old one.
TRIREME_IO_FAULT=kind=eio,call=open,path=00000003/manifest.json run_threads unread "${run[@]}" --out "$work/unread" \
  --keep 1 --steps 3 --allow-fault-injection
status=0
"$bin/checkpoint" verify "$work/unread/checkpoints/step_00000002" >/dev/null 2>&1 || status=1
check '7 one that cannot be read back removes none' "$status" "exit=$code" "checkpoints=$(count "$work/unread")"
finish

#!/usr/bin/env bash
# Runs the fault scripts, tests/faults/*.sh, and prints the result of each row of the matrix in docs/faults.md:
#   scripts/faults.sh [--quick] [--clock | --no-clock] [NAME...]     NAME: a script without its .sh; none: all
# --quick runs a shorter version of each script, and two at a time, as they mostly wait; those with a line
# "# alone: why" run alone. The result of those with a line "# clock: why" depends on chance or on how fast the machine
# is at the moment: --no-clock leaves them out, --clock runs no others.
# Needs the programs in build/bin; `./trireme faults` builds them first. The status is 0 when nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 70
. scripts/common.sh

folder=${TRIREME_FAULT_SCRIPTS:-tests/faults} # tests of this script use another one
rows=('' 'kill -9 a rank mid step' 'kill -9 at every I/O call of a save' 'un-synced writes dropped' 'SIGTERM' 'SIGUSR1'
  'disk full, file size limit, EIO' 'truncated, flipped, missing shard' 'two jobs in one directory' 'hung rank'
  'slow rank' 'NaN gradient on one rank' 'loss spike' "bit flip in one replica's weights" 'collective out of order'
  'configuration differs between ranks' 'malformed files' 'bad flag, impossible mesh' 'bad token, empty data'
  'out of memory')

quick=() names=() clock=any one=no # --one NAME: internal; several may run at a time
for argument in "$@"; do
  case $argument in
    --quick) quick=(--quick) ;;
    --clock) clock=yes ;;
    --no-clock) clock=no ;;
    --one) one=yes ;;
    -*) die 64 "faults: unknown flag $argument; expected --quick, --clock, --no-clock or names of scripts in tests/faults" ;;
    *)
      if [ ! -e "$folder/$argument.sh" ] || [ "$argument" = common ]; then
        die 64 "faults: no script tests/faults/$argument.sh; expected one of those in tests/faults"
      fi
      names+=("$argument")
      ;;
  esac
done
all=no
if [ "${#names[@]}" -eq 0 ]; then
  [ "$clock" = any ] && all=yes
  for file in "$folder"/*.sh; do
    name=$(basename "$file" .sh) needs_clock=no
    if grep -q '^# clock: ' "$file"; then needs_clock=yes; fi
    if [ "$name" != common ] && { [ "$clock" = any ] || [ "$clock" = "$needs_clock" ]; }; then names+=("$name"); fi
  done
fi

[ -z "${TRIREME_FAULT_SCRIPTS:-}" ] || LOGS=$folder/log
mkdir -p "$LOGS"
began=$SECONDS
declare -A state # by row: PASS or FAIL
# note_row ROW RESULT: records a result; FAIL is never overwritten.
note_row() { [ "${state[$1]:-}" = FAIL ] || state[$1]=$2; }

# run_one NAME: runs the script, with its output and status in the logs, and then shows its output.
run_one() {
  local log=$LOGS/fault-$1.log start=$SECONDS status=0
  rm -f "$LOGS/fault-$1.status"
  bash "$folder/$1.sh" "${quick[@]}" >"$log" 2>&1 </dev/null || status=$?
  echo "$status" >"$LOGS/fault-$1.status"
  say "== $1 ($(duration $((SECONDS - start))))
$(grep -vE '^[^ ]*\.sh: line [0-9]+: +[0-9]+ (Killed|Terminated) ' "$log" | sed 's/^/   /')"
}

if [ "$one" = yes ]; then
  run_one "${names[0]}"
  exit
fi
at_once=1 together=() alone=()
if [ "${#quick[@]}" -gt 0 ]; then at_once=2; fi
for name in "${names[@]}"; do
  if grep -q '^# alone: ' "$folder/$name.sh"; then alone+=("$name"); else together+=("$name"); fi
done
# Uses xargs: Ctrl-C would not reach background jobs of the shell.
if [ "${#together[@]}" -gt 0 ]; then
  printf '%s\n' "${together[@]}" | xargs -P "$at_once" -I NAME scripts/faults.sh --one NAME "${quick[@]}"
fi
for name in "${alone[@]}"; do run_one "$name"; done

failed=()
for name in "${names[@]}"; do
  file=$folder/$name.sh log=$LOGS/fault-$name.log
  status=$(cat "$LOGS/fault-$name.status")
  # After a shell error the script has skipped some of its checks.
  if grep -E '^[^ ]*\.sh: line [0-9]+: ' "$log" | grep -qvE 'line [0-9]+: +[0-9]+ (Killed|Terminated) '; then
    say "   $name: the script itself is at fault: see the line above"
    status=70
  fi
  if [ "$status" -ne 0 ]; then failed+=("$name"); fi
  # A line "PASS 9 ..." is for row 9; if the script has one row, every line is for it. A row that a script does not
  # report has not passed.
  mapfile -t covered < <(sed -n 's/^# row: \([0-9]*\).*/\1/p' "$file" | sort -un)
  for row in "${covered[@]}"; do
    said="$row "
    [ "${#covered[@]}" -gt 1 ] || said=''
    if grep -qE "^PASS $said" "$log" && ! grep -qE "^FAIL $said" "$log"; then
      note_row "$row" PASS
    else
      note_row "$row" FAIL
      if [ "$status" -eq 0 ]; then failed+=("$name"); fi
      status=1
    fi
  done
done

say
without=0
for ((row = 1; row < ${#rows[@]}; ++row)); do
  scripts=$(grep -lE "^# row: $row( |$)" "$folder"/*.sh | sed 's|.*/||; s|\.sh$||' | tr '\n' ' ')
  result=${state[$row]:-}
  if [ -z "$scripts" ]; then
    result='----' scripts='no script'
    without=$((without + 1))
  elif [ -z "$result" ]; then
    [ "$all" = yes ] || continue
    result=FAIL
  fi
  printf 'row %2d  %-4s  %-38s %s\n' "$row" "$result" "${rows[row]}" "$scripts"
done
say
without="$without of $((${#rows[@]} - 1)) rows have no script"
say "${#names[@]} scripts, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}; $without; $(duration $((SECONDS - began)))"
[ "${#failed[@]}" -eq 0 ]

# shellcheck shell=bash
# The stages of .ci/run: their logs, their results, and the summary at the end. Sourced after common.sh.

minutes=85   # after them nothing begins, and what is under way is ended: .ci/run has 90 where it decides
could_not=75 # status of what could not be judged
failed_stages='' unjudged='' summary='' total_passed=0 total_failed=0

# The logs stay when the clone is removed: a folder a run, of which the newest ten are kept.
begin_gate() {
  local runs=${XDG_CACHE_HOME:-$HOME/.cache}/trireme/gate free
  mkdir -p "$runs" || die "$could_not" "cannot make $runs, the folder of the logs"
  find "$runs" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +10 | cut -d' ' -f2- |
    while IFS= read -r old; do rm -rf "$old"; done
  kept=$(mktemp -d "$runs/$(git rev-parse --short HEAD 2>/dev/null || echo none).XXXX") || exit "$could_not"
  free=$(df --output=avail -k . | tail -n 1)
  [ "$free" -gt 12000000 ] || die "$could_not" "$((free / 1000000)) GB are free on the disk of $PWD; expected at least 12"
}

# Runs a command in a process group of its own, and ends it when the time is over; its status is then `could_not`.
limited() {
  local left=$((minutes * 60 - SECONDS)) job watch status=0
  [ "$left" -gt 0 ] || return "$could_not"
  set -m
  "$@" &
  job=$!
  (sleep "$left" && kill -TERM -- "-$job" && sleep 10 && kill -KILL -- "-$job") >/dev/null 2>&1 &
  watch=$!
  set +m
  wait "$job" || status=$?
  kill -TERM -- "-$watch" 2>/dev/null
  kill -KILL -- "-$job" 2>/dev/null # what the stage left running
  if [ "$SECONDS" -ge $((minutes * 60)) ] && [ "$status" -ne 0 ]; then status=$could_not; fi
  return "$status"
}

# stage NAME COMMAND...: runs it, and adds its "N passed, N failed" (or one, when it does not count) to the total.
stage() {
  local name=$1 start=$SECONDS status=0 passed='' failed='' log=$kept/$1.log result
  shift
  say "=== $name"
  limited "$@" 2>&1 | tee "$log" || status=$?
  read -r passed failed < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1) || true
  [ -n "$passed" ] || passed=$((status == 0)) failed=0
  if [ "$status" -ne 0 ] && [ "$status" -ne "$could_not" ] && [ "$failed" -eq 0 ]; then failed=1; fi
  if [ "$failed" -gt 0 ]; then
    failed_stages+=" $name" result=FAILED
  elif [ "$status" -eq "$could_not" ]; then
    unjudged+="could not be judged: $name: $(grep -v '^$' "$log" | tail -n 1)"$'\n' result='not judged'
  else
    result=passed
  fi
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed))
  summary+=$(printf '%-10s %-10s %6d passed %4d failed   %s' "$name" "$result" "$passed" "$failed" \
    "$(duration $((SECONDS - start)))")$'\n'
}

# The last lines, and the status.
end_gate() {
  local name
  say
  say "$summary"
  if [ -e "$kept/tests.log" ] && [ -e build/Testing/junit.xml ]; then
    awk -f scripts/skipped_tests.awk build/Testing/junit.xml
  fi
  soak_state
  for name in $failed_stages; do
    awk -v stage="$name" -v root="$PWD/" -v numbered=1 -f scripts/failures.awk "$kept/$name.log"
  done | sort -s -n -k 1,1 | head -n 40 | cut -f 2-
  [ -z "$unjudged" ] || printf '%s' "$unjudged"
  say "logs: $kept"
  say "$total_passed passed, $total_failed failed"
  [ "$total_failed" -eq 0 ] || exit 1
  [ -z "$unjudged" ] || exit "$could_not"
}

# When the newest soak was, and what it found that is still open (scripts/soak.sh writes the file).
soak_state() {
  if [ -s tests/soak.txt ]; then
    say "last soak: $(tail -n 1 tests/soak.txt)"
  else
    say 'last soak: none is recorded in tests/soak.txt'
  fi
}

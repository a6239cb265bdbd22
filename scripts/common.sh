# shellcheck shell=bash
# Shared by ./trireme and .ci/run: progress lines, commands that are quiet unless they fail, how many jobs to run at
# once, the list of our files, and counted tests. Sourced from the repository's root.

LOGS=build/log

say() { printf '%s\n' "$*"; }
die() {
  printf 'trireme: %s\n' "$2" >&2
  exit "$1"
}

# "41 s" or "3 min 07 s"
duration() {
  if [ "$1" -lt 60 ]; then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}

# quietly LABEL NAME COMMAND...: runs COMMAND with its output in build/log/NAME.log. Prints how long it took, and every
# 20 seconds the progress of a build. If it fails, shows the end of its output and returns its status.
quietly() {
  local label=$1 log=$LOGS/$2.log start=$SECONDS status=0
  shift 2
  mkdir -p "$LOGS"
  say "$label ..."
  { watch_progress "$log" & } 2>/dev/null
  local watcher=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  if [ "$status" -eq 0 ]; then
    say "  done in $(duration $((SECONDS - start)))"
  else
    say "  FAILED after $(duration $((SECONDS - start))) (exit $status). The end of $log:"
    tail -n 60 "$log" | sed 's/^/  | /'
  fi
  return "$status"
}

# Prints ninja's last "[12/345]" every 20 seconds, for as long as this script lives.
watch_progress() {
  local at last=''
  while sleep 20 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    at=$(grep -o '^\[[0-9]*/[0-9]*\]' "$1" 2>/dev/null | tail -n 1)
    if [ -n "$at" ] && [ "$at" != "$last" ]; then say "  $at"; fi
    last=$at
  done
}

# How many compilers to run: one per core, as far as memory allows at 1.5 GB each.
parallel_jobs() {
  local cores available limit jobs
  cores=$(nproc)
  available=$(awk '/^MemAvailable:/ {print $2; exit}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [ "$limit" != max ] && [ $((limit / 1024)) -lt "$available" ]; then available=$((limit / 1024)); fi
  jobs=$((available / 1536000))
  if [ "$jobs" -gt "$cores" ]; then jobs=$cores; fi
  if [ "$jobs" -lt 1 ]; then jobs=1; fi
  echo "$jobs"
}

tests_at_once() { if [ "$(nproc)" -gt 1 ]; then echo 2; else echo 1; fi; }

# our_files PATTERN...: tracked and new files, one per line; without git (or permission to use it), from a walk.
our_files() {
  { git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null || walk_files "$@"; } |
    while IFS= read -r file; do if [ -f "$file" ]; then printf '%s\n' "$file"; fi; done | LC_ALL=C sort
}

walk_files() {
  local tests=() pattern
  for pattern in "$@"; do tests+=(-o -name "$pattern"); done
  find . -type d \( -path ./.git -o -path './build*' -o -path './run*' \) -prune -o -type f \( "${tests[@]:1}" \) \
    -print | sed 's|^\./||'
}

# ctest_counted FOLDER [CTEST ARGUMENTS...]: runs the tests of a build folder, at most three at a time, because each may
# start its own ranks and threads, and the longest one mostly waits for programs; the last line is "N passed, N failed".
# An hour ends a test that hangs. A busy machine needs many times as long as a quiet one, so it decides nothing else.
ctest_counted() {
  local folder=$1 status=0 passed failed at_once=1
  shift
  if [ "$(nproc)" -gt 1 ]; then at_once=3; fi
  rm -rf "$folder/Testing"
  ctest --test-dir "$folder" --parallel "$at_once" --timeout 3600 --output-on-failure --no-tests=error \
    --output-junit Testing/junit.xml "$@" </dev/null ||
    status=$?
  read -r passed failed < <(awk -f scripts/count_tests.awk "$folder/Testing/junit.xml" \
    "$folder/Testing/Temporary/LastTest.log")
  say "$passed passed, $failed failed"
  return "$status"
}

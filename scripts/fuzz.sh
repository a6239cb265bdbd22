# shellcheck shell=bash
# Runs one fuzz target and reports the result. Sourced by ./trireme after common.sh.

# The targets that were built, one per line.
fuzz_targets() {
  local program
  for program in build-fuzz/bin/fuzz_*; do
    program=${program##*/fuzz_}
    [ "$program" = seeds ] || printf '%s\n' "$program"
  done
}

# fuzz_one TARGET SECONDS: prints one line with executions, coverage and findings, and the details of a finding.
fuzz_one() {
  local target=$1 log=$LOGS/fuzz-$1.log status=0 known=tests/fuzz/corpus/$1
  local folders=("build-fuzz/corpus/$target")
  if [ -d "$known" ]; then folders+=("$known"); fi
  mkdir -p "$LOGS"
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 "build-fuzz/bin/fuzz_$target" \
    -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/findings/$target-" "${folders[@]}" >"$log" 2>&1 </dev/null || status=$?
  say "$(printf '%-14s %10s executions, %6s edges covered, %5s inputs kept: %s' "$target" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)" \
    "$(find "build-fuzz/corpus/$target" -type f | wc -l)" \
    "$([ "$status" -eq 0 ] && echo 'nothing found' || echo 'A FINDING')")"
  [ "$status" -eq 0 ] && return 0
  grep -E -A 25 'ERROR: |runtime error|terminate called|what\(\)|Test unit written' "$log" |
    head -n 60 | sed 's/^/  | /'
  say "  The whole log is $log; the input is in build-fuzz/findings. Fix the parser, and commit the input to $known."
  return 1
}

#!/usr/bin/env bash
# Runs the scripts of the three-host test, tests/hosts/*.sh:
#   scripts/hosts.sh [NAME...]     NAME: a script without its .sh; none: all
# Needs the programs in build/bin; `./trireme hosts` builds them first. The status is 0 when nothing failed, and 77 when
# this machine cannot have hosts; a line then says why.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 70
. scripts/common.sh

names=()
for argument in "$@"; do
  if [ ! -e "tests/hosts/$argument.sh" ] || [ "$argument" = common ]; then
    die 64 "hosts: no script tests/hosts/$argument.sh; expected one of those in tests/hosts"
  fi
  names+=("$argument")
done
if [ "${#names[@]}" -eq 0 ]; then
  for file in tests/hosts/*.sh; do
    name=$(basename "$file" .sh)
    [ "$name" = common ] || names+=("$name")
  done
fi

passed=0 failed=() skipped=()
began=$SECONDS
for name in "${names[@]}"; do
  start=$SECONDS status=0
  bash "tests/hosts/$name.sh" </dev/null || status=$?
  case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped+=("$name") ;;
    *) failed+=("$name") ;;
  esac
  say "== $name ($(duration $((SECONDS - start))))"
done
say "${#names[@]} scripts, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}, ${#skipped[@]} skipped${skipped[*]:+: \
${skipped[*]}}; $(duration $((SECONDS - began)))"
[ "${#failed[@]}" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 77

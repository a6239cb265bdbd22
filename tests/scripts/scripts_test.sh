#!/usr/bin/env bash
# The parts of ./trireme that could be wrong without anyone noticing: the number of tests it reports, the packages it
# asks for, the files it looks at, and that a failing command stays a failure. Runs in the repository's root.
set -euo pipefail
. scripts/common.sh
. scripts/packages.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LOGS=$folder/log
failures=0

# expect WHAT WANTED GOT
expect() {
  if [ "$2" != "$3" ]; then
    printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}

count() { awk -f scripts/count_tests.awk "$folder/junit.xml" "$folder/log.txt"; }

# Counting: a doctest binary, the same one in two processes, a plain test, one that crashed after its cases passed, one
# that never started (ctest writes "Test Passed." for it all the same), and one with a failing case.
cat >"$folder/junit.xml" <<'TXT'
<testsuite name="(empty)" tests="6">
	<testcase name="unit_test" classname="unit_test" time="0.1" status="run">
	<testcase name="mpi_test" classname="mpi_test" time="0.1" status="run">
	<testcase name="plain" classname="plain" time="0.1" status="run">
	<testcase name="crashed_test" classname="crashed_test" time="0.1" status="fail">
	<testcase name="absent_test" classname="absent_test" time="0" status="notrun">
	<testcase name="failing_test" classname="failing_test" time="0.1" status="fail">
TXT
cat >"$folder/log.txt" <<'TXT'
1/6 Testing: unit_test
[doctest] test cases: 11 | 11 passed | 0 failed | 2 skipped
Test Passed.
2/6 Testing: mpi_test
[doctest] test cases:  5 |  5 passed | 0 failed | 0 skipped
[doctest] test cases:  5 |  5 passed | 0 failed | 0 skipped
Test Passed.
3/6 Testing: plain
Test Passed.
4/6 Testing: crashed_test
[doctest] test cases:  4 |  4 passed | 0 failed | 0 skipped
Test Failed.
5/6 Testing: absent_test
Test Passed.
6/6 Testing: failing_test
[doctest] test cases:  7 |  5 passed | 2 failed | 0 skipped
Test Failed.
TXT
expect 'tests counted over all kinds' '26 4' "$(count)" # 11 + 5 + 1 + 4 + 0 + 5 passed; crashed 1, absent 1, failing 2

: >"$folder/junit.xml"
: >"$folder/log.txt"
expect 'no tests counted' '0 0' "$(count)"

# Packages: sections are read apart, comments left out.
expect 'packages for building' '1' "$(packages_of build | grep -cx 'g++')"
expect 'no formatter among them' '0' "$(packages_of build test | grep -c clang || true)"
expect 'sections add up' "$(packages_of build format)" "$(packages_of build && packages_of format)"
expect 'no comments among the names' '' "$(packages_of build test format tidy shell | grep '[# ]' || true)"

# Files: both ways of finding them agree that this file's neighbours are ours and that build output is not.
for find_with in our_files walk_files; do
  expect "$find_with: a header whose name begins with build" 'nn/build.h' "$($find_with '*.h' | grep -x 'nn/build.h')"
  expect "$find_with: nothing from build folders" '' "$($find_with '*.cpp' | grep '^build' || true)"
done

# A failing command keeps its status and shows what it said.
status=0
output=$(quietly 'Planted failure' planted bash -c 'echo the reason; exit 3') || status=$?
expect 'status of a failed command' 3 "$status"
expect 'its last words are shown' '  | the reason' "$(grep 'the reason' <<<"$output")"
expect 'a succeeding command is quiet' 0 "$(quietly 'Planted success' planted echo noise | grep -c noise || true)"

expect 'duration under a minute' '59 s' "$(duration 59)"
expect 'duration over a minute' '3 min 07 s' "$(duration 187)"
[ "$(parallel_jobs)" -ge 1 ] || expect 'at least one job' 'at least 1' "$(parallel_jobs)"

[ "$failures" -eq 0 ] || exit 1
echo 'all expectations met'

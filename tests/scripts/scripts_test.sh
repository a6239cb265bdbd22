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
# that never started (ctest writes "Test Passed." for it all the same), one with a failing case, and one that skipped
# itself, which counts as neither.
cat >"$folder/junit.xml" <<'TXT'
<testsuite name="(empty)" tests="7">
	<testcase name="unit_test" classname="unit_test" time="0.1" status="run">
	<testcase name="mpi_test" classname="mpi_test" time="0.1" status="run">
	<testcase name="plain" classname="plain" time="0.1" status="run">
	<testcase name="crashed_test" classname="crashed_test" time="0.1" status="fail">
	<testcase name="absent_test" classname="absent_test" time="0" status="notrun">
	<testcase name="failing_test" classname="failing_test" time="0.1" status="fail">
	<testcase name="skipped_test" classname="skipped_test" time="0.1" status="notrun">
		<skipped message="SKIP_RETURN_CODE=77"/>
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
7/7 Testing: skipped_test
Test Passed.
TXT
expect 'tests counted over all kinds' '26 4' "$(count)" # 11 + 5 + 1 + 4 + 0 + 5 passed; crashed 1, absent 1, failing 2

: >"$folder/junit.xml"
: >"$folder/log.txt"
expect 'no tests counted' '0 0' "$(count)"

# What the gate says last: of each failure the test, file and line, and assertion.
cat >"$folder/log.txt" <<'TXT'
      Start 1: unit_test
1/4 Test #1: unit_test ........................   Passed    0.14 sec
2/4 Test #2: cli_test .........................***Failed    2.10 sec
[doctest] doctest version is "2.4.9"
/clone/tests/cli/a_test.cpp:25:
TEST CASE:  a run stays

/clone/tests/cli/a_test.cpp:26: ERROR: CHECK( code == 0 ) is NOT correct!
  values: CHECK( 64 == 0 )
trireme: [mesh] part of what was logged
      Start 3: hung_test
3/4 Test #3: hung_test ........................***Timeout 99.00 sec
the last words
4/4 Test #4: skipped_test .....................***Skipped  0.10 sec
75% tests passed, 1 tests failed out of 4
TXT
expect 'failures of tests' 'tests: cli_test: tests/cli/a_test.cpp:26: ERROR: CHECK( code == 0 ) is NOT correct! [a run stays]
tests: hung_test: Timeout; it said last: the last words' \
  "$(awk -v stage=tests -v root=/clone/ -f scripts/failures.awk "$folder/log.txt")"
expect 'their numbers within each test' '1 1' \
  "$(awk -v stage=tests -v root=/clone/ -v numbered=1 -f scripts/failures.awk "$folder/log.txt" | cut -f 1 | xargs)"
printf '%s\n' 'checking' '/clone/core/a.cpp:3:1: error: code should be clang-formatted' >"$folder/log.txt"
expect 'failures of other stages' 'format: core/a.cpp:3:1: error: code should be clang-formatted' \
  "$(awk -v stage=format -v root=/clone/ -f scripts/failures.awk "$folder/log.txt")"
echo 'Segmentation fault' >"$folder/log.txt"
expect 'a failure without a message that is known' 'docs: Segmentation fault' \
  "$(awk -v stage=docs -v root=/clone/ -f scripts/failures.awk "$folder/log.txt")"

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

# The runner of fault scripts: a row has passed when a script says so of it and none says otherwise; what a script leaves
# out, an error of the shell or a status is a failure, whatever it printed.
mkdir "$folder/faults"
fault_script() { printf '%s\n' "${@:2}" >"$folder/faults/$1.sh"; }
fault_script common 'exit 9'
fault_script good '# row: 1 a' '# row: 2 b' 'echo "PASS 1 a x=1"; echo "PASS 2 b"'
fault_script bad '# row: 2 b' 'echo "FAIL 2 b"; exit 1'
fault_script silent '# row: 3 c' '# row: 7 g' 'echo "PASS 7 g"'
fault_script single '# row: 8 h' 'echo "PASS what row 8 is about"'
fault_script broken '# row: 5 e' 'echo "PASS 5 e"; no_such_command; exit 0'
fault_script late '# row: 6 f' '# clock: it waits' 'echo "PASS 6 f"; exit 3'
status=0
output=$(TRIREME_FAULT_SCRIPTS=$folder/faults scripts/faults.sh) || status=$?
expect 'faults: status' 1 "$status"
expect 'faults: a row that passed' 1 "$(grep -c '^row  1  PASS .* good' <<<"$output")"
expect 'faults: a row that one script fails' 1 "$(grep -c '^row  2  FAIL .* bad good' <<<"$output")"
expect 'faults: a row of which its script says nothing' 1 "$(grep -c '^row  3  FAIL' <<<"$output")"
expect 'faults: the row of a script that has one' 1 "$(grep -c '^row  8  PASS' <<<"$output")"
expect 'faults: a row without a script' 1 "$(grep -c '^row 19  ---- .*no script' <<<"$output")"
expect 'faults: which scripts failed' '6 scripts, 4 failed: bad broken late silent; 12 of 19 rows have no script' \
  "$(grep -o '^6 scripts.*no script' <<<"$output")"
status=0
TRIREME_FAULT_SCRIPTS=$folder/faults scripts/faults.sh --quick good >/dev/null || status=$?
expect 'faults: one script that passes' 0 "$status"
for clock in 'clock 1' 'no-clock 5'; do
  expect "faults: scripts with --${clock% *}" "${clock#* } scripts" \
    "$(TRIREME_FAULT_SCRIPTS=$folder/faults scripts/faults.sh "--${clock% *}" | grep -o '^[0-9]* scripts')"
done
status=0
TRIREME_FAULT_SCRIPTS=$folder/faults scripts/faults.sh absent >/dev/null 2>&1 || status=$?
expect 'faults: no such script' 64 "$status"

# Help of a command that has its own: printed, without building anything first.
expect 'bench --help' 1 "$(./trireme bench --help | grep -c '^usage: ./trireme bench ')"
if command -v python3 >/dev/null; then
  expect 'bench peers --help' 1 "$(./trireme bench peers --only char --help | grep -c '^usage: compare.py ')"
fi

expect 'duration under a minute' '59 s' "$(duration 59)"
expect 'duration over a minute' '3 min 07 s' "$(duration 187)"
[ "$(parallel_jobs)" -ge 1 ] || expect 'at least one job' 'at least 1' "$(parallel_jobs)"

[ "$failures" -eq 0 ] || exit 1
echo 'all expectations met'

# awk -f count_tests.awk junit.xml LastTest.log: prints "PASSED FAILED" for the last ctest run of a build folder.
# A doctest binary counts its test cases (the largest count where mpirun started several copies); any other test counts
# one. A test that ctest does not report as passed (failed, timed out, not run) counts as at least one failure, whatever
# the binary printed: it may have crashed. A test that skipped itself counts as neither. junit.xml has the result of
# each test, LastTest.log its output.
FNR == NR {
  if (match($0, /<testcase name="[^"]*"/)) {
    name = substr($0, RSTART + 16, RLENGTH - 17)
    order[++tests] = name
    ok[name] = ($0 ~ / status="run"/)
  }
  if (/<skipped message="SKIP_/) skipped[name] = 1
  next
}
/^[0-9]+\/[0-9]+ Testing: / { name = $0; sub(/^[0-9]+\/[0-9]+ Testing: /, "", name) }
/\[doctest\] test cases: / {
  counted[name] = 1
  n = split($0, part, "|")
  for (i = 2; i <= n; ++i) {
    split(part[i], word, " ")
    if (word[2] == "passed" && word[1] + 0 > passed[name]) passed[name] = word[1] + 0
    if (word[2] == "failed" && word[1] + 0 > failed[name]) failed[name] = word[1] + 0
  }
}
END {
  for (i = 1; i <= tests; ++i) {
    name = order[i]
    if (skipped[name]) continue
    if (!counted[name]) passed[name] = ok[name]
    if (!ok[name] && !failed[name]) failed[name] = 1
    all_passed += passed[name]
    all_failed += failed[name]
  }
  print all_passed + 0, all_failed + 0
}

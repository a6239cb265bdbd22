# awk -v stage=NAME -v root=FOLDER/ -f failures.awk LOG: one line for each failure in the log of a stage of the gate: the
# test, the file and line, and the assertion. Paths are shown relative to `root`. Reads what ctest, doctest, compilers,
# clang-tidy, shellcheck, the explorer and our own scripts print. A test or a stage that failed without such a line is
# shown with the last line that it printed. With -v numbered=1 each line begins with its number within its test, and a
# tab: sorted by it, every failed test is named before any is named twice.
function relative(text, at) {
  while (root != "" && (at = index(text, root)) > 0) text = substr(text, 1, at - 1) substr(text, at + length(root))
  return substr(text, 1, 300)
}
function show(text) {
  ++shown
  ++of_test
  print (numbered ? of_test "\t" : "") stage ": " (test == "" ? "" : test ": ") relative(text)
}
function end_of_test() {
  if (test != "" && of_test == 0) show(how "; it said last: " last)
  test = ""
}

/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / || /^ +Start +[0-9]+: / || /^[0-9]+% tests passed/ {
  end_of_test()
  if (match($0, /\*\*\*[A-Z][A-Za-z ]*[a-z]/) && !/\*\*\*Skipped/) {
    how = substr($0, RSTART + 3, RLENGTH - 3)
    name = $0
    sub(/^[^:]*: /, "", name)
    sub(/ .*/, "", name)
    test = name
    of_test = 0
    last = ""
    in_tests = 1
  }
  next
}
/^TEST CASE: / { name_of_case = substr($0, 13); next }
/: (FATAL )?ERROR: / { show($0 " [" name_of_case "]"); next }
test == "" && in_tests { next }
/(^|[^A-Za-z])error: / || /^ *FAIL(ED)?[: ]/ || /^WRONG / || /^In .* line [0-9]+:$/ || /^[A-Za-z]*Error: / { show($0); next }
/^trireme: / && !in_tests { show($0); next }
/[^ ]/ { last = $0 }
END {
  end_of_test()
  if (shown == 0) show(last)
}

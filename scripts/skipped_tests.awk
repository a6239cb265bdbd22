# awk -f skipped_tests.awk junit.xml: one line for each test that skipped itself in the last run of ctest: its name, and
# the reason, which is the last line that it printed.
/<testcase name="/ {
  name = $0
  sub(/.*<testcase name="/, "", name)
  sub(/".*/, "", name)
  skipped = 0
  reason = ""
}
/<skipped / { skipped = 1 }
skipped && /[^ \t]/ && !/<skipped |<\/?system-out>$|<\/testcase>/ { reason = $0 }
/<\/testcase>/ {
  gsub(/^[ \t]*(<system-out>)?|<\/system-out>/, "", reason)
  if (skipped) print "skipped: " name ": " reason
  skipped = 0
}

# shellcheck shell=bash
# Run-time options of the sanitizer builds; source this from the repository's root before running their binaries.
# Open MPI is not instrumented: leaks inside it are suppressed, and its synchronisation is ignored.
# Stacks of allocations come from frame pointers, which all our code has: unwinding tables take two to five times as
# long. Tests that start MPI, whose libraries have none, do not look for leaks (tests/comm/CMakeLists.txt).
# Detection of use after return is off: with it, code that g++ 12 compiles for AVX-512 reads locals at wrong addresses,
# and correct programs crash. The same sources run well without AVX-512, or without detection of use after scope.
suppressions=$PWD/scripts/sanitizers/lsan.supp
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=0"
export LSAN_OPTIONS="suppressions=$suppressions:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="ignore_noninstrumented_modules=1:detect_deadlocks=0:second_deadlock_stack=1"
export OMPI_MCA_btl="vader,self"
unset suppressions

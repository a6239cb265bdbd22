# shellcheck shell=bash
# `./trireme soak`: searches for unknown defects, and runs what needs real time. Sourced by ./trireme. A part is a
# function soak_NAME; each ends with status 0 if it found nothing.

soak_parts=(clocks hosts faults explorer fuzz asan tsan kernels portable cuda mutations museum)

# sanitized_tests PRESET [CTEST ARGUMENTS...]: the unit tests in a build with a sanitizer.
sanitized_tests() {
  local preset=$1 folder=build-$1
  shift
  quietly "Configuring $folder" "$preset-configure" cmake --preset "$preset" -DTRIREME_CUDA=OFF &&
    quietly "Building the unit tests in $folder" "$preset-build" \
      cmake --build "$folder" --parallel "$(parallel_jobs)" --target unit_tests || return 1
  (. scripts/sanitizers/options.sh && ctest_counted "$folder" -L unit -LE soak "$@")
}

soak_clocks() { build all thorough_tests && ctest_counted build -L soak -E '^(hosts|faults_clock)$'; }
soak_hosts() { hosts "$@"; }
soak_faults() { faults "$@"; }
soak_asan() { sanitized_tests asan; }
soak_tsan() { sanitized_tests tsan; }
soak_portable() { scripts/portable_check build; }
soak_mutations() { python3 scripts/mutation_check.py; }
soak_museum() { ./trireme museum --prove; }

# A find is kept as a case for tests/explore/finds.txt.
soak_explorer() {
  local status=0
  # A process of its own: within a condition, `set -e` would not end the function at a failing build.
  ./trireme explore $((60 * soak_minutes)) --seed "$soak_seed" | tee "$soak_folder/explorer.txt" || status=$?
  sed -n "s|^  ./trireme explore --replay '\(.*\)'$|\1|p" "$soak_folder/explorer.txt" >"$soak_folder/finds.txt"
  [ -s "$soak_folder/finds.txt" ] || rm "$soak_folder/finds.txt"
  return "$status"
}

# A find is kept as an input for tests/fuzz/corpus.
soak_fuzz() {
  local status=0
  rm -rf build-fuzz/findings
  ./trireme fuzz $((2 * soak_minutes)) || status=$?
  [ -z "$(ls build-fuzz/findings 2>/dev/null)" ] || cp -r build-fuzz/findings "$soak_folder/inputs"
  return "$status"
}

# The emulated kernels under both checkers, in a build that the usual tests do not need.
soak_kernels() {
  quietly 'Configuring build-kernels' kernels-configure cmake --preset release -B build-kernels -DTRIREME_CUDA=OFF \
    -DTRIREME_KERNEL_CHECKS=asan,race &&
    quietly 'Building the tests of kernels' kernels-build cmake --build build-kernels --parallel "$(parallel_jobs)" \
      --target cuda_asan_test cuda_race_test cuda_lab_asan_test cuda_lab_race_test &&
    ctest_counted build-kernels -R '^cuda_(lab_)?(asan|race)_test$'
}

# nvcc compiles the GPU code, and the report of its kernels must say the same.
soak_cuda() {
  if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    say 'skipped: there is no nvcc in PATH or /usr/local/cuda/bin'
    return 0
  fi
  scripts/cuda_static.py --check --jobs "$(parallel_jobs)" &&
    quietly 'Building the programs with Device::cuda' cuda-programs \
      cmake --build build-cuda --parallel "$(parallel_jobs)" --target cli_test &&
    build-cuda/bin/cli_test -tc='a GPU that cannot be used*'
}

soak_usage() {
  cat <<TXT
usage: ./trireme soak [--seed N] [--minutes M] [PART...]

Searches for unknown defects, and runs the tests that need real time. It never decides whether a change is accepted:
.ci/run does. Takes hours. PART: ${soak_parts[*]}; none: all.
  --seed N      of the explorer; default: the number of days since 1970
  --minutes M   of exploring; each parser is fuzzed for 2 M seconds; default 10
Finds are kept in build/soak. The result is added to tests/soak.txt, to be committed with what became of each find.
TXT
}

soak() {
  soak_seed=$(($(date +%s) / 86400)) soak_minutes=10 soak_folder=build/soak
  local parts=() part status result open=() results=()
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) soak_usage && return ;;
      --seed | --minutes)
        [ $# -gt 1 ] || die 64 "soak: $1 needs a number"
        if [ "$1" = --seed ]; then soak_seed=$2; else soak_minutes=$2; fi
        shift 2
        ;;
      *)
        case " ${soak_parts[*]} " in *" $1 "*) ;; *) die 64 "soak: unknown argument '$1'; see ./trireme soak --help" ;; esac
        parts+=("$1") && shift
        ;;
    esac
  done
  [[ $soak_seed =~ ^[0-9]+$ ]] || die 64 "soak: --seed '$soak_seed' is not a number"
  [[ $soak_minutes =~ ^[1-9][0-9]*$ ]] || die 64 "soak: --minutes '$soak_minutes' is not a number of minutes"
  [ ${#parts[@]} -gt 0 ] || parts=("${soak_parts[@]}")
  rm -rf "$soak_folder" && mkdir -p "$soak_folder" "$LOGS"
  for part in "${parts[@]}"; do
    say "=== $part"
    # A command that fails must end its part. `set -e` has no effect inside a condition, so the status is read afterwards.
    set +e
    (set -e && "soak_$part") 2>&1 | tee "$LOGS/soak-$part.log"
    status=${PIPESTATUS[0]}
    set -e
    result=passed
    if [ "$status" -ne 0 ]; then result=FAILED open+=("$part"); fi
    results+=("$(printf '%-10s %s' "$part" "$result")")
  done
  say
  printf '%s\n' "${results[@]}"
  printf '%s\n' "$(date -u +%F) commit $(git rev-parse --short HEAD 2>/dev/null || echo none), seed $soak_seed, $(sed -n \
    's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1): ${parts[*]}; open: ${open[*]:-none}" | tee -a tests/soak.txt
  say "logs: $LOGS/soak-*.log; finds: $soak_folder"
  [ ${#open[@]} -eq 0 ]
}

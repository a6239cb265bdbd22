# shellcheck shell=bash
# What the fault scripts share; they source it from the repository's root or anywhere else:
#
#   # row: 9 hung rank                     which rows of docs/faults.md the script covers, one line each
#   # needs: train_gpt checkpoint          programs of the build beyond those two and the fault_* ones
#   # shellcheck source=tests/faults/common.sh
#   . "$(dirname "${BASH_SOURCE[0]}")/common.sh"
#   run_threads job1 --mesh dp=2 --steps 20            # a training run; its output: $work/job1.log
#   expect_code 75 job1 && verdict PASS 'hung rank' seconds=3.1
#   finish
#
# Every script gets a folder of its own, $work, which is removed at the end with the processes it left. --quick asks
# for a shorter version: $quick is then yes. Needs nothing but bash, coreutils and what ./trireme installs.
set -uo pipefail
# What a shell without job control starts in the background ignores SIGINT, and so would every run that a script starts:
# a shell cannot undo that for itself.
case $(trap -p INT) in *"''"*) exec env --default-signal=INT bash "$0" "$@" ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 70
export LC_ALL=C NO_COLOR=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset TRIREME_FAULT TRIREME_IO_FAULT TRIREME_RESTARTS

script=$(basename "$0" .sh)
bin=$PWD/build/bin
quick=no
for argument in "$@"; do
  case $argument in
    --quick) quick=yes ;;
    *)
      printf 'trireme: unknown argument %s; expected --quick or nothing\n' "$argument" >&2
      exit 64
      ;;
  esac
done

# In memory where there is some to spare: the scripts sync thousands of times.
place=${TMPDIR:-/tmp}
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 1000000 ] 2>/dev/null; then place=/dev/shm; fi
work=$(mktemp -d "$place/trireme_faults.$script.XXXXXX") || exit 74
failures=0
code=0     # of the last job
pid=0      # of the last that was started
limit=1800 # seconds for one job: it ends a script that hangs, and decides nothing
export quick code pid

# left_overs finds the processes of a script by this variable, even after their parents have ended.
export TRIREME_FAULTS_RUN=$work

# Killed ranks leave their shared memory, and a killed mpirun its folder: where they go with the rest.
export OMPI_MCA_btl_vader_backing_directory=$work OMPI_MCA_orte_tmpdir_base=$work

# Processes of this script that are alive, itself and its shells left out. One grep looks at all of the machine's.
left_overs() {
  local id _
  grep -lzxF -- "TRIREME_FAULTS_RUN=$work" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ id _; do
    case $(readlink "/proc/$id/exe" 2>/dev/null) in "$bin"/* | */mpirun | */orterun | */orted | */prterun) echo "$id" ;; esac
  done
}

# Whether none of them is left. Ranks may outlive mpirun for a moment; whatever is there after $limit is left behind.
none_left() {
  local i
  for ((i = 0; i < limit * 20; ++i)); do
    [ -n "$(left_overs)" ] || return 0
    sleep 0.05
  done
  return 1
}

# Ends them, also those that are stopped, and waits until they are gone.
kill_left_overs() {
  local id
  for id in $(left_overs); do kill -KILL "$id" 2>/dev/null || true; done
  wait 2>/dev/null
}

clean_up() {
  kill_left_overs >/dev/null 2>&1
  if mountpoint -q "$work/disk" 2>/dev/null; then umount "$work/disk" || true; fi
  if [ "${TRIREME_KEEP:-}" = '' ]; then rm -rf "$work"; else printf 'kept: %s\n' "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# verdict PASS|FAIL ROW [metric=value ...]: the line of a matrix row. ROW is its number and what was done, as in
# '9 hung rank'; the runner tells by the number which rows have passed.
verdict() {
  printf '%s\n' "$*"
  [ "$1" = PASS ] || failures=$((failures + 1))
}

# check ROW CONDITION-STATUS [metric=value ...]: PASS when the status is 0.
check() {
  local row=$1 status=$2
  shift 2
  if [ "$status" -eq 0 ]; then verdict PASS "$row" "$@"; else verdict FAIL "$row" "$@"; fi
}

note() { printf '     %s\n' "$*"; }

# show NAME: the end of a job's output, for a failure.
show() { tail -n "${2:-15}" "$work/$1.log" | sed 's/^/     | /'; }

# finish: ends the script with its status.
finish() {
  if [ "$failures" -gt 0 ]; then exit 1; fi
  exit 0
}

# A text of 6000 characters, 40 of them distinct: the same every time.
make_text() {
  awk 'BEGIN { for (i = 0; i < 6000; ++i) printf "%c", 65 + (i * i + int(i / 7)) % 40 }' >"$1"
}
make_text "$work/text.txt"

# Flags of a run that any mesh of up to 8 ranks makes in moments.
tiny=(--data "$work/text.txt" --layers 2 --heads 2 --width 16 --context 16 --global-batch 8 --micro-batch 2
  --log-every 1 --eval-batches 2 --warmup-steps 2 --threads 1 --out none)

# run_threads NAME FLAGS...: train_gpt with ranks that are threads; sets $code, writes $work/NAME.log. At most
# $limit seconds, after which it is killed and $code is 137.
run_threads() {
  local name=$1
  shift
  { timeout -s KILL "$limit" "$bin/train_gpt" "${tiny[@]}" "$@" >"$work/$name.log" 2>&1 </dev/null; } 2>/dev/null
  code=$?
}

# run_mpi NAME RANKS FLAGS...: the same as processes under mpirun.
run_mpi() {
  local name=$1 ranks=$2
  shift 2
  {
    timeout -s KILL "$limit" mpirun --oversubscribe -n "$ranks" "$bin/train_gpt" "${tiny[@]}" "$@" \
      >"$work/$name.log" 2>&1 </dev/null
  } 2>/dev/null
  code=$?
}

# start_threads NAME FLAGS..., start_mpi NAME RANKS FLAGS...: in the background; $pid is the program's, or mpirun's.
start_threads() {
  local name=$1
  shift
  "$bin/train_gpt" "${tiny[@]}" "$@" >"$work/$name.log" 2>&1 </dev/null &
  pid=$!
}
start_mpi() {
  local name=$1 ranks=$2
  shift 2
  mpirun --oversubscribe -n "$ranks" "$bin/train_gpt" "${tiny[@]}" "$@" >"$work/$name.log" 2>&1 </dev/null &
  pid=$!
}

# await: until the job that was started last ends; sets $code. One that takes longer than $limit is killed: 137.
await() {
  local i
  for ((i = 0; i < limit * 20; ++i)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.05
  done
  kill -KILL "$pid" 2>/dev/null
  wait "$pid"
  code=$?
}

# rank_pids MPIRUN: the processes of its ranks, in order of rank.
rank_pids() {
  local id
  tr ' ' '\n' < <(cat /proc/"$1"/task/*/children 2>/dev/null) | while read -r id; do
    printf '%s %s\n' "$(tr '\0' '\n' 2>/dev/null <"/proc/$id/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')" "$id"
  done | sort -n | awk '{ print $2 }'
}

# wait_for PATTERN NAME: until the output of a job, the last that was started, has a line that matches; 1 when the job
# has ended without it.
wait_for() {
  local i alive=yes
  for ((i = 0; i < limit * 20; ++i)); do
    grep -qE -- "$1" "$work/$2.log" 2>/dev/null && return 0
    [ "$alive" = yes ] || return 1
    kill -0 "$pid" 2>/dev/null || alive=no # what it said last is read once more
    sleep 0.05
  done
  return 1
}

# expect_code WANTED NAME: whether the last job ended so; if not, shows what it said.
expect_code() {
  [ "$code" -eq "$1" ] && return 0
  note "$2 ended with $code, expected $1:"
  show "$2"
  return 1
}

# expect_text PATTERN NAME: whether the job said so.
expect_text() {
  grep -qE -- "$1" "$work/$2.log" && return 0
  note "$2 did not say '$1':"
  show "$2"
  return 1
}

# fatal_lines NAME: how many FATAL messages the job printed; an incident has one.
fatal_lines() { grep -c 'trireme: FATAL\[' "$work/$1.log"; }

# each_of "FUNCTION ARGUMENTS..." N...: calls the function for each N, two at a time, in processes of their own. What
# they print comes in the order in which they end.
each_of() {
  local call=$1 n running=0
  shift
  for n in "$@"; do
    # shellcheck disable=SC2086 # the words of the call
    (trap - EXIT INT TERM && $call "$n") &
    running=$((running + 1))
    if [ "$running" -ge 2 ]; then
      wait -n
      running=$((running - 1))
    fi
  done
  wait
}

# now: seconds, with three digits. elapsed SINCE: the seconds since then.
now() { date +%s.%3N; }
elapsed() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# newest FOLDER: the newest checkpoint of the run in it.
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step_????????' 2>/dev/null | sort | tail -n 1; }

# same_bits A B: whether two checkpoints hold the same tensors, bit for bit.
same_bits() { "$bin/checkpoint" diff "$1" "$2" >"$work/diff.log" 2>&1; }

# losses FOLDER: step and loss of every step logged, one a line.
losses() { sed -n 's/.*"loss":\([^,}]*\).*"step":\([0-9]*\).*/\2 \1/p; t; s/.*"step":\([0-9]*\).*"loss":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

#!/usr/bin/env bash
# Signals at moments nobody chose: a run that is told to leave has lost no step when it goes on, one that is told to
# save goes on as if nothing had been, and nothing of either is left running or in memory.
# --quick: one moment for each way to start a run, instead of five, and an early one: what was done by then is done again.
# row: 4 SIGTERM
# row: 5 SIGUSR1
# clock: the moments are random
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

moments=5 within=2 # seconds
if [ "$quick" = yes ]; then moments=1 within=0.5; fi
endless=(--mesh dp=2 --dropout 0.1 --decay-steps 100 --steps 1000000)

# Segments of Open MPI made since the script began which no process has any more; other jobs may run beside it.
left_in_memory() {
  local segment
  find /dev/shm -maxdepth 1 \( -name 'vader_segment.*' -o -name 'osc_sm.*' \) -newer "$work/text.txt" |
    while read -r segment; do grep -qF "$segment" /proc/[0-9]*/maps 2>/dev/null || echo "$segment"; done
}

# start WAY NAME FLAGS...: in the background, as threads, under mpirun or under the supervisor; sets $pid.
start() {
  local way=$1 name=$2
  shift 2
  case $way in
    threads) start_threads "$name" "$@" ;;
    mpirun | ranks) start_mpi "$name" 2 "$@" ;;
    run)
      "$bin/run" -- mpirun --oversubscribe -n 2 "$bin/train_gpt" "${tiny[@]}" "$@" >"$work/$name.log" 2>&1 </dev/null &
      pid=$!
      ;;
  esac
}

# tell WAY SIGNAL: as docs/operations.md says: the program, mpirun, every rank, or the supervisor.
tell() {
  local id
  if [ "$1" = ranks ]; then
    for id in $(rank_pids "$pid"); do kill "-$2" "$id"; done
  else
    kill "-$2" "$pid"
  fi
}

# Between step 2 and $within seconds later.
some_moment() {
  wait_for '^step 2/' "$1" || return 1
  sleep "$(awk -v r=$RANDOM -v s="$within" 'BEGIN { printf "%.2f", s * r / 32768 }')"
}

# leave WAY SIGNAL NUMBER: 0 when the run saved its last step, left with 75, and went on bit for bit.
leave() {
  local name=$1.$2.$3 saved logged from
  start "$1" "$name" "${endless[@]}" --out "$work/$name"
  some_moment "$name" || return 1
  from=$(now)
  tell "$1" "$2"
  await
  seconds=$(elapsed "$from")
  expect_code 75 "$name" && expect_text '^(preempted|interrupted); saved step [0-9]+ in [0-9.]+ s$' "$name" || return 1
  saved=$(sed -n 's/^\(preempted\|interrupted\); saved step \([0-9]*\) .*/\2/p' "$work/$name.log")
  logged=$(losses "$work/$name" | tail -n 1 | cut -d' ' -f1)
  lost=$((logged - saved))
  none_left || { note "$name left processes" && return 1; }
  run_threads "$name.on" "${endless[@]}" --steps $((saved + 3)) --resume auto --out "$work/$name"
  run_threads "$name.whole" "${endless[@]}" --steps $((saved + 3)) --out "$work/$name.whole"
  same_bits "$(newest "$work/$name")" "$(newest "$work/$name.whole")" || { note "$name: other weights" && return 1; }
  [ "$lost" -eq 0 ]
}

# go_on WAY NUMBER: 0 when a run that saved on SIGUSR1 has the losses of one that was left alone.
go_on() {
  local name=$1.usr1.$2 last
  start "$1" "$name" "${endless[@]}" --out "$work/$name"
  some_moment "$name" || return 1
  tell "$1" USR1
  wait_for '^saved step [0-9]+; continuing$' "$name" || { show "$name" && return 1; }
  tell "$1" USR2
  await
  expect_code 75 "$name" || return 1
  last=$(sed -n 's/^preempted; saved step \([0-9]*\) .*/\1/p' "$work/$name.log")
  run_threads "$name.whole" "${endless[@]}" --steps "$last" --out "$work/$name.whole"
  cmp -s <(losses "$work/$name") <(losses "$work/$name.whole") || { note "$name: other losses" && return 1; }
  [ "$(grep -c '; continuing$' "$work/$name.log")" -eq 1 ]
}

most=0 status=0 lost=0 most_lost=0 seconds=0
for way in 'threads TERM' 'threads INT' 'mpirun USR2' 'ranks TERM' 'run TERM'; do
  # A shell's background jobs ignore SIGINT unless job control is on.
  if [ "$way" = 'threads INT' ]; then set -m; fi
  for ((i = 0; i < moments; ++i)); do
    # shellcheck disable=SC2086
    leave $way "$i" || status=1
    most=$(awk -v a="$most" -v b="$seconds" 'BEGIN { print (a > b ? a : b) }')
    if [ "$lost" -gt "$most_lost" ]; then most_lost=$lost; fi
  done
  set +m
done
[ -z "$(left_in_memory)" ] || { note "left in shared memory: $(left_in_memory)" && status=1; }
check '4 SIGTERM' "$status" "moments=$((5 * moments))" "steps_lost=$most_lost" "slowest_s=$most"

status=0
for way in threads mpirun run; do
  for ((i = 0; i < moments; ++i)); do go_on "$way" "$i" || status=1; done
done
check '5 SIGUSR1' "$status" "moments=$((3 * moments))"
finish

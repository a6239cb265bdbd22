#!/usr/bin/env bash
# A rank that stops, at random, somewhere in a step: is it named, and does the job end with 75 in time? And does a job
# whose ranks are only slow, on a machine with more to do than cores, run through?
# row: 9 hung rank
# clock: a rank counts as lost after two seconds, and the end must come 1.5 seconds later
# alone: what it checks is whether the end comes in time, and it keeps the cores busy itself
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

runs=50 clean_steps=1000 every=100 sample=200
[ "$quick" = no ] || { runs=3 clean_steps=40 every=20 sample=10; }
timeout_s=2
limit=120 # seconds for one job: a job that outlives its own timeout fails the row instead of stopping this script
points=(step data forward backward optimizer)
meshes=(dp=4 'dp=2,tp=2' 'tp=2,pp=2' 'dp=2,pp=2')

# stamped NAME: each line of its input with the time it came, into NAME.log. Ranks that outlive mpirun keep its output
# open, so a line that does not come within the limit ends it too.
stamped() {
  local line
  while IFS= read -r -t "$limit" line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done >"$work/$1.log"
}

# seconds_over NAME: from the moment of the fault to the end of the job, without the timeout.
seconds_over() {
  awk -v end="$ended" -v timeout="$timeout_s" '/injected fault: stop|stopped from outside/ { print end - $1 - timeout; exit }' "$work/$1.log"
}

# hang RUN: one job whose rank $rank stops. Ranks are processes, stopped by themselves (a fault) or from outside, or
# threads, of which one blocks for good.
hang() {
  local name=hang$1 mesh=${meshes[RANDOM % ${#meshes[@]}]} pid
  rank=$((RANDOM % 4))
  local fault="stop@rank=$rank,step=$((2 + RANDOM % 30)),point=${points[RANDOM % ${#points[@]}]}"
  local flags=("${tiny[@]}" --mesh "$mesh" --steps 100000 --log-every 1000 --timeout "$timeout_s" --out "$work/$name")
  how="$mesh"
  case $(($1 % 3)) in
    0)
      how+=" threads $fault"
      TRIREME_FAULT=$fault timeout -s KILL "$limit" "$bin/train_gpt" "${flags[@]}" --allow-fault-injection 2>&1 \
        </dev/null | stamped "$name"
      code=${PIPESTATUS[0]}
      ;;
    1)
      how+=" processes $fault"
      TRIREME_FAULT=$fault timeout -s KILL "$limit" mpirun --oversubscribe -n 4 "$bin/train_gpt" "${flags[@]}" \
        --allow-fault-injection 2>&1 </dev/null | stamped "$name"
      code=${PIPESTATUS[0]}
      ;;
    2)
      how+=' processes, SIGSTOP'
      mpirun --oversubscribe -n 4 "$bin/train_gpt" "${flags[@]}" >"$work/$name.log" 2>&1 </dev/null &
      pid=$!
      wait_for '^step 0/' "$name"
      sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
      kill -STOP "$(rank_pids "$pid" | sed -n "$((rank + 1))p")"
      local stopped=$EPOCHREALTIME
      await
      printf '%s stopped from outside\n' "$stopped" >>"$work/$name.log"
      ;;
  esac
  ended=$EPOCHREALTIME
  over=$(seconds_over "$name")
  [ "$code" -ne 137 ] || kill_left_overs # what a killed mpirun left
}

named=0 one_message=0 right_code=0 recorded=0 worst=0
for ((run = 1; run <= runs; ++run)); do
  hang "$run"
  good=yes
  if grep -qE "FATAL\[75\] rank $rank \(" "$work/hang$run.log"; then named=$((named + 1)); else good=no; fi
  if [ "$(fatal_lines "hang$run")" -eq 1 ]; then one_message=$((one_message + 1)); else good=no; fi
  if [ "$code" -eq 75 ]; then right_code=$((right_code + 1)); else good=no; fi
  if grep -q "LOST rank $rank " "$work/hang$run/flight_recorder.txt"; then recorded=$((recorded + 1)); else good=no; fi
  worst=$(awk -v a="$worst" -v b="${over:-99}" 'BEGIN { printf "%.2f", (a > b) ? a : b }')
  if awk -v o="${over:-99}" 'BEGIN { exit !(o > 1.5) }'; then good=no; fi
  if [ "$good" = no ]; then
    note "run $run: $how; exit code $code, $over s after the timeout:"
    show "hang$run"
  fi
  rm -rf "$work/hang$run"
done
[ "$named" -eq "$runs" ] && [ "$one_message" -eq "$runs" ] && [ "$right_code" -eq "$runs" ] && [ "$recorded" -eq "$runs" ]
check '9 hung rank named' $? "named=$named/$runs one_message=$one_message/$runs exit_75=$right_code/$runs flight_record=$recorded/$runs"
awk -v w="$worst" 'BEGIN { exit !(w <= 1.5) }'
check '9 hung rank in time' $? "worst_seconds_over_timeout=$worst target=1.5"

# Clean runs beside two busy programs for each core, with a timeout of one second.
hogs=()
for ((i = 0; i < 2 * $(nproc); ++i)); do
  (while :; do :; done) &
  hogs+=($!)
done
clean=(--mesh 'dp=2,tp=2' --steps "$clean_steps" --log-every "$every" --eval-every "$every" --sample-every "$every"
  --sample-length "$sample" --timeout 1)
limit=900
run_threads clean_threads "${clean[@]}"
threads_code=$code
run_mpi clean_mpi 4 "${clean[@]}"
kill "${hogs[@]}"
wait "${hogs[@]}" 2>/dev/null
[ "$threads_code" -eq 0 ] && [ "$code" -eq 0 ]
check '9 no false alarm' $? "clean_steps=$((2 * clean_steps)) exit_threads=$threads_code exit_processes=$code"
[ "$threads_code" -eq 0 ] || show clean_threads
[ "$code" -eq 0 ] || show clean_mpi
finish

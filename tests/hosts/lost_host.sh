#!/usr/bin/env bash
# A host that vanishes, as with its power or its cable: is it named within --timeout, with its ranks, in one message?
# Does `run` go on with the hosts that are left, and do the ranks of a host that was cut off end by themselves? And the
# other ways to be lost: a process there that is stopped, a rank there that hangs.
# shellcheck source=tests/hosts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

timeout_s=3

fatal_lines() { grep -c 'trireme: FATAL\[' "$work/$1.log"; }
# seconds_to_name NAME SINCE: from SINCE to the job's FATAL message.
seconds_to_name() {
  awk -v since="$2" '/trireme: FATAL\[/ { printf "%.1f", $1 - since; exit }' "$work/$1.log"
}
at_most() { awk -v a="${1:-99}" -v b="$2" 'BEGIN { exit !(a + 0 <= b) }'; }
ranks_on() { on "$1" pgrep -c -x train_gpt; }
no_ranks_on() { [ "$(ranks_on "$1")" -eq 0 ]; }

round_trip 1

# vanish HOST RANK RANK: under `run`, with a host that vanishes while the job trains; its ranks.
vanish() {
  local name=vanish_$1 hostfile=$work/hosts.txt alive=$work/alive.txt since
  printf 'h1 slots=2\nh2 slots=2\nh3 slots=2\n' >"$hostfile"
  start "$name" env TRIREME_SSH="ssh -F $work/ssh_config -o ConnectTimeout=1" "$bin/run" --min-ranks 2 --pause 0.2 \
    --world-command "scripts/alive_hosts $hostfile $alive" -- \
    mpirun --hostfile "$alive" --map-by node --bind-to none -n 6 "$bin/train_gpt" "${tiny[@]}" --steps 100000 \
    --log-every 5 --timeout "$timeout_s" --mesh dp=auto --checkpoint-every 5 --keep 2 --out "$work/$name"
  says 'saved step 10 ' "$name" || { show "$name" && return 1; }
  cut_off "$1"
  since=$EPOCHREALTIME
  says 'FATAL\[75\]' "$name"
  seconds=$(seconds_to_name "$name" "$since")
  local place="rank $2 \(dp=$2,tp=0,pp=0\) step [0-9]+" other="rank $3 \(dp=$3,tp=0,pp=0\) step [0-9]+"
  grep -qE "FATAL\[75\] $place: \[watch\] host $1 is gone: .* its ranks: $place, $other; look at" "$work/$name.log"
  check "$1 vanishes: it is named with its ranks" $?
  at_most "$seconds" "$timeout_s"
  check "$1 vanishes: named within --timeout" $? "seconds=$seconds" "timeout=$timeout_s"
  says 'run: training again' "$name" 40
  check "$1 vanishes: run goes on with fewer hosts" $? \
    "$(sed -n 's/.*run: starting \(.\) of 6 ranks: \(dp=.\).*/ranks=\1 \2/p' "$work/$name.log")" \
    "seconds=$(awk -v since="$since" '/run: training again/ { printf "%.1f", $1 - since; exit }' "$work/$name.log")"
  [ "$(fatal_lines "$name")" -eq 1 ]
  check "$1 vanishes: one FATAL message" $? "messages=$(fatal_lines "$name")"
  until_true 10 no_ranks_on "$1"
  check "$1 vanishes: its ranks end by themselves" $?
  on h1 pkill -USR2 -x run
  wait "$job"
  code=$?
  [ "$code" -eq 75 ]
  check "$1 vanishes: the job with fewer hosts saves and stops when told" $? "code=$code"
  [ "$failures" -eq 0 ] || show "$name" 60
  mend "$1"
}
vanish h2 1 4
timeout_s=2

# The host of rank 0, and of mpirun: nobody is left to end the others.
start_one_each first
cut_off h1
until_true 20 no_ranks_on h2 && until_true 20 no_ranks_on h3
check 'h1 vanishes, with rank 0 and mpirun: the ranks of other hosts end by themselves' $?
on h1 pkill -KILL -x 'mpirun|train_gpt'
wait "$job" 2>/dev/null
mend h1

start_one_each stopped
since=$EPOCHREALTIME
on h3 pkill -STOP -x train_gpt
says 'FATAL\[75\]' stopped
grep -qE 'FATAL\[75\] rank 2 \(dp=2,.*host h3 is there, but its process of rank 2 has not answered' "$work/stopped.log"
check 'the only process of a host is stopped: it is named, and not its host' $? \
  "seconds=$(seconds_to_name stopped "$since")" "timeout=$timeout_s"
wait "$job"
code=$?
[ "$code" -eq 75 ] && [ "$(fatal_lines stopped)" -eq 1 ]
check 'a stopped process: the job ends with 75, after one message' $? "code=$code" "messages=$(fatal_lines stopped)"

start_one_each hung -x TRIREME_FAULT='slow@rank=2,step=60,ms=60000'
says 'FATAL\[75\]' hung
grep -qE 'FATAL\[75\] rank 2 \(dp=2,.*no sign of life for .* says its host h3; it was in ' "$work/hung.log"
check 'the only rank of a host hangs: it is named, with what it was doing' $?
wait "$job"
code=$?
[ "$code" -eq 75 ] && [ "$(fatal_lines hung)" -eq 1 ]
check 'a rank that hangs: the job ends with 75, after one message' $? "code=$code" "messages=$(fatal_lines hung)"
[ "$failures" -eq 0 ] || show hung
finish

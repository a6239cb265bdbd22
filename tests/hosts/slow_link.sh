#!/usr/bin/env bash
# One host with a slow link: is it named, once, with the round trips, while training goes on? And are long links that
# are all alike not named?
# shellcheck source=tests/hosts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

timeout_s=2
round_trip 10
start_one_each job || die 'the job did not train'
sleep 4
! grep -q 'slow link' "$work/job.log"
check 'links with equal round trips of 10 ms are not called slow' $?

round_trip 1
delay h3 20
since=$EPOCHREALTIME
says 'slow link: a round trip from host h1 to host h3 takes 4[0-9]\.. ms, .* its ranks, .*: rank 2 \(dp=2' job 15
check 'a link that becomes slow is named, with its host and ranks' $? \
  "seconds=$(awk -v since="$since" '/slow link/ { printf "%.1f", $1 - since; exit }' "$work/job.log")" \
  "$(sed -n 's/.*h3 takes \([0-9.]*\) ms, to the other hosts \([0-9.]*\) .*/ms=\1 others_ms=\2/p' "$work/job.log")"
sleep 3
on h1 pkill -USR2 -x mpirun
wait "$job"
code=$?
messages=$(grep -c 'slow link' "$work/job.log")
[ "$code" -eq 75 ] && [ "$messages" -eq 1 ] && grep -q 'preempted; saved step' "$work/job.log"
check 'it is named once, and training goes on' $? "code=$code" "messages=$messages"
[ "$failures" -eq 0 ] || show job
finish

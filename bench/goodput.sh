#!/usr/bin/env bash
# Goodput: how much a run trains whose ranks are killed at intervals, compared with an undisturbed run.
#
#   bench/goodput.sh [SECONDS [INTERVAL [FLAGS...]]]     default: 600 seconds, a kill every 30
#
# Both train the same model, of 25M parameters, for the same time, under mpirun and the supervisor. In the second a
# random rank is killed (SIGKILL) at every interval. The result is the number of tokens at the last step in
# metrics.jsonl. FLAGS are added to those of train_gpt. A kill costs the work since the last checkpoint; one is begun
# every 3 seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-600} interval=${2:-30}
shift $(($# < 2 ? $# : 2))
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme_goodput.XXXXXX")
pid=
clean_up() {
  if [ -n "$pid" ]; then
    kill -TERM "$pid" 2>/dev/null && sleep 5
    kill -TERM "$pid" 2>/dev/null || true # a second time: at once
  fi
  rm -rf "$work"
}
trap clean_up EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cp README.md "$work/text.txt" # a copy: a run refuses to resume if its text was edited
flags=(--data "$work/text.txt" --layers 8 --heads 8 --width 512 --context 64 --micro-batch 2 --mesh dp=2 --threads 1
  --steps 10000000 --decay-steps 1000 --checkpoint-minutes 0.05 --keep 2 --log-every 1 --eval-batches 1)

children_of() { cat /proc/"$1"/task/*/children 2>/dev/null || true; }

# start FLAGS...: starts the run $name; sets $pid.
start() {
  build/bin/run --restarts 10 -- mpirun --oversubscribe -n 2 build/bin/train_gpt "${flags[@]}" "$@" \
    --out "$work/$name" >"$work/$name.log" 2>&1 </dev/null &
  pid=$!
}

# leave NAME: the run saves and ends; prints its tokens.
leave() {
  kill -TERM "$pid"
  wait "$pid" || true
  pid=
  tail -n 1 "$work/$1/metrics.jsonl" | sed 's/.*"tokens":\([0-9]*\).*/\1/'
}

printf 'training for %s s, left alone\n' "$seconds"
name=alone
start "$@"
sleep "$seconds"
leave alone >"$work/alone.tokens"

printf 'training for %s s, a rank killed every %s s\n' "$seconds" "$interval"
name=killed
start "$@"
kills=0
for ((at = interval; at < seconds; at += interval)); do
  sleep "$interval"
  read -r -a ranks <<<"$(children_of "$(children_of "$pid" | tr -d ' ')")"
  if [ "${#ranks[@]}" -gt 0 ]; then # else a restart is under way
    kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}"
    kills=$((kills + 1))
  fi
done
sleep $((seconds - at + interval))
leave killed >"$work/killed.tokens"

sed -n '/^when  /,$p' "$work/killed.log"
awk -v a="$(cat "$work/alone.tokens")" -v k="$(cat "$work/killed.tokens")" -v n="$kills" -v s="$seconds" 'BEGIN {
  printf "left alone: %d tokens in %d s; with %d kills: %d; goodput %.1f%%\n", a, s, n, k, 100 * k / a }'

#!/usr/bin/env bash
# Do ranks on three hosts compute what ranks on one host compute? A run across hosts has the same bits as the run with
# the same mesh as threads of one process, and the losses of one rank to rounding. Then each mesh is timed with round
# trips of 1 ms and 10 ms between hosts. Ranks are dealt out to the hosts in turns: neighbours are on different hosts.
# shellcheck source=tests/hosts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

steps=8
meshes=('dp=6' 'dp=3,tp=2' 'dp=2,pp=3')

# values NAME: loss and gradient norm of each step, one a line.
values() {
  sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$work/$1/metrics.jsonl"
}

# median_ms NAME: of its steps but the first two.
median_ms() {
  sed -n 's/.*"step_ms":\([^,]*\),.*/\1/p' "$work/$1/metrics.jsonl" | tail -n +3 | sort -g |
    awk '{ v[NR] = $1 } END { printf "%.1f", v[int((NR + 1) / 2)] }'
}

on_one_host() {
  local name=$1
  shift
  timeout -s KILL 60 "$bin/train_gpt" "${tiny[@]}" --steps "$steps" --out "$work/$name" "$@" \
    >"$work/$name.log" 2>&1 </dev/null
  code=$?
  expect_code 0 "$name"
}

# The largest relative difference of two runs' values.
difference() {
  paste -d ' ' <(values "$1") <(values "$2") | awk '
    NF != 6 || $1 != $4 { bad = 1; exit }
    { for (i = 2; i <= 3; ++i) { d = ($i - $(i + 3)) / $i; if (d < 0) d = -d; if (d > worst) worst = d } }
    END { printf "%.1e", bad || NR == 0 ? 1 : worst }'
}

on_one_host one_rank || die 'one rank does not train'
for mesh in "${meshes[@]}"; do
  name=${mesh//[,=]/_}
  round_trip 1
  on_one_host "threads_$name" --mesh "$mesh" || die "$mesh does not train as threads"
  train "hosts_$name" 6 --mesh "$mesh" --steps "$steps" --out "$work/hosts_$name"
  expect_code 0 "hosts_$name" && [ "$(values "hosts_$name" | wc -l)" -eq "$steps" ] &&
    [ "$(values "hosts_$name")" = "$(values "threads_$name")" ]
  check "$mesh has the bits of threads of one process" $? steps="$steps"
  far=$(difference one_rank "hosts_$name")
  # f32 rounds to 6e-8, in each of the sums whose order a mesh changes.
  awk -v d="$far" 'BEGIN { exit !(d <= 1e-6) }'
  check "$mesh equals one rank" $? "largest_relative_difference=$far" limit=1e-6
  round_trip 10
  train "far_$name" 6 --mesh "$mesh" --steps "$steps" --out "$work/far_$name"
  expect_code 0 "far_$name" && [ "$(values "far_$name")" = "$(values "threads_$name")" ]
  check "$mesh over longer links has the same bits" $? "step_ms_threads=$(median_ms "threads_$name")" \
    "step_ms_1ms=$(median_ms "hosts_$name")" "step_ms_10ms=$(median_ms "far_$name")"
done
finish

#!/usr/bin/env bash
# Processes of one job that were given different flags: refused before step 0 with the flag and its value on each rank.
# row: 15 configuration differs between ranks
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

common_flags=("${tiny[@]}" --mesh dp=2 --steps 6)

# differs NAME "FLAGS OF RANK 0" "FLAGS OF RANK 1" PATTERN
differs() {
  local name=$1 first second start status=0
  read -ra first <<<"$2"
  read -ra second <<<"$3"
  start=$(now)
  {
    timeout -s KILL "$limit" mpirun --oversubscribe -n 1 "$bin/train_gpt" "${common_flags[@]}" "${first[@]}" --out "$work/$name" \
      : -n 1 "$bin/train_gpt" "${common_flags[@]}" "${second[@]}" --out "$work/$name" >"$work/$name.log" 2>&1 </dev/null
  } 2>/dev/null
  code=$?
  expect_code 64 "$name" && expect_text "FATAL\[64\] \[configuration\] $4" "$name" || status=1
  [ "$(fatal_lines "$name")" -eq 1 ] || { note "$name: $(fatal_lines "$name") FATAL lines"; status=1; }
  if grep -q '^step ' "$work/$name.log" || [ -e "$work/$name" ]; then
    note "$name: the run had begun"
    status=1
  fi
  none_left || status=1
  check "15 $name" "$status" "exit=$code" "seconds=$(elapsed "$start")"
}

differs learning_rate '--lr 0.001' '--lr 0.002' '--lr differs between ranks: 0.001 on rank 0; 0.002 on rank 1; expected one configuration'
differs seed '--seed 1' '--seed 2' '--seed differs between ranks: 1 on rank 0; 2 on rank 1'
differs only_one '' '--verify' '--verify differs between ranks: false on rank 0; true on rank 1'
if [ "$quick" = no ]; then
  differs mesh '--mesh dp=2' '--mesh tp=2' '--mesh differs between ranks: "dp=2,tp=1,pp=1" on rank 0; "dp=1,tp=2,pp=1" on rank 1'
  differs steps '--steps 6' '--steps 7' '--steps differs between ranks: 6 on rank 0; 7 on rank 1'
  differs dtype '--dtype f32' '--dtype bf16' '--dtype differs between ranks: "f32" on rank 0; "bf16" on rank 1'
  differs checkpoints '--checkpoint-every 2' '--checkpoint-every 3' '--checkpoint-every differs between ranks'
fi

# The same flags in another order, or from a file on one rank, are the same configuration.
printf '{"lr": 0.002, "seed": 5}' >"$work/config.json"
timeout -s KILL "$limit" mpirun --oversubscribe -n 1 "$bin/train_gpt" "${common_flags[@]}" --config "$work/config.json" \
  : -n 1 "$bin/train_gpt" "${common_flags[@]}" --seed 5 --lr 2e-3 >"$work/same.log" 2>&1 </dev/null
code=$?
expect_code 0 same
check '15 the same in other words' $? "exit=$code"
finish

#!/usr/bin/env bash
# Memory that is not there, on one rank of several: all ranks end within moments, with one message that says what was
# asked for, what is in use by what, and what the estimate was; also under a real limit (ulimit -v).
# row: 19 out of memory
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

message='FATAL\[75\] rank [0-9]+ .*\[memory\] out of host memory: asked for [0-9]+ bytes for [a-z]+, [0-9]+ bytes in use: parameters [0-9]+.*; weights, gradients and optimizer state were estimated at [0-9.]+ [KMG]iB'

# ended NAME: the job did so.
ended() {
  expect_code 75 "$1" && expect_text "$message" "$1" && [ "$(fatal_lines "$1")" -eq 1 ] && none_left
}

export TRIREME_FAULT=oom@rank=1,step=3
start=$(now)
run_threads threads --mesh dp=2,tp=2 --steps 8 --allow-fault-injection
ended threads
check '19 one of four threads' $? "exit=$code" "seconds=$(elapsed "$start")"

start=$(now)
run_mpi processes 4 --mesh dp=2,pp=2 --steps 8 --allow-fault-injection
ended processes
check '19 one of four processes' $? "exit=$code" "seconds=$(elapsed "$start")"
unset TRIREME_FAULT

# The program itself takes address space, and more of it with CUDA's kernels: what a tiny model needs, to 20 MB.
own=100000
until [ "$own" -gt 4000000 ] || (ulimit -v "$own" && run_threads tiny --mesh dp=2 --steps 2 && [ "$code" -eq 0 ]); do
  own=$((own + 20000))
done

# 4 layers of width 512 need 193 MiB a rank for weights, gradients and moments; the two of them may have 250 MB.
big=(--mesh dp=2 --steps 2 --layers 4 --width 512 --heads 8 --eval-batches 1)
start=$(now)
(ulimit -v $((own + 250000)) && run_threads limit "${big[@]}"; exit "$code")
code=$?
ended limit
check '19 address space limited' $? "exit=$code" "seconds=$(elapsed "$start")"

# What cannot fit the machine is refused from arithmetic, before anything is allocated.
run_threads impossible --mesh dp=2 --layers 1000 --width 65536 --heads 64 --steps 8
expect_code 64 impossible && expect_text 'FATAL\[64\] \[memory\] weights, gradients and optimizer state .*need .*; this machine has' impossible
check '19 more than the machine has' $? "exit=$code"
finish

#!/usr/bin/env bash
# A checkpoint that any of 16 meshes of 1 to 8 ranks saved, with and without ZeRO and interleaving, is loaded and saved
# again by every other: all ordered pairs, compared as global tensors, bit for bit.
# row: 1 resumed on any other mesh
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

meshes=16
[ "$quick" = no ] || meshes=6
start=$(now)
"$bin/fault_resharding" "$work/run" $meshes >"$work/pairs.log" 2>&1
status=$?
[ "$status" -eq 0 ] || tail -n 15 "$work/pairs.log" | sed 's/^/     | /'
check '1 every mesh takes over from every other' "$status" "$(tail -n 1 "$work/pairs.log")" "seconds=$(elapsed "$start")"

# Through the programs: from processes to threads and back, and on to another mesh.
run=(--checkpoint-every 3)
run_threads first "${run[@]}" --mesh dp=2,tp=2 --zero 2 --steps 3 --out "$work/moved"
status=0
expect_code 0 first || status=1
cp -r "$work/moved" "$work/kept"
run_mpi second 2 "${run[@]}" --mesh pp=2 --steps 6 --out "$work/moved" --resume auto
expect_code 0 second && expect_text '^resuming after step 3 from' second || status=1
run_threads third "${run[@]}" --mesh dp=4 --zero 3 --steps 9 --out "$work/moved" --resume auto
expect_code 0 third && expect_text '^resuming after step 6 from' third || status=1
same_bits "$work/kept/checkpoints/step_00000003" "$work/moved/checkpoints/step_00000003" || status=1
check '1 threads, processes, threads' "$status" "exit=$code"
finish

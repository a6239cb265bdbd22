#!/usr/bin/env bash
# A disk that is full, a file size limit, a disk that fails: a save that misses says path, bytes needed and available,
# training goes on, the checkpoints there were stay whole, and the third miss in a row ends the run with 74.
# row: 6 disk full, file size limit, EIO
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run=(--mesh dp=2 --steps 12 --checkpoint-every 2)

# went NAME OUT STEP WHY: the run ended with 74 and one message, after three misses that say WHY; the newest checkpoint
# is that of STEP and is whole.
went() {
  local name=$1 out=$2 step=$3 why=$4
  expect_code 74 "$name" && expect_text "could not save step [0-9]*: .*$why.*1 of 3 failures" "$name" &&
    expect_text "2 of 3 failures" "$name" && expect_text "FATAL\[74\].*3 saves in a row have failed" "$name" || return 1
  [ "$(fatal_lines "$name")" -eq 1 ] || { note "$(fatal_lines "$name") FATAL lines"; return 1; }
  [ "$(newest "$out")" = "$out/checkpoints/step_$(printf '%08d' "$step")" ] || { note "newest: $(newest "$out")"; return 1; }
  "$bin/checkpoint" verify "$out" >/dev/null 2>&1 || { note 'the old checkpoint is damaged'; return 1; }
  local trained
  trained=$(losses "$out" | tail -n 1)
  [ "${trained%% *}" -ge $((step + 5)) ] || { note "trained until $trained only"; return 1; }
}

# faulty NAME FAULT WHY: the first save goes well, all later ones meet the fault.
faulty() {
  local status=0
  TRIREME_IO_FAULT=$2 run_threads "$1" "${run[@]}" --out "$work/$1" --allow-fault-injection
  went "$1" "$work/$1" 2 "$3" || status=1
  check "6 $1" "$status" "exit=$code" 'misses=3'
}
faulty no_space_for_tensors kind=enospc,call=write,path=rank_00000,op=2- \
  'rank_00000.safetensors: No space left on device; needed [0-9]+ more bytes, the file system has [0-9]+ available'
faulty no_space_for_manifest kind=enospc,call=write,path=manifest.json,op=2- 'manifest.json: No space left on device'
faulty eio_in_write kind=eio,call=write,path=rank_00001,op=2- 'rank_00001.safetensors: Input/output error'
if [ "$quick" = no ]; then
  faulty eio_in_fsync kind=eio,call=fsync,path=rank_00000,op=2- 'rank_00000.safetensors: Input/output error'
  faulty eio_in_close kind=eio,call=close,path=rank_00000.safetensors.tmp,op=2- 'rank_00000.safetensors: Input/output'
  faulty eio_in_rename kind=eio,call=rename,path=manifest.json,op=2- 'manifest.json: Input/output error'
  # A run makes such a folder at its start, too, to see whether it can.
  faulty eio_in_mkdir kind=eio,call=mkdir,path=step_,op=3- 'cannot create the folder .*step_.*: Input/output error'
  faulty eio_reading_back kind=eio,call=pread,path=rank_00000,op=2- 'rank_00000.safetensors: Input/output error'
fi

# One miss costs one checkpoint and nothing else.
TRIREME_IO_FAULT=kind=enospc,call=write,path=rank_00000,op=2 run_threads once "${run[@]}" --out "$work/once" \
  --allow-fault-injection
run_threads never "${run[@]}" --out "$work/never"
status=0
expect_code 0 once && expect_text 'could not save step 4: ' once && same_bits "$work/once" "$work/never" || status=1
[ "$(grep -c '^saved step' "$work/once.log")" -eq 5 ] || status=1
[ "$(losses "$work/once")" = "$(losses "$work/never")" ] || status=1
check '6 one miss' "$status" "exit=$code" "saved=$(grep -c '^saved step' "$work/once.log")" 'diff=0'

# Lines of metrics wait for room, and are all there in the end.
TRIREME_IO_FAULT=kind=enospc,call=write,path=metrics.jsonl,op=3-8 run_threads metrics "${run[@]}" --out "$work/metrics" \
  --allow-fault-injection
status=0
expect_code 0 metrics && expect_text 'cannot write .*metrics.jsonl: No space left.*training goes on' metrics || status=1
[ "$(losses "$work/metrics")" = "$(losses "$work/never")" ] || status=1
check '6 no room for metrics' "$status" "exit=$code" "lines=$(losses "$work/metrics" | wc -l)"

# Short writes are continued.
TRIREME_IO_FAULT=kind=short run_threads short "${run[@]}" --out "$work/short" --allow-fault-injection
status=0
expect_code 0 short && same_bits "$work/short" "$work/never" || status=1
check '6 short reads and writes' "$status" "exit=$code" 'diff=0'

# A limit on the size of files, in blocks of 1024 bytes: a shard has more, configuration and metrics less.
(ulimit -f 24 && run_threads limit "${run[@]}" --out "$work/limit" && exit "$code" || exit "$code")
code=$?
status=0
expect_code 74 limit && expect_text 'File too large; needed [0-9]+ more bytes' limit &&
  expect_text 'raise the file size limit' limit && [ "$(fatal_lines limit)" -eq 1 ] || status=1
check '6 file size limit' "$status" "exit=$code"

# A real full disk, where this user may make one.
mkdir "$work/disk"
if mount -t tmpfs -o size=320k tmpfs "$work/disk" 2>/dev/null; then
  status=0
  run_threads full "${run[@]}" --out "$work/disk/run"
  went full "$work/disk/run" 4 'needed [0-9]+ more bytes, the file system has [0-9]+ available' || status=1
  check '6 a disk of 320 KiB' "$status" "exit=$code" "saved=$(grep -c '^saved step' "$work/full.log")"
  umount "$work/disk"
else
  note 'no tmpfs could be mounted: a really full disk was not tried'
fi
finish

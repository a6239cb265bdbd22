#!/usr/bin/env bash
# Damaged checkpoints: every random bit flip is refused or proved harmless, `checkpoint verify` names file and chunk
# with both checksums, and a run resumes from the newest checkpoint that is whole, saying why it skipped the others.
# row: 7 truncated, flipped, missing shard
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

flips=2000
[ "$quick" = no ] || flips=500
run=(--mesh dp=2 --steps 4 --checkpoint-every 2)
run_threads first "${run[@]}" --out "$work/run"
expect_code 0 first || { verdict FAIL '7 damaged checkpoints' reference=none; finish; }
last=$(newest "$work/run")

start=$(now)
"$bin/fault_corruption" "$last" $flips >"$work/flips.log" 2>&1
status=$?
[ "$status" -eq 0 ] || tail -n 15 "$work/flips.log" | sed 's/^/     | /'
check '7 random bit flips' "$status" "$(tail -n 1 "$work/flips.log")" "seconds=$(elapsed "$start")"

# Damage done to a copy of the newest checkpoint, and what both programs must then say.
truncated() { truncate -s -100 "$1/rank_00001.safetensors"; }
emptied() { : >"$1/rank_00001.safetensors"; }
extended() { printf x >>"$1/rank_00000.safetensors"; }
missing() { rm "$1/rank_00001.safetensors"; }
flipped() { printf '\377' | dd of="$1/rank_00000.safetensors" bs=1 seek=20000 conv=notrunc status=none; }
manifest_missing() { rm "$1/manifest.json"; }
manifest_truncated() { truncate -s 500 "$1/manifest.json"; }
manifest_emptied() { : >"$1/manifest.json"; }
manifest_flipped() { sed -i '0,/"step":4/s//"step":5/' "$1/manifest.json"; }
shard_of_another() { cp "${1%_*}_00000002/rank_00000.safetensors" "$1/rank_00000.safetensors"; }
kinds=(truncated emptied extended missing flipped manifest_missing manifest_truncated manifest_emptied manifest_flipped
  shard_of_another)
says=('cut short at byte' 'cut short at byte' 'was extended at byte' 'rank_00001.safetensors is missing'
  'chunk 0, bytes 0 to [0-9]*, has the checksum [0-9a-f]{16}; expected [0-9a-f]{16}' 'no manifest' 'manifest.json'
  'manifest.json' 'manifest.json.*checksum' 'rank_00000.safetensors: chunk 0')

caught=0 unverified=0
for ((i = 0; i < ${#kinds[@]}; ++i)); do
  kind=${kinds[i]} copy=$work/${kinds[i]} status=0
  cp -r "$work/run" "$copy"
  "$kind" "$copy/checkpoints/step_00000004"
  "$bin/checkpoint" verify "$copy/checkpoints/step_00000004" >"$work/verify.$kind.log" 2>&1
  code=$?
  expect_code 65 "verify.$kind" || unverified=$((unverified + 1))
  run_threads "$kind" --mesh tp=2 --steps 4 --out "$copy" --resume auto
  expect_code 0 "$kind" && expect_text "^warning: skipped step_00000004: .*${says[i]}" "$kind" &&
    expect_text '^resuming after step 2 from' "$kind" && caught=$((caught + 1))
  rm -rf "$copy"
done
check '7 damage is named and the one before is used' $((${#kinds[@]} - caught + unverified)) "kinds=${#kinds[@]}" \
  "fallen_back=$caught" "not_seen_by_verify=$unverified"

cp -r "$work/run" "$work/none"
for step in 2 4; do flipped "$work/none/checkpoints/step_0000000$step"; done
run_threads none --mesh dp=2 --steps 4 --out "$work/none" --resume auto
status=0
expect_code 65 none && expect_text 'no checkpoint that is whole' none && [ "$(fatal_lines none)" -eq 1 ] || status=1
check '7 nothing whole is left' "$status" "exit=$code"
finish

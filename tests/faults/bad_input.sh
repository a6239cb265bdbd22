#!/usr/bin/env bash
# Input that is wrong: files that are malformed, flags that are unknown or impossible, tokens outside the vocabulary.
# Each ends with its exit code and one message that says where, what was expected, what was found and what to do; a file
# that claims to be larger than it is costs no memory.
# row: 16 malformed safetensors, tokens, tokenizer, JSON
# row: 17 unknown or bad flag; impossible mesh
# row: 18 token id outside the vocabulary; empty data
# shellcheck source=tests/faults/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

good=0 bad=0
# outcome STATUS NAME: counts, and shows what went wrong.
outcome() {
  if [ "$1" -eq 0 ]; then good=$((good + 1)); else bad=$((bad + 1)); fi
}
tell() {
  check "$1" "$([ "$bad" -eq 0 ] && [ "$good" -gt 0 ]; echo $?)" "cases=$((good + bad))" "failed=$bad" "${@:2}"
  good=0 bad=0
}

# ---- 16: files ----------------------------------------------------------------------------------------------------

# le64 NUMBER: eight bytes, little-endian.
le64() {
  local i n=$1
  for ((i = 0; i < 8; ++i)); do
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\x$(printf '%02x' $((n & 255)))"
    n=$((n >> 8))
  done
}
# safetensors HEADER [BYTES OF DATA]: such a file.
safetensors() {
  le64 "${#1}"
  printf '%s' "$1"
  head -c "${2:-0}" /dev/zero
}
# refused NAME KIND PATTERN: the file $work/bad is.
refused() {
  "$bin/fault_parse" "$2" "$work/bad" >"$work/$1.log" 2>&1
  code=$?
  local status=0
  expect_code 65 "$1" && expect_text "$3" "$1" && expect_text "$work/bad" "$1" || status=1
  outcome "$status"
}

t='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
safetensors "$t}" 8 >"$work/bad"
"$bin/fault_parse" safetensors "$work/bad" >"$work/sound.log" 2>&1
code=$?
expect_code 0 sound
outcome $?
bad_safetensors() { # NAME HEADER DATA PATTERN
  safetensors "$2" "$3" >"$work/bad"
  refused "$1" safetensors "$4"
}
: >"$work/bad" && refused st_empty safetensors '.'
printf '1234567' >"$work/bad" && refused st_seven safetensors '.'
{ le64 $((1 << 62)) && printf '{}'; } >"$work/bad" && refused st_header_of_exbytes safetensors '4611686018427387904|header'
{ le64 -1 && printf '{}'; } >"$work/bad" && refused st_header_negative safetensors '.'
{ le64 90000000 && printf '{}'; } >"$work/bad" && refused st_header_beyond_file safetensors '.'
bad_safetensors st_not_json '{"a":' 0 'byte'
bad_safetensors st_list '[1,2]' 0 '.'
bad_safetensors st_deep "$(printf '{"a":%.0s' {1..100})" 0 'deep'
bad_safetensors st_twice "$t,\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}" 8 'twice'
bad_safetensors st_overlap "$t,\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}" 12 'b|a'
bad_safetensors st_hole "$t,\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}" 20 '.'
bad_safetensors st_trailing "$t}" 9 '.'
bad_safetensors st_short "$t}" 7 '.'
bad_safetensors st_wraps '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}' 8 'a'
bad_safetensors st_negative '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}' 8 'a'
bad_safetensors st_dtype '{"a":{"dtype":"F13","shape":[2],"data_offsets":[0,8]}}' 8 'F13'
bad_safetensors st_size '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}' 8 'a'
bad_safetensors st_backwards '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}' 8 'a'
bad_safetensors st_nan '{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}' 8 'byte'

"$bin/prepare_data" --data "$work/text.txt" --tokenizer char --out "$work/shards" >/dev/null
shard=$work/shards/tokens_00000.tokens
size=$(stat -c %s "$shard")
stride=1500
[ "$quick" = no ] || stride=5000
for ((cut = 0; cut < size; cut += stride)); do
  head -c "$cut" "$shard" >"$work/bad"
  refused "tokens_cut_$cut" tokens '.'
done
{ cat "$shard" && printf x; } >"$work/bad" && refused tokens_longer tokens 'size'
head -c "$size" /dev/zero >"$work/bad" && refused tokens_zeros tokens 'byte 0: not a token shard'
for at in 5 9 17 49 81 5000; do
  cp "$shard" "$work/bad"
  printf '\377' | dd of="$work/bad" bs=1 seek=$at conv=notrunc status=none
  refused "tokens_flip_$at" tokens 'byte [0-9]+'
done

bad_text() { # NAME KIND TEXT PATTERN
  printf '%s' "$3" >"$work/bad"
  refused "$1" "$2" "$4"
}
bad_text tok_empty tokenizer '' 'byte'
bad_text tok_cut tokenizer "$(head -c 100 "$work/shards/tokenizer.json")" 'byte'
bad_text tok_list tokenizer '[]' '.'
bad_text tok_kind tokenizer '{"kind":"words"}' '.'
bad_text json_cut json '{"lr": 0.1' 'byte 10: not valid JSON'
bad_text json_nan json '{"lr": NaN}' 'byte 7: not valid JSON'
bad_text json_two json '{} {}' 'byte'
bad_text json_twice json '{"lr":1,"lr":2}' 'twice'
bad_text json_deep json "$(head -c 100000 /dev/zero | tr '\0' '[')" 'deeper than 64'
bad_text json_utf8 json "$(printf '{"a":"\377"}')" 'byte'
bad_text manifest_empty manifest '' 'manifest|byte'
bad_text manifest_other manifest '{"format":"other"}' 'do not begin as a manifest does'

# The same through the programs.
printf '{"lr": 0.1' >"$work/bad"
run_threads config --config "$work/bad" --steps 2
expect_code 65 config && expect_text 'FATAL\[65\] \[json\] .*bad byte 10: not valid JSON' config
outcome $?
head -c 3000 "$shard" >"$work/cut.tokens"
mkdir "$work/cut" && cp "$work/shards/tokenizer.json" "$work/cut" && mv "$work/cut.tokens" "$work/cut/tokens_00000.tokens"
run_threads cut --data "$work/cut" --steps 2
expect_code 65 cut && expect_text 'FATAL\[65\].*tokens_00000.tokens' cut
outcome $?
tell '16 malformed files'

# ---- 17: flags ----------------------------------------------------------------------------------------------------

# usage NAME PATTERN FLAGS...: refused with 64 and one message, before anything has begun.
usage() {
  local name=$1 pattern=$2 status=0
  shift 2
  run_threads "$name" --out "$work/none" "$@"
  expect_code 64 "$name" && expect_text "FATAL\[64\].*$pattern" "$name" && [ "$(fatal_lines "$name")" -eq 1 ] || status=1
  [ ! -e "$work/none" ] || status=1
  outcome "$status"
}
usage unknown 'unknown flag --stpes; the nearest is --steps' --stpes 5
usage no_number '\-\-steps: expected an integer of at least|expected an integer' --steps many
usage out_of_range 'dropout.*\[0, 1\)' --dropout 1.5
usage no_choice 'expected one of' --optimizer adamx
usage no_value 'has no value' --lr
usage heads '\-\-heads 3.*tp=2' --heads 3 --width 15 --mesh tp=2
usage layers 'pp=3.*at most 2|--layers 2' --mesh pp=3
usage batch '\-\-global-batch 8.*--micro-batch 2 x dp 3 = 6' --mesh dp=3
usage axis 'qp.*dp, tp, pp, cp and ep' --mesh dp=2,qp=2
usage zero_axis "'0'" --mesh tp=0
usage huge_mesh '.' --mesh dp=99999999999
usage fault 'there is no kind|allow-fault-injection' --allow-fault-injection=maybe
run_mpi ranks 2 --mesh dp=3 --micro-batch 1 --global-batch 6
expect_code 64 ranks && expect_text '3 ranks.*launcher started 2' ranks && [ "$(fatal_lines ranks)" -eq 1 ]
outcome $?
run_mpi unknown_mpi 2 --mesh dp=2 --stpes 5
expect_code 64 unknown_mpi && [ "$(fatal_lines unknown_mpi)" -eq 1 ]
outcome $?
TRIREME_FAULT=kill@step=2 run_threads fault_variable --steps 2
expect_code 64 fault_variable && expect_text 'TRIREME_FAULT=.*--allow-fault-injection' fault_variable
outcome $?
TRIREME_IO_FAULT=kind=eio run_threads io_variable --steps 2
expect_code 64 io_variable && expect_text 'TRIREME_IO_FAULT=.*--allow-fault-injection' io_variable
outcome $?
tell '17 flags'

# ---- 18: tokens ---------------------------------------------------------------------------------------------------

# data NAME CODE PATTERN PATH: train_gpt --data PATH ends so.
data() {
  run_threads "$1" --data "$4" --steps 2
  expect_code "$2" "$1" && expect_text "FATAL\[$2\].*$3" "$1" && [ "$(fatal_lines "$1")" -eq 1 ]
  outcome $?
}
cp -r "$work/shards" "$work/spoiled"
"$bin/fault_parse" spoil "$work/spoiled/tokens_00000.tokens" 17 40
data token_outside 65 'tokens_00000.tokens.*token 17 is 40; expected 0 to 39' "$work/spoiled"
: >"$work/empty.txt"
data empty_text 65 'empty.txt.*0 bytes' "$work/empty.txt"
mkdir "$work/nothing"
data empty_folder 65 'nothing' "$work/nothing"
printf 'short' >"$work/short.txt"
data short_text 65 '5 tokens.*--context 16' "$work/short.txt"
printf 'text \377 text' >"$work/binary.txt"
data binary 65 'byte 5' "$work/binary.txt"
data absent 64 'absent.txt.*does not exist' "$work/absent.txt"
run_threads vocabulary --vocab 39 --steps 2
expect_code 64 vocabulary && expect_text '\-\-vocab 39.*at least 40' vocabulary
outcome $?
tell '18 tokens and data'
finish

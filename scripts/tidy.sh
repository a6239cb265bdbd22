#!/usr/bin/env bash
# Runs clang-tidy on the sources that build/ compiles, on all cores. A clean file is checked again only after a change
# of the file, of a header of ours that it includes, of its flags or of .clang-tidy: the user's cache folder has an
# empty file per clean state, for all clones. `scripts/tidy.sh [PATH...]` limits it to sources whose path contains one
# of the arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

CLEAN=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-tidy  # a file is named after the hash of a clean state
WORK=build/tidy
COMMANDS=$WORK/compile_commands.json
DEPENDENCIES=$WORK/dependencies  # "source header header ..." a line, as ninja recorded them when it compiled

# A hash of all that a source's result depends on; empty if the source has not been compiled yet.
state_of() {
  local headers
  headers=$(awk -v source="$1" '$1 == source {$1 = ""; print; exit}' "$DEPENDENCIES")
  [ -n "$headers" ] || return 0
  # shellcheck disable=SC2086  # a list of names without spaces
  { cat .clang-tidy "$1" $headers && grep -F "$1" "$COMMANDS" | sed "s|$PWD|.|g" && clang-tidy-14 --version; } \
    2>/dev/null | sha256sum | cut -d ' ' -f 1
}

# Checks one source; status 0 if it is clean. Prints only its findings.
check_one() {
  local source=$1 state output
  state=$(state_of "$source")
  if [ -n "$state" ] && [ -e "$CLEAN/$state" ]; then return 0; fi
  # The compile commands are for g++, which reports warnings itself; only the checks of .clang-tidy count here.
  if output=$(clang-tidy-14 -p "$WORK" --quiet --extra-arg=-Wno-error "$source" 2>/dev/null); then
    if [ -n "$state" ]; then : >"$CLEAN/$state"; fi
    return 0
  fi
  printf '%s\n' "$output"
  return 1
}

# The commands of build/, one per source: clang-tidy checks a source once for each of its commands, and kernels are
# compiled four times. Prefers a command of g++ without sanitizers. Excludes tests: they capture structured bindings,
# which clang 14 cannot parse, and running them is their check.
one_command_a_source() {
  mkdir -p "$WORK" "$CLEAN"
  awk '
    /^{/ {entry = ""; plain = 1}
    {entry = entry $0 "\n"}
    /^ *"command": / {plain = !/ -fsanitize=|nvcc/}
    /^ *"file": / {file = $0; sub(/,$/, "", file)}
    /^}/ && file !~ /"'"${PWD//\//\\/}"'\/tests\// {
      if (!(file in chosen)) order[++sources] = file
      if (!(file in chosen) || (plain && !is_plain[file])) {
        sub(/},?\n$/, "}", entry)
        chosen[file] = entry
        is_plain[file] = plain
      }
    }
    END {
      print "["
      for (i = 1; i <= sources; ++i) printf "%s%s\n", chosen[order[i]], i < sources ? "," : ""
      print "]"
    }' build/compile_commands.json >"$COMMANDS"
}

# The sources of these commands, relative to the root.
all_sources() {
  sed -n 's|^ *"file": "'"$PWD"'/\(.*\)",\{0,1\}$|\1|p' "$COMMANDS" | LC_ALL=C sort -u
}

record_dependencies() {
  mkdir -p "$WORK" "$CLEAN"
  # ninja prints "object: #deps ..." and then one dependency per indented line, the source itself first. Our paths are
  # absolute or, if ccache compiled them, relative to build/.
  ninja -C build -t deps 2>/dev/null | awk -v root="$PWD/" '
    /^[^ ]/ {if (line) print line; line = ""; next}
    {name = ""}
    index($1, root) == 1 {name = substr($1, length(root) + 1)}
    index($1, "../") == 1 {name = substr($1, 4)}
    name {line = line (line ? " " : "") name}
    END {if (line) print line}' >"$DEPENDENCIES"
}

if [ "${1:-}" = --one ]; then
  check_one "$2"
  exit
fi

one_command_a_source
record_dependencies
mapfile -t sources < <(all_sources)
if [ $# -gt 0 ]; then
  mapfile -t sources < <(printf '%s\n' "${sources[@]}" | grep -F "$(printf '%s\n' "$@")")
fi
[ ${#sources[@]} -gt 0 ] || die 64 'tidy: no source matches; build/compile_commands.json lists what there is'
say "clang-tidy on ${#sources[@]} sources ..."
start=$SECONDS
printf '%s\n' "${sources[@]}" | xargs -P "$(parallel_jobs)" -n 1 "$0" --one ||
  die 1 "clang-tidy has findings (after $(duration $((SECONDS - start))))"
say "  clean, in $(duration $((SECONDS - start)))"

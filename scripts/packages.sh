# shellcheck shell=bash
# Installs the missing packages of a command, from scripts/packages.txt. Sourced after common.sh.

# The packages of the given sections, one per line.
packages_of() {
  local section
  for section in "$@"; do
    awk -v want="[$section]" '/^\[/ {on = ($1 == want); next} on && NF && $1 !~ /^#/ {print $1}' scripts/packages.txt
  done
}

missing_packages() {
  local package
  packages_of "$@" | while IFS= read -r package; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
  done
}

# require_packages SECTION...: returns only when all are installed.
require_packages() {
  command -v apt-get >/dev/null ||
    die 64 'this is not a Debian or Ubuntu machine (no apt-get). Install what scripts/packages.txt lists by hand, then:
  cmake --preset release && cmake --build --preset release'
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi

  local by_hand="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    by_hand="sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    can_sudo || die 75 "${#missing[@]} packages are missing and sudo is not available here. Run this, then try again:
  $by_hand"
    as_root=(sudo)
  fi
  say "Missing packages: ${missing[*]}"
  # An unreachable extra source fails the update but may not matter for these packages: the installation will show it.
  quietly 'Updating the package lists' apt-update "${as_root[@]}" apt-get update -q ||
    say '  Going on with the lists that are here.'
  quietly "Installing ${#missing[@]} packages and what they need" apt-install \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" ||
    die 75 "the packages could not be installed. Run this by hand, fix what it reports, then try again:
  $by_hand"
}

# With a terminal, sudo may ask for a password (before the quiet part, so that the question is visible).
can_sudo() {
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ] && sudo -v; }
}

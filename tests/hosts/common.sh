# shellcheck shell=bash
# What the scripts of the three-host test share. A script sources it, and then runs inside namespaces with three hosts,
# h1, h2 and h3. Each has its own name, network, processes, /tmp, /dev/shm and sshd; all see the same files otherwise.
# tests/hosts/switch.cpp connects them: 10.77.0.1 to 10.77.0.3. Everything ends with the script.
#
#   # shellcheck source=tests/hosts/common.sh
#   . "$(dirname "${BASH_SOURCE[0]}")/common.sh"
#   round_trip 10                                    # every round trip between two hosts takes 10 ms
#   train job1 6 --mesh dp=6 --steps 20              # train_gpt on 6 ranks, two a host; its output: $work/job1.log
#   cut_off h2                                       # its cable: frames disappear, nobody is told
#
# A script ends with 77, after one line that says why, where hosts cannot be made. Read next: scripts/hosts.sh.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 70
script=$(basename "$0" .sh)

skip() {
  printf 'SKIP %s: %s\n' "$script" "$1"
  exit 77
}

# Enters namespaces, once; inside, this script goes on as their first process, with which everything in them ends.
if [ -z "${TRIREME_INSIDE_HOSTS:-}" ]; then
  [ "$(id -u)" -eq 0 ] || skip 'hosts are made as network namespaces, which needs root; run it as root'
  for tool in unshare nsenter ip ssh ssh-keygen mpirun; do
    command -v "$tool" >/dev/null || skip "$tool is missing; install the section [hosts] of scripts/packages.txt"
  done
  [ -x /usr/sbin/sshd ] || skip 'sshd is missing; install the section [hosts] of scripts/packages.txt'
  [ -c /dev/net/tun ] || skip 'this machine has no /dev/net/tun, from which the network between hosts is made'
  inside=(unshare --net --mount --pid --ipc --fork --kill-child --mount-proc)
  refusal=$("${inside[@]}" ip tuntap add trireme0 mode tap 2>&1) ||
    skip "namespaces are not allowed here: ${refusal:-unshare failed without a message}"
  export TRIREME_INSIDE_HOSTS=yes
  "${inside[@]}" "$BASH" "$0" "$@"
  exit
fi

export LC_ALL=C NO_COLOR=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset TRIREME_FAULT TRIREME_IO_FAULT TRIREME_RESTARTS
bin=$PWD/build/bin
work=$PWD/build/hosts
failures=0
code=0       # of the last job
job=0        # the process of the one that was started last
timeout_s=30 # --timeout of jobs
export code job
mkdir -p "$work"
# All hosts see this folder, as machines see a shared file system. TRIREME_KEEP=1 leaves it on the disk.
if [ -z "${TRIREME_KEEP:-}" ]; then
  mount -t tmpfs trireme_hosts "$work"
else
  work=$(mktemp -d "$work/$script.XXXX")
fi
trap 'exit 130' INT
trap 'exit 143' TERM

note() { printf '     %s\n' "$*"; }
show() { tail -n "${2:-15}" "$work/$1.log" | sed 's/^/     | /'; }
die() {
  printf 'FAIL %s: %s\n' "$script" "$1"
  exit 1
}

# check WHAT CONDITION-STATUS [metric=value ...]: prints PASS when the status is 0.
check() {
  local result=PASS what=$1
  if [ "$2" -ne 0 ]; then result=FAIL failures=$((failures + 1)); fi
  printf '%s\n' "$result $script: $what ${*:3}"
}

finish() {
  [ "$failures" -eq 0 ]
  exit
}

# until_true SECONDS COMMAND...: repeats it until it succeeds; 1 if it never does.
until_true() {
  local i most=$(($1 * 20))
  shift
  for ((i = 0; i < most; ++i)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.05
  done
  return 1
}

# The network. Commands to the switch go through a pipe.
mkfifo "$work/to_switch"
"$bin/host_switch" h1 h2 h3 <"$work/to_switch" >"$work/switch.log" 2>&1 &
exec 9>"$work/to_switch"
until_true 10 grep -q ready "$work/switch.log" || die "the switch did not start: $(cat "$work/switch.log")"

# round_trip MS: of every pair of hosts. A host's part of it is a quarter: its frames in both directions, as the peer's.
round_trip() {
  local host
  for host in h1 h2 h3; do delay "$host" "$(awk -v ms="$1" 'BEGIN { print ms / 4 }')"; done
}
delay() { printf 'delay %s %s\n' "$1" "$2" >&9; }
cut_off() { printf 'down %s\n' "$1" >&9; }
mend() { printf 'up %s\n' "$1" >&9; }

# The hosts.
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
ssh-keygen -q -t ed25519 -N '' -f "$work/host_key"
printf '127.0.0.1 localhost\n10.77.0.1 h1\n10.77.0.2 h2\n10.77.0.3 h3\n' >"$work/etc_hosts"
sed 's/^root:[^:]*:/root:*:/' /etc/shadow >"$work/etc_shadow" # sshd refuses an account that is locked with "!"
cat >"$work/ssh_config" <<TXT
Host *
  IdentityFile $work/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 3
TXT
cat >"$work/sshd_config" <<TXT
HostKey $work/host_key
AuthorizedKeysFile $work/key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
MaxStartups 100
TXT
chmod 600 "$work/etc_shadow" "$work/key" "$work/host_key"
export OMPI_MCA_plm_rsh_agent="ssh -F $work/ssh_config"

declare -A process # of each host: the first of its namespaces, as seen from here
for number in 1 2 3; do
  name=h$number
  # shellcheck disable=SC2016 # for the shell on the host
  unshare --net --uts --mount --ipc --pid --fork --kill-child --mount-proc "$BASH" -c '
    set -e
    hostname "$1"
    # The checkout may lie below one of the folders that a host has for itself.
    mount --rbind "$4" /mnt
    for folder in /tmp /dev/shm /run; do mount -t tmpfs "$1" "$folder"; done
    mkdir -p "$4" /run/sshd
    mount --rbind /mnt "$4"
    mount --bind "$3/etc_hosts" /etc/hosts
    mount --bind "$3/etc_shadow" /etc/shadow
    ip link set lo up
    while ! ip link show "$1" >/dev/null 2>&1; do sleep 0.01; done
    ip link set "$1" name eth0 mtu 9000 up
    ip addr add "$2/24" dev eth0
    exec /usr/sbin/sshd -D -e -f "$3/sshd_config"
  ' host "$name" "10.77.0.$number" "$work" "$PWD" >"$work/$name.log" 2>&1 9>&- &
  until_true 10 grep -q . "/proc/$!/task/$!/children" || die "host $name did not start: $(cat "$work/$name.log")"
  process[$name]=$(tr -d ' ' <"/proc/$!/task/$!/children")
  until_true 10 ip link set "$name" netns "${process[$name]}" || die "host $name has no network"
done

# on HOST COMMAND...: runs it there.
on() {
  local host=$1
  shift
  nsenter --target "${process[$host]}" --net --uts --mount --ipc --pid --wd="$PWD" "$@" 9>&-
}
for name in h2 h3; do
  until_true 10 on h1 ssh -F "$work/ssh_config" "$name" true || die "no ssh from h1 to $name: $(cat "$work/$name.log")"
done

# A text of 6000 characters, 40 of them distinct: the same every time.
awk 'BEGIN { for (i = 0; i < 6000; ++i) printf "%c", 65 + (i * i + int(i / 7)) % 40 }' >"$work/text.txt"
tiny=(--data "$work/text.txt" --layers 3 --heads 2 --width 16 --context 16 --global-batch 12 --micro-batch 2
  --log-every 1 --eval-batches 2 --warmup-steps 2 --threads 1)

# launcher RANKS: sets `launch`, the mpirun of a job on all hosts.
launcher() { launch=(mpirun --host "${hosts:-h1:2,h2:2,h3:2}" --map-by node --bind-to none -n "$1"); }

# train NAME RANKS FLAGS...: train_gpt on the hosts, started on h1, with at most `limit` seconds; sets $code.
train() {
  local name=$1 launch=()
  launcher "$2"
  shift 2
  on h1 timeout -s KILL "${limit:-60}" "${launch[@]}" "$bin/train_gpt" "${tiny[@]}" "$@" \
    >"$work/$name.log" 2>&1 </dev/null
  code=$?
}

# stamped NAME: each line of its input with the time it came, into NAME.log.
stamped() {
  local line
  while IFS= read -r line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done >"$work/$1.log"
}

# start NAME COMMAND...: on h1, in the background, as $job; its output with times: $work/NAME.log.
start() {
  local name=$1
  shift
  on h1 timeout -s KILL 100 "$@" </dev/null > >(stamped "$name") 2>&1 &
  job=$!
}

# start_one_each NAME [mpirun's FLAGS...]: trains in the background with one rank on each host, until told to stop.
# Returns after 50 steps: hosts have then said where their ranks are, which they do 20 times per timeout.
start_one_each() {
  local name=$1
  shift
  start "$name" mpirun --host h1,h2,h3 --bind-to none -n 3 "$@" "$bin/train_gpt" "${tiny[@]}" --steps 100000 \
    --log-every 5 --timeout "$timeout_s" --mesh dp=3 --allow-fault-injection --out "$work/$name"
  says 'step 50/' "$name" || { show "$name" && return 1; }
}

# says PATTERN NAME [SECONDS]: waits until a line of its output matches.
says() { until_true "${3:-30}" grep -qE -- "$1" "$work/$2.log"; }

# expect_code WANTED NAME: whether the last job ended so; if not, shows what it said.
expect_code() {
  [ "$code" -eq "$1" ] && return 0
  note "$2 ended with $code, expected $1:"
  show "$2"
  return 1
}

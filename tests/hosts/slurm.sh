#!/usr/bin/env bash
# The sample for Slurm, scripts/slurm/train.sbatch, under a real Slurm on the three hosts: Debian's slurmctld, slurmd,
# sbatch and munge. Two nodes with two ranks each train to the end; USR2, as Slurm sends it before a time limit, makes
# the job save and queue itself again; TERM makes it save and end for good.
# shellcheck source=tests/hosts/common.sh
[ -n "${TRIREME_INSIDE_HOSTS:-}" ] || for program in slurmctld slurmd sbatch scontrol munged; do
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && continue
  printf 'SKIP slurm: %s is missing; install the section [slurm] of scripts/packages.txt\n' "$program"
  exit 77
done
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export PATH=$PATH:/usr/sbin SLURM_CONF=$work/slurm.conf
mkdir "$work/slurm"
head -c 1024 /dev/urandom >"$work/munge.key"
chmod 400 "$work/munge.key"
cat >"$SLURM_CONF" <<TXT
ClusterName=trireme
SlurmctldHost=h1
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/slurm
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=h[1-3] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TXT
for host in h1 h2 h3; do
  on "$host" mkdir -p -m 755 /run/munge
  on "$host" munged --force --foreground --key-file="$work/munge.key" --log-file=/tmp/munged.log \
    --pid-file=/run/munge/munged.pid --seed-file=/run/munge/seed >"$work/munged_$host.log" 2>&1 &
  until_true 10 on "$host" test -S /run/munge/munge.socket.2 || die "munged: $(cat "$work/munged_$host.log")"
done
on h1 slurmctld -D >"$work/slurmctld.log" 2>&1 &
for host in h1 h2 h3; do on "$host" slurmd -D -N "$host" >"$work/slurmd_$host.log" 2>&1 & done
nodes_idle() { [ "$(on h1 sinfo -h -N -t idle -o %N | wc -l)" -eq 3 ]; }
until_true 40 nodes_idle || die "the nodes are not idle: $(on h1 sinfo 2>&1; tail -n 3 "$work/slurmctld.log")"

# submit NAME FLAGS...: sets $id; the output of the job: $work/NAME.log.
submit() {
  local name=$1
  shift
  id=$(on h1 sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time=5 --output="$work/$name.log" \
    scripts/slurm/train.sbatch "${tiny[@]}" --mesh dp=auto,tp=2 --checkpoint-every 5 --keep 2 "$@" \
    --out "$work/$name") || die "sbatch: $(cat "$work/slurmctld.log")"
}
about() { on h1 scontrol show job "$id"; }
is() { about | grep -q "JobState=$1"; }

submit whole --steps 20
until_true 60 is COMPLETED
check 'the sample trains on two nodes to the end' $? \
  "$(about | grep -oE ' (JobState|ExitCode|NumNodes|NodeList)=[^ ]*' | tr -d '\n')"
[ "$(grep -c '^step 20/20 | loss' "$work/whole.log")" -eq 1 ] || show whole

on h1 timeout 60 srun --mpi=pmix --nodes=2 --ntasks-per-node=2 "$bin/train_gpt" "${tiny[@]}" --mesh dp=2,tp=2 \
  --steps 10 --out "$work/srun" >"$work/srun.log" 2>&1
code=$?
expect_code 0 srun && [ "$(grep -c '^step 10/10 | loss' "$work/srun.log")" -eq 1 ]
check 'srun --mpi=pmix starts ranks on two nodes, without mpirun' $? "code=$code"

submit limited --steps 100000
says '^step 7/' limited || show limited
ranks="$(on h1 pgrep -c -x train_gpt) $(on h2 pgrep -c -x train_gpt)"
[ "$ranks" = '2 2' ]
check 'two ranks run on each node' $? "ranks_on_h1_h2=${ranks/ /,}"
on h1 scancel --batch --signal=USR2 "$id"
until_true 40 is PENDING && grep -q '^preempted; saved step' "$work/limited.log" && about | grep -q 'Restarts=1'
check 'USR2, as before a time limit: the job saves and is queued again' $? "$(grep '^preempted' "$work/limited.log")"
# Slurm itself would wait two minutes. In the second in which the job left, its nodes still refuse it.
on h1 scontrol update "JobId=$id" StartTime=now+3
says '^resuming after step' limited 60 && says '^step 1[0-9]*/' limited
check 'the job that was queued again resumes' $? "$(grep -m 1 -o '^resuming after step [0-9]*' "$work/limited.log")"
on h1 scancel --batch --signal=TERM "$id"
until_true 40 is FAILED
check 'TERM: the job saves and ends for good' $? \
  "$(about | grep -oE ' (JobState|ExitCode|Restarts)=[^ ]*' | tr -d '\n')" \
  "$(grep '^preempted' "$work/limited.log" | tail -n 1)"
[ "$failures" -eq 0 ] || { show limited 30 && tail -n 20 "$work/slurmctld.log"; }
finish

#!/usr/bin/env bash
# mini_slurm.sh up|down|restart   a real SLURM on loopback, for the tests: no systemd, no cgroups, no accounting.
# Needs slurm-wlm and munge (Debian: apt-get install --no-install-recommends slurm-wlm munge). Everything lives under
# $MINI_SLURM_DIR; only daemons that were started here are stopped. `restart` is of the controller: it keeps its state.
#   MINI_SLURM_NODES=2 MINI_SLURM_CPUS=8 MINI_SLURM_GPUS=4 ./mini_slurm.sh up;  export SLURM_CONF=$MINI_SLURM_DIR/slurm.conf
set -euo pipefail
D=${MINI_SLURM_DIR:?a folder for its files}
NODES=${MINI_SLURM_NODES:-1}          # virtual nodes n1..nN, each its own slurmd on its own port
CPUS=${MINI_SLURM_CPUS:-8}            # declared per node; may exceed the real cores (config_overrides)
GPUS=${MINI_SLURM_GPUS:-$([ "$(id -u)" = 0 ] && echo 4 || echo 0)}            # fake GPUs per node: scheduler bookkeeping only
MEM=${MINI_SLURM_MEM_MB:-$(( $(awk '/MemTotal/{print $2}' /proc/meminfo) / 1024 * 9 / 10 ))}
PORT=${MINI_SLURM_PORT:-16817}
HOST=$(hostname -s)
export SLURM_CONF=$D/slurm.conf

write_conf() {
  mkdir -p "$D"/{munge,state,log}; for i in $(seq "$NODES"); do mkdir -p "$D/spool/n$i"; done
  chmod 0755 "$D" "$D/munge"
  [ -s "$D/munge/munge.key" ] || { head -c 128 /dev/urandom >"$D/munge/munge.key"; chmod 0400 "$D/munge/munge.key"; }
  echo 'CgroupPlugin=cgroup/v1' >"$D/cgroup.conf"      # loaded, never used ("disabled" is unknown to 22.05)
  : >"$D/gres.conf"                                    # gres/gpu demands character devices: clones of /dev/null do
  if [ "$GPUS" -gt 0 ]; then
    mkdir -p "$D/gpu"; for i in $(seq 0 $((GPUS - 1))); do [ -c "$D/gpu/gpu$i" ] || mknod "$D/gpu/gpu$i" c 1 3; done
    echo "NodeName=n[1-$NODES] Name=gpu File=$D/gpu/gpu[0-$((GPUS - 1))]" >"$D/gres.conf"
  fi
  cat >"$D/slurm.conf" <<E
ClusterName=mini
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=cred_expire=5,socket=$D/munge/munge.sock
CredType=cred/munge
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd-%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$D/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0,requeue_delay=1
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
JobRequeue=1
SlurmctldDebug=debug
KillWait=5
MinJobAge=3600
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
E
  for i in $(seq "$NODES"); do
    echo "NodeName=n$i NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + i)) CPUs=$CPUS RealMemory=$MEM $([ "$GPUS" -gt 0 ] && echo "Gres=gpu:$GPUS") State=UNKNOWN" >>"$D/slurm.conf"
  done
  cat >>"$D/slurm.conf" <<E
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
E
}

alive() { [ -r "/proc/$1/stat" ] && [ "$(sed 's/.*) //;s/ .*//' "/proc/$1/stat" 2>/dev/null)" != Z ]; }  # PID 1 may not reap

up() {
  write_conf
  munged --force --key-file="$D/munge/munge.key" --socket="$D/munge/munge.sock" --pid-file="$D/munge/munged.pid" \
         --log-file="$D/log/munged.log" --seed-file="$D/munge/seed" --num-threads=2
  slurmctld -c -f "$SLURM_CONF"
  for i in $(seq "$NODES"); do slurmd -c -f "$SLURM_CONF" -N "n$i"; done
  local end=$((SECONDS + ${MINI_SLURM_WAIT:-30}))
  while [ $SECONDS -lt $end ]; do
    [ "$(timeout 5 sinfo -h -N -p main -o %T 2>/dev/null | grep -cx idle || true)" = "$NODES" ] && { echo "export SLURM_CONF=$SLURM_CONF"; return 0; }
    sleep 0.1
  done
  timeout 5 sinfo -R || true; tail -n 20 "$D"/log/*.log; return 1
}

down() {
  if [ -s "$D/slurmctld.pid" ] && alive "$(cat "$D/slurmctld.pid")"; then   # else slurmstepd/srun outlive the daemons
    timeout 5 scancel -u "$(id -un)" 2>/dev/null || true
    local end=$((SECONDS + 15))
    while [ $SECONDS -lt $end ] && [ -n "$(timeout 5 squeue -h 2>/dev/null)" ]; do sleep 0.1; done
  fi
  for p in "$D"/slurmd-*.pid "$D/slurmctld.pid" "$D/munge/munged.pid"; do
    [ -s "$p" ] || continue
    pid=$(cat "$p"); kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do alive "$pid" || break; sleep 0.1; done
    alive "$pid" && kill -9 "$pid" || true
    rm -f "$p"
  done
}
restart() {
  local pid; pid=$(cat "$D/slurmctld.pid"); kill "$pid"
  for _ in $(seq 100); do alive "$pid" || break; sleep 0.1; done
  slurmctld -f "$SLURM_CONF"
}
case ${1:-} in up) up;; down) down;; restart) restart;; *) echo "usage: $0 up|down|restart" >&2; exit 2;; esac

#!/usr/bin/env bash
# Trains over the nodes of a Slurm allocation: sbatch examples/cluster/slurm.sh CONFIG.yaml INTERFACE
# INTERFACE is the nodes' network that the ranks keep to (`ip address` lists them); one node needs none.
# Ten minutes before the time is up Slurm sends SIGUSR1: the run saves, ends with exit code 75, and is queued again.
#SBATCH --job-name=gantry
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

config=${1:?usage: sbatch slurm.sh CONFIG.yaml INTERFACE}
interface=${2:-}
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then : "${interface:?a job of several nodes needs its network: sbatch slurm.sh CONFIG.yaml INTERFACE}"; fi
gantry=${GANTRY:-gantry}

# A job that is queued again keeps its number; its logs are another folder's.
logs=logs/$SLURM_JOB_ID${SLURM_RESTART_COUNT:+-$SLURM_RESTART_COUNT}
asked=0
trap 'asked=1; kill -USR1 $(jobs -p)' USR1 TERM
# mpirun takes the allocation's hosts by itself. `exec` would lose the requeue; the signal is handed on instead.
"$gantry" launch -n "$SLURM_NTASKS" ${interface:+--interface "$interface"} --restarts 3 --log-dir "$logs" -- \
  "$gantry" train "$config" --set checkpoint.resume=auto &
launch=$!
# A signal breaks the wait off.
while code=0; wait "$launch" || code=$?; [ "$asked" = 1 ]; do asked=0; done
if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"

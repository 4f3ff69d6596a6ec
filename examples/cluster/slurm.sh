#!/usr/bin/env bash
# Trains on the nodes of a Slurm allocation: sbatch examples/cluster/slurm.sh CONFIG.yaml INTERFACE
# INTERFACE is the network interface between the nodes (see `ip address`); a job on one node needs none.
# Ten minutes before the time limit Slurm sends SIGUSR1: the run saves, ends with exit code 75, and is requeued.
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

# A requeued job keeps its number, so each start gets its own log directory.
logs=logs/$SLURM_JOB_ID${SLURM_RESTART_COUNT:+-$SLURM_RESTART_COUNT}
asked=0
trap 'asked=1; kill -USR1 $(jobs -p)' USR1 TERM
# mpirun finds the hosts of the allocation. This script must forward the signal and requeue the job, so no `exec`.
"$gantry" launch -n "$SLURM_NTASKS" ${interface:+--interface "$interface"} --restarts 3 --log-dir "$logs" -- \
  "$gantry" train "$config" --set checkpoint.resume=auto &
launch=$!
# A signal interrupts wait.
while code=0; wait "$launch" || code=$?; [ "$asked" = 1 ]; do asked=0; done
if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"

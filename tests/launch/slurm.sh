#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The launch lines of the pages under Debian's Slurm: munge, slurmctld and slurmd run on hosts that are namespaces
# (lib.sh). Then jobs run with PMIx and without, with limits passed on or not, with ranks that come late, never or
# with other options, and as a step that hangs, is cancelled or loses its node.
# run-all limit: 600
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

launch_etc() {
    cat >"$1/slurm/slurm.conf" <<END
ClusterName=pvn
SlurmctldHost=node01
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdTimeout=300
KillWait=3
ReturnToService=2
GresTypes=gpu
NodeName=node[01-04] CPUs=64 Sockets=1 CoresPerSocket=64 ThreadsPerCore=1
PartitionName=all Nodes=ALL Default=YES OverSubscribe=NO
END
    echo 'Name=gpu File=/dev/shm/gpu[0-7]' >"$1/slurm/gres.conf"
    # No test uses it, and the machine's own file must not count.
    echo 'CgroupPlugin=cgroup/v1' >"$1/slurm/cgroup.conf"
}

launch_world slurmctld-wlm slurmd-wlm srun munged python3
hosts=4

start_slurm() {
    local n
    for ((n = 1; n <= hosts; n++)); do
        launch_host $n && on $n sh -c 'touch /dev/shm/gpu0 /dev/shm/gpu1 /dev/shm/gpu2 /dev/shm/gpu3 /dev/shm/gpu4 /dev/shm/gpu5 /dev/shm/gpu6 \
            /dev/shm/gpu7 && mkdir -p /var/log/munge /var/lib/munge /var/spool/slurmctld /var/spool/slurmd &&
            munged --force && exec slurmd -L /var/log/slurmd.log' || return 1
    done
    on 1 slurmctld -L /var/log/slurmctld.log || return 1
    for ((n = 0; n < 300; n++)); do
        [[ $(on 1 sinfo -h -o %T%D) = "idle$hosts" ]] && on 1 scontrol update "nodename=node[01-0$hosts]" gres=gpu:8 && return 0
        sleep 0.1
    done
    on 1 cat /var/log/slurmctld.log
    return 1
}
# True if no process of this name is left on any host, after a minute or so at most.
all_end() {
    local i n
    for ((i = 0; i < 600; i++)); do
        for ((n = 1; n <= hosts; n++)); do
            [[ -z ${launch_pid[$n]} ]] || ! on $n pgrep -lx "$1" >left || { sleep 0.1; continue 2; }
        done
        return 0
    done
    cat left >>"$out"
    return 1
}
waits() { # HOST: until a rank there sends, 15 s or so at most
    local i
    for ((i = 0; i < 100; i++)); do
        data_flow "$1" && return 0
        sleep 0.1
    done
    return 1
}

start_slurm >"$out" 2>&1
rc=$?
holds "munge, slurmctld and slurmd start on $hosts hosts" $rc
[[ $rc = 0 ]] || exit 1

# The lines run as they are printed, but lines for a cluster of 16 hosts run on the hosts that exist here.
seen=0
while IFS=$'\t' read -r place line; do
    seen=$((seen + 1))
    case $line in
        *" stat") continue ;; # below, where there is something to see
        *"ulimit -l'") want='^[0-9]+$|^unlimited$' ;;
        *--check*) want='^all data verified$' ;;
        *scale*) want='allreduce +32 MiB +4 tcp' ;;
        *mesh*) want='^bandwidth: median between hosts' ;;
        *) want='a word that this test knows of what it prints' ;;
    esac
    rm -f mesh.json mesh.svg scale.svg
    run_as ok "$place: $line" 60 by_user 1 sh -c "${line/-N 16/-N $hosts}"
    says "$place: what it prints" "$want"
    for file in mesh.json mesh.svg scale.svg; do
        [[ $line != *"$file"* ]] || { [[ -s $file ]]; holds "$place: $file" $?; }
    done
done < <(launch_lines srun)
((seen >= 6))
holds "the pages have launch lines for srun: $seen" $?

# The batch script runs as it is printed, with a stand-in for torchrun, which is not here.
mkdir bin
cat >bin/torchrun <<'END'
#!/bin/sh
echo "torchrun on $(hostname): $*; $NCCL_NET_PLUGIN $NCCL_NET $LD_LIBRARY_PATH, tasks $SLURM_STEP_NUM_TASKS"
END
chmod 755 bin/torchrun
launch_lines sbatch >batch.sh
run_as ok "the batch script of the pages" 60 by_user 1 env PATH="/mnt/bin:$PATH" sbatch --wait -o batch.out batch.sh
cat batch.out >>"$out"
says "the batch script starts torchrun once on each node" \
    '^torchrun on node01: --nnodes 2 .*--rdzv_endpoint node01:29500 train.py; pvrdma pvrdma /usr/local/lib:.*, tasks 2$' \
    '^torchrun on node02: --nnodes 2 .*--rdzv_endpoint node01:29500 train.py; pvrdma pvrdma /usr/local/lib:.*, tasks 2$'

# More ranks than processors, by each interface through which Slurm numbers them.
ring="pvn-perf ring --sizes 1M --iters 2 --check --boot-timeout 20"
for pmi in none pmi2 pmix; do
    run_as ok "6 ranks on 2 nodes, --mpi=$pmi" 60 by_user 1 srun -N 2 -n 6 --mpi=$pmi $ring
    says "6 ranks on 2 nodes, --mpi=$pmi: all meet" '^  rank 5 +on node02: ' '^all data verified$'
done

# The limits of the submitting shell apply to the ranks, too, except with --propagate=NONE.
run_as ok "srun passes ulimit -l on" 30 by_user 1 bash -c "ulimit -l 64; srun -N 2 bash -c 'ulimit -l'"
[[ $(sort -u "$out") = 64 ]]
holds "srun passes ulimit -l on to each rank" $?
run_as ok "srun --propagate=NONE" 30 by_user 1 bash -c "ulimit -l 64; srun --propagate=NONE -N 2 bash -c 'ulimit -l'"
[[ $(wc -l <"$out") = 2 ]] && ! grep -qx 64 "$out"
holds "srun --propagate=NONE leaves each rank the limit of slurmd" $?
run_as ok "pvn-topo check under srun with a small ulimit -l" 30 by_user 1 bash -c "ulimit -l 64; srun -w node01,node02 -N 2 pvn-topo --all check"
says "pvn-topo check names each host and its limit" '^host node01 ' '^host node02 ' 'memlock .*64 KiB'
run_as ok "a ring with a small ulimit -l" 60 by_user 1 bash -c "ulimit -l 64; srun -N 2 $ring"
says "a ring with a small ulimit -l goes on" '^all data verified$'

# Ranks come late, never, or with other options. If a job names a node, it waits for that node. Otherwise Slurm takes
# other nodes while it still ends the step before.
run_as ok "a rank that starts 5 s after the other" 60 by_user 1 srun -N 2 sh -c "sleep \$((SLURM_PROCID * 5)); exec $ring"
says "a rank that starts 5 s after the other: they meet" '^all data verified$'
run_as fails "a rank that never comes" 60 by_user 1 srun -w node01,node02 -N 2 sh -c \
    'if [ $SLURM_PROCID = 1 ]; then sleep 6; else exec pvn-perf ring --sizes 1M --boot-timeout 3; fi'
says "a rank that never comes is named" 'after 3 s 1 of 2 ranks had not reached rank 0 at node01:[0-9]+: 1 '
run_as fails "a rank with other options ends the job, long before --boot-timeout" 60 by_user 1 srun -w node01,node02 -N 2 sh -c \
    'exec pvn-perf ring --boot-timeout 600 --sizes $((SLURM_PROCID + 1))M'
says "a rank with other options is named with its host" 'rank 1 on node02 \(10.88.0.2\) was refused: it has other options than rank 0'

# A job hangs and is examined as the pages say. Then its step is cancelled.
long="pvn-perf ring --time 100 --sizes 1M --check"
run_as ok "sbatch" 30 by_user 1 sbatch --parsable -N 2 --ntasks-per-node 1 -o long.out --wrap "srun $long"
job=$(<"$out")
waits 1
holds "a batch job sends data" $?
on 2 pkill -STOP -x pvn-perf
sleep 3
while IFS=$'\t' read -r place line; do
    [[ $line = *" stat" ]] || continue
    run_as ok "$place: $line" 30 by_user 1 env JOB="$job" sh -c "$line"
    says "$place: it names the rank that is stopped" '^(.*waits? for )?.*rank 1, pvn-perf pid [0-9]+ on node02: .*stopped' \
        'rank 0, pvn-perf pid [0-9]+ on node01: alive'
    ! grep -q 'another network namespace' "$out"
    holds "$place: what another host has is not taken for another container's" $?
done < <(launch_lines srun)
on 2 pkill -CONT -x pvn-perf
run_as ok "scancel of a step" 30 by_user 1 scancel "$job.0"
all_end pvn-perf
holds "scancel leaves no rank on any node" $?
run_as ok "the nodes are free again" 60 by_user 1 srun -N 2 -w 'node[01-02]' $ring
rm long.out

# A whole job is cancelled. Its ranks get SIGTERM first, and report that.
run_as ok "sbatch" 30 by_user 1 sbatch --parsable -N 2 --ntasks-per-node 1 -o long.out --wrap "srun $long"
job=$(<"$out")
waits 1
run_as ok "scancel of a job" 30 by_user 1 scancel "$job"
all_end pvn-perf
holds "scancel of a job leaves no rank on any node" $?
cat long.out >>"$out"
says "scancel of a job: what was measured until then is said to count" 'INTERRUPTED: what was measured until then counts'

# A node dies in mid-run and sends nothing more.
by_user 1 env NCCL_PVRDMA_TCP_USER_TIMEOUT=3s timeout 90 srun -K -w 'node[02-04]' --ntasks-per-node 1 $long >died.out 2>&1 &
srun=$!
waits 2
holds "a job on three nodes sends data" $?
start=$EPOCHREALTIME
launch_kill 3
launch_pid[3]=
all_end pvn-perf
rc=$?
cat died.out >>"$out"
holds "a node that dies ends the ranks of the others ($(((${EPOCHREALTIME/./} - ${start/./}) / 1000)) ms)" $rc
# Any of three limits may come first. The plugin's names the host. The other two, of the meeting and of the ring,
# name the rank.
says "a node that dies is named by the others" \
    'peer node03 pid [0-9]+ at 10\.88\.0\.3:|rank 1 did not answer for|waits for .* rank \(1( or [0-9])?\)'
kill $srun 2>/dev/null
wait $srun 2>/dev/null
exit 0

#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The launch lines of the pages under Debian's Open MPI and MPICH, over ssh between hosts that are namespaces
# (lib.sh). pvn-topo --hosts runs over the same ssh.
# run-all limit: 600
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

launch_etc() {
    cat >"$1/ssh/sshd_config" <<END
HostKey /mnt/host_key
AuthorizedKeysFile /mnt/id.pub
StrictModes no
PasswordAuthentication no
UsePAM no
PidFile /run/sshd.pid
END
    cat >"$1/ssh/ssh_config" <<END
IdentityFile /mnt/id
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
BatchMode yes
END
}

launch_world mpirun.openmpi mpiexec.hydra sshd ssh python3
hosts=3

start_hosts() {
    local n
    # ssh-keygen may be one of the programs that only this world has.
    ssh-keygen -q -t ed25519 -N '' -f /mnt/host_key && ssh-keygen -q -t ed25519 -N '' -f /mnt/id && chown 65499 /mnt/id || return 1
    for ((n = 1; n <= hosts; n++)); do
        launch_host $n && on $n /usr/sbin/sshd || return 1
    done
    # Debian's alternatives give mpirun to one of the two. Here each has a directory at the front of PATH.
    mkdir openmpi mpich
    printf '#!/bin/sh\nexec mpirun.openmpi "$@"\n' >openmpi/mpirun
    printf '#!/bin/sh\nexec mpiexec.hydra "$@"\n' >mpich/mpirun
    chmod 755 openmpi/mpirun mpich/mpirun
    for ((n = 1; n <= hosts; n++)); do
        by_user 1 ssh "node0$n" true || return 1
    done
}
start_hosts >"$out" 2>&1
rc=$?
holds "sshd runs on $hosts hosts" $rc
[[ $rc = 0 ]] || exit 1

# with MPI COMMAND-LINE: runs a command line that begins with mpirun
with() {
    # Open MPI 5 refuses to bind more ranks than there are processors.
    by_user 1 env PATH="/mnt/$1:$PATH" NCCL_NET=pvrdma LD_LIBRARY_PATH=/usr/local/lib PRTE_MCA_hwloc_default_binding_policy=none sh -c "$2"
}
seen=0
while IFS=$'\t' read -r place line; do
    # Lines with the reader's own program or eight ranks per host cannot run here.
    [[ $line != *train.py* ]] || continue
    seen=$((seen + 1))
    # A smaller model is measured, as in tests/docs/pages.py.
    short=${line/bert-large/resnet50}
    [[ $line = *--preset* || $line != *pvn-perf* ]] || short+=' --iters 1 --warmup 0'
    case $line in
        *--check*) want='^all data verified$' ;;
        *" p2p --plugin"*) want='^tcp +bandwidth .* [0-9.]+$' ;;
        *" env "*) want='^LD_LIBRARY_PATH=(/usr/local/lib|.*/pmix2/lib:)$' ;; # the second is that of Open MPI 5 over ssh
        *) want='a word that this test knows of what it prints' ;;
    esac
    run_as ok "$place by openmpi: $line" 90 with openmpi "$short"
    says "$place by openmpi: what it prints" "$want"
    # MPICH has another option for the list of hosts, and does not set rank 0's host.
    [[ $line != *pvn-perf* ]] || short+=' --master host0'
    run_as ok "$place by mpich: $line" 90 with mpich "${short/ -H / -hosts }"
    says "$place by mpich: what it prints" "$want"
done < <(launch_lines mpirun)
((seen >= 5))
holds "the pages have launch lines for mpirun: $seen" $?

# MPICH passes all variables to the ranks. Open MPI passes those of -x, as the pages say.
show="sh -c 'echo \$(hostname) \$NCCL_NET'"
run_as ok "variables by MPICH" 30 with mpich "mpirun -n 2 -hosts host0,host1 $show"
says "MPICH passes the environment on" '^node01 pvrdma$' '^node02 pvrdma$'
run_as ok "variables by Open MPI" 30 with openmpi "mpirun -n 2 -H host0,host1 $show"
says "Open MPI passes nothing on to another host" '^node01( pvrdma)?$' '^node02$'
run_as ok "variables by Open MPI with -x" 30 with openmpi "mpirun -n 2 -H host0,host1 -x NCCL_NET $show"
says "Open MPI passes on what -x names" '^node01 pvrdma$' '^node02 pvrdma$'

# Ranks come late, have other options, or are killed.
for mpi in openmpi mpich; do
    list=-H master=
    [[ $mpi = openmpi ]] || list=-hosts master='--master host0'
    rank='${OMPI_COMM_WORLD_RANK:-$PMI_RANK}'
    run_as ok "a rank that starts 4 s late, $mpi" 60 with $mpi \
        "mpirun -n 2 $list host0,host1 sh -c 'sleep \$(($rank * 4)); exec pvn-perf ring --sizes 1M --check $master'"
    says "a rank that starts 4 s late, $mpi: they meet" '^all data verified$'
    run_as fails "a rank with other options, $mpi" 60 with $mpi \
        "mpirun -n 2 $list host0,host1 sh -c 'exec pvn-perf ring --sizes \$(($rank + 1))M $master'"
    says "a rank with other options, $mpi: it is named" 'rank 1 on node02 .*was refused: it has other options than rank 0'
    with $mpi "mpirun -n 2 $list host0,host1 pvn-perf ring --time 60 --sizes 1M $master" >killed 2>&1 &
    job=$!
    for ((i = 0; i < 100; i++)); do
        data_flow 2 && break
        sleep 0.1
    done
    # The copies of stat read both hosts while the job runs.
    run_as ok "pvn-topo stat by $mpi" 30 with $mpi "${master:+MASTER_ADDR=host0 }mpirun -n 2 $list host0,host1 pvn-topo stat"
    says "pvn-topo stat by $mpi: both ranks" '2 processes on 2 hosts' 'rank 0, pvn-perf .* on node01: alive' 'rank 1, pvn-perf .* on node02: alive'
    if [[ $mpi = openmpi ]]; then
        run_as ok "pvn-topo --hosts over ssh" 30 by_user 1 pvn-topo --hosts 'node[01-02]' stat
        says "pvn-topo --hosts over ssh: both ranks" '2 processes on 2 hosts' 'rank 0, pvn-perf .* on node01: alive' 'rank 1, pvn-perf .* on node02: alive'
    fi
    on 2 pkill -9 -x pvn-perf
    wait $job
    rc=$?
    cp killed "$out"
    [[ $rc != 0 && $rc != 124 ]]
    holds "a rank that is killed ends the job, $mpi" $?
    # The statistics that it leaves must not count in the next job.
    for n in 1 2; do
        by_user $n pvn-topo --clean stat >/dev/null 2>&1
    done
done

run_as fails "mpirun of MPICH without --master" 30 with mpich "mpirun -n 2 -hosts host0,host1 pvn-perf ring --sizes 1M"
says "MPICH without --master: what to add" 'PMI does not give the host of rank 0 of 2.*: add --master node01, or set MASTER_ADDR=node01 for all ranks'

# The hosts have different settings.
on 2 ip link set eth0 mtu 1400
while IFS=$'\t' read -r place line; do
    case $line in *--hosts\ *node*check* | *check\ --hosts*) ;; *) continue ;; esac
    line=${line/-16/-03}
    run_as fails "$place: $line" 60 by_user 1 bash -c "$line"
    says "$place: it names the host with another MTU" 'node02.*1400|1400.*node02'
done < <(launch_lines pvn-topo)
exit 0

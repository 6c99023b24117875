#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The launch lines of the pages under PyTorch's torchrun, if python3 has it, between two namespaces that act as
# hosts. The line of pvn-perf(1) runs as it is printed: a ring of two ranks on each host, with every sum verified.
# Then a c10d job over gloo checks that its ranks have the variables and load the plugin.
# run-all limit: 400
set -u
build=$PVN_BUILDDIR src=$PVN_SRCDIR
skip() {
    echo "skip launchers, torchrun: $1"
    exit 0
}
torch=$(python3 -c 'import sys, torch.distributed; print(sys.executable)' 2>/dev/null) || skip "python3 has no PyTorch"
[ "$(id -u)" = 0 ] && unshare --mount --net --uts true 2>/dev/null || skip "no namespaces here"

work=$(mktemp -d)
ns=(pvntr$$a pvntr$$b)
gone() {
    ip netns del "${ns[0]}" 2>/dev/null
    ip netns del "${ns[1]}" 2>/dev/null
    rm -rf "$work"
}
trap gone EXIT
mkdir "$work/bin"
ln -s "$build/pvn-perf" "$work/bin/pvn-perf"
printf '#!/bin/sh\nexec %s -m torch.distributed.run "$@"\n' "$torch" >"$work/bin/torchrun"
chmod 755 "$work/bin/torchrun"
printf '127.0.0.1 localhost\n10.99.0.1 host0\n10.99.0.2 host1\n' >"$work/hosts"
for n in 0 1; do ip netns add "${ns[n]}" && ip -n "${ns[n]}" link set lo up || exit 1; done
ip link add eth0 netns "${ns[0]}" type veth peer name eth0 netns "${ns[1]}" || exit 1
for n in 0 1; do
    ip -n "${ns[n]}" addr add 10.99.0.$((n + 1))/24 dev eth0 && ip -n "${ns[n]}" link set eth0 up || exit 1
done

# on N LINE: runs LINE on host N with its output in out.N
on() {
    ip netns exec "${ns[$1]}" unshare --mount --uts bash -c 'hostname "host$1" && mount --bind "$2/hosts" /etc/hosts && eval "$3"' - "$1" "$work" "$2" \
        >"$work/out.$1" 2>&1
}
# job NAME LINE: runs LINE on both hosts as a reader types it, on one a little later
job() {
    local rc
    { sleep 1; on 1 "$2"; } &
    on 0 "$2"
    rc=$?
    wait $! || rc=$?
    [ "$rc" = 0 ] && echo "ok launchers, torchrun: $1" && return
    echo "not ok launchers, torchrun: $1: status $rc"
    tail -n 20 "$work/out.0" "$work/out.1" | sed 's/^/  /'
}
# says NAME COUNT PATTERN: expects PATTERN in COUNT lines of both hosts
says() {
    local n
    n=$(cat "$work/out.0" "$work/out.1" | grep -cE "$3")
    [ "$n" = "$2" ] && echo "ok launchers, torchrun: $1" && return
    echo "not ok launchers, torchrun: $1: $n lines with $3, not $2"
    tail -n 20 "$work/out.0" "$work/out.1" | sed 's/^/  /'
}

export PATH=$work/bin:$PATH OMP_NUM_THREADS=1 NCCL_PVRDMA_STATS_DIR=$work
line=$(PYTHONPATH=$src/tests/docs python3 "$src/tests/launch/lines.py" torchrun | cut -f 2 | grep 'pvn-perf p2p$')
line=${line//\\/} # of a line that goes on in the next one
[ -n "$line" ] || { echo "not ok launchers, torchrun: the pages have no line for pvn-perf"; exit 1; }
job "$line" "timeout 100 $line --sizes 8,1M --iters 100 --check"
says "rank 0 prints the results" 1 '^all data verified$'
ring=${line/nproc_per_node 1/nproc_per_node 2}
job "two ranks on each host" "timeout 100 ${ring%p2p} ring --sizes 1M --check"
says "four ranks on two hosts" 4 '^ +rank [0-3] +on host[01]: '
says "every sum is right" 1 '^all data verified$'
cat >"$work/train.py" <<'END'
import ctypes
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
plugin = ctypes.CDLL(os.environ["PLUGIN"])
assert hasattr(plugin, "ncclNetPlugin_v11")
t = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(t)
print("rank %d: sum %d, NCCL_NET_PLUGIN=%s" % (dist.get_rank(), t[0], os.environ["NCCL_NET_PLUGIN"]), flush=True)
dist.destroy_process_group()
END
export NCCL_NET_PLUGIN=pvrdma PLUGIN=$build/.libs/libnccl-net-pvrdma.so GLOO_SOCKET_IFNAME=eth0
job "a c10d job over gloo" "timeout 100 ${ring%--no_python*} $work/train.py"
says "its ranks have the variables and load the plugin" 4 '^rank [0-3]: sum 10, NCCL_NET_PLUGIN=pvrdma$'

#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 900
# Runs the two commands of README.md beside this file as on a machine that has nothing of ours. It is a minimal
# Debian (debootstrap, with python3 added) without autotools, libnl, libibverbs, ip and gawk, on a read-only root.
# The user is not root and has a read-only home. The bundle belongs to another user and has lost its execute bits.
# The only network is loopback. CUDA's driver, its MPS, nvidia-smi and NCCL are doubles, in the places where such
# machines have them: under /usr/local/nvidia and in the packages of a virtual environment, beside a PyTorch that
# cannot be imported.
# The release's tree is in ${XDG_CACHE_HOME:-~/.cache}/nccl-net-pvrdma/minimal-CODENAME (some 260 MB; it may be
# removed at any time). PVN_REHEARSAL names other releases than this machine's own. Their C library must not be
# older.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libs=$PVN_BUILDDIR/tests/support/.libs

skip() {
    echo "skip rehearsal: $1"
    exit 0
}
check() { # check NAME FILE PATTERN...: every pattern has a line in the file
    local name=$1 file=$2 p
    shift 2
    for p in "$@"; do
        if ! grep -qE -- "$p" "$file"; then
            echo "not ok $name: no line matches $p"
            awk '{ print "    " $0 }' "$file"
            return
        fi
    done
    echo "ok $name"
}

[[ $(id -u) == 0 ]] || skip "making a root directory for it needs root"
command -v debootstrap >/dev/null || skip "no debootstrap"
command -v apt-get >/dev/null || skip "no apt"
unshare -mnp --fork true 2>/dev/null || skip "no namespaces here"
own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == $2 && ($1 == "Debian" || $1 == "Ubuntu") { print $3; exit }')

# make_tree CODENAME: sets $tree, or sets $why to the reason
make_tree() {
    tree=${XDG_CACHE_HOME:-$HOME/.cache}/nccl-net-pvrdma/minimal-$1
    mkdir -p "${tree%/*}"
    exec 9>"$tree.lock"
    flock -w 300 9 || { why="another run uses $tree"; return 1; }
    [[ ! -e $tree/.complete ]] || return 0
    [[ -n $1 && -n $mirror ]] || { why="apt names no mirror of Debian or Ubuntu"; return 1; }
    timeout 30 /usr/lib/apt/apt-helper -q download-file "${mirror%/}/dists/$1/Release" "$work/release" >/dev/null 2>&1 ||
        { why="the mirror of this machine's apt has no $1, or cannot be reached"; return 1; }
    rm -rf "$tree"
    timeout -k 10 500 debootstrap --variant=minbase --include=python3 "$1" "$tree" "$mirror" >"$work/log" 2>&1 ||
        { why="debootstrap $1 did not succeed: $(grep -E '^E:|rror' "$work/log" | tail -n 1)"; return 1; }
    chroot "$tree" apt-get clean
    mkdir -p "$tree/rehearsal"
    touch "$tree/.complete"
}

# ---- such a machine's files: $work/machine, visible as /rehearsal ----
make_machine() {
    local m=$work/machine site
    mkdir -p "$m/nvidia" "$m/bin" "$m/home" "$m/sys/bus/pci/devices" "$m/sys/kernel" "$m/sys/class" "$m/sys/devices/virtual"
    "$PVN_SRCDIR/tests/gpu/bundle" "$PVN_BUILDDIR" "$m/bundle" >"$work/out" 2>&1 || { cat "$work/out"; return 1; }
    chmod -R a-x,a+rX,go-w "$m/bundle"
    chmod a-x "$m/bundle"/{bin,gpu}/*
    du -sm "$m/bundle" >"$work/size"
    cp -L "$libs/libcuda.so.1" "$m/nvidia/"
    # A virtual environment as PyTorch's images have.
    site=$m/venv/lib/python$1/site-packages
    mkdir -p "$m/venv/bin" "$site/nvidia/nccl/lib" "$site/torch"
    ln -s /usr/bin/python3 "$m/venv/bin/python3"
    echo 'home = /usr/bin' >"$m/venv/pyvenv.cfg"
    cp -L "$libs/libfakenccl.so" "$site/nvidia/nccl/lib/libnccl.so.2"
    echo 'raise ImportError("libtorch_cuda.so: this one is for show")' >"$site/torch/__init__.py"
    printf '__version__ = "2.11.0+cu130"\ncuda = "13.0"\n' >"$site/torch/version.py"
    # The GPU that nvidia-smi reports, for pvn-topo to find
    local gpu=$m/sys/devices/pci0000:00/0000:15:00.0
    mkdir -p "$gpu"
    echo 0x030200 >"$gpu/class"
    echo 0x10de >"$gpu/vendor"
    echo 0x2330 >"$gpu/device"
    echo 0 >"$gpu/numa_node"
    ln -s ../../../devices/pci0000:00/0000:15:00.0 "$m/sys/bus/pci/devices/"
    cat >"$m/bin/nvidia-smi" <<'SMI'
#!/bin/sh
case "$*" in
"topo -m") printf '\tGPU0\tCPU Affinity\nGPU0\t X \t0-1\n\nLegend:\n' ;;
*compute_mode*) echo "Doubled GPU, 580.0, 00000000:15:00.0, 81559 MiB, Default" ;;
*pci.bus_id*) echo 00000000:15:00.0 ;;
esac
SMI
    cat >"$m/bin/nvidia-cuda-mps-control" <<'MPS'
#!/bin/sh
if [ "${1:-}" = -d ]; then
    [ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] && echo start >>/tmp/mps-calls
else
    read -r word && [ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && echo "$word" >>/tmp/mps-calls
fi
MPS
    chmod 755 "$m/bin"/*
    chmod 555 "$m/home"
}

# in_tree COMMAND: runs COMMAND with its output in $work/out. Its /tmp is $work/tmp.
in_tree() {
    mkdir -p "$work/tmp"
    chmod 1777 "$work/tmp"
    unshare -mnp --fork --kill-child --propagation private bash -c '
        ip link set lo up &&
            mount --rbind "$0" "$0" && mount --bind "$1/machine" "$0/rehearsal" && mount -o remount,bind,ro "$0/rehearsal" &&
            mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/dev/shm" -o mode=1777 && mount --bind "$1/tmp" "$0/tmp" &&
            mount -t proc proc "$0/proc" && mount --bind "$1/machine/sys" "$0/sys" && mount -t sysfs -o ro sysfs "$0/mnt" || exit 90
        for dir in kernel class devices/virtual; do mount --bind "$0/mnt/$dir" "$0/sys/$dir" || exit 90; done
        umount "$0/mnt" && mount -o remount,bind,ro "$0" || exit 90
        chroot --userspec=12345:12345 "$0" /usr/bin/env -i HOME=/rehearsal/home LD_LIBRARY_PATH=/rehearsal/nvidia \
            PATH=/rehearsal/venv/bin:/rehearsal/bin:/usr/bin:/bin FAKECUDA_APP=1 FAKENCCL_TOPO=/tmp/topo.xml \
            PVN_GPU_CHECK_SIZES=8,1000004 PVN_GPU_BENCH_SIZES=8,1m PVN_GPU_THREAD_SIZES=1m PVN_GPU_PERF_SIZES=64K,1M \
            bash -c "$2"
        rc=$?
        ls "$0/dev/shm" >"$1/shm"
        exit $rc' "$tree" "$work" "$1" >"$work/out" 2>&1 </dev/null
    echo "status $?" >>"$work/out"
}

rehearse() {
    local release=$1 version
    version=$(chroot "$tree" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    rm -rf "$work/machine" "$work/tmp"
    make_machine "$version" || { echo "not ok bundle"; return; }
    [[ $(cut -f1 "$work/size") -lt 60 ]] || echo "not ok bundle_is_small: $(cat "$work/size")"

    in_tree 'touch /rehearsal/home/x /x; command -v make autoconf ip gawk gcc nvcc; ls /usr/lib/*/libnl* /usr/lib/*/libibverbs*
        cp -R /rehearsal/bundle/bin /tmp/tool && chmod -R u+x /tmp/tool && export LD_LIBRARY_PATH=/rehearsal/bundle/toollib &&
        /tmp/tool/pvn-topo dump --nccl --xml >/tmp/topo.xml; rm -rf /tmp/tool; id -u; test -x /rehearsal/bundle/bin/nccl_check || echo bits lost'
    check "$release: the machine is bare" "$work/out" '/rehearsal/home/x.*Read-only' "/x.*Read-only" 'libnl.*No such file' \
        'libibverbs.*No such file' '^12345$' '^bits lost$' '^status 0'
    ! grep -E '/(make|autoconf|ip|gawk|gcc|nvcc)$' "$work/out" || echo "not ok $release: the machine is bare"

    in_tree 'bash /rehearsal/bundle/gpu/run --seconds 300 --mps no --parts ahibklm /tmp/log-1'
    check "$release: the first command" "$work/out" '^status 0' '^a .*PASS.*NCCL 2[.]28[.]9 uses pvrdma, interface v12' \
        '^b .*PASS.*tcp/4: 40 .*softverbs/4: 40 .*dmabuf/4: 40 GDRDMA peermem/2: 40 GDRDMA' '^h .*PASS.*00:15:00[.]0 found' \
        '^k .*PASS.*memory gpu' '^l .*PASS.*late: exact after .*lost-dmabuf: exact after a failover' \
        '^m .*PASS.*exact over RDMA again, awake and asleep: imm record peermem nccl nccl-imm' '^CONTEXT on a thread without one: ' \
        '^LOST imm awake exact.* rdma on .*imm mode' '^LOST record receiver-sleeps exact.*record mode' '^LOST peermem sender-sleeps exact' \
        '^LOST nccl exact, [1-9]' '^RELAXED imm [1-9]' '^i .*PASS.*hostalloc 4 kB (no )?huge, collapse' '^PyTorch 2[.]11[.]0[+]cu130 CUDA 13[.]0$' \
        '^NCCL library /rehearsal/venv/.*/nvidia/nccl/lib/libnccl.so.2 NCCL version 2[.]28[.]9[+]double' '^Doubled GPU.*Default$' \
        '^no ip -br link' '^ranks on one GPU by: time slices'
    in_tree 'bash /rehearsal/bundle/gpu/run --seconds 300 --parts cdejgf /tmp/log-2'
    check "$release: the second command" "$work/out" '^status 0' '^c .*SKIP.*PyTorch is not installed .*for show' '^d .*SKIP' \
        '^e .*SKIP' '^j .*PASS.*plugin .* GB/s with [0-8] threads, sockets' '^g .*PASS.*sockets time / plugin time' '^f .*PASS.*errors after' \
        '^ranks on one GPU by: MPS'
    paste -sd' ' "$work/tmp/mps-calls" >"$work/out"
    check "$release: MPS is started once and ended" "$work/out" '^start quit$'

    # These are errors: a missing command, a write where none is possible, and anything left behind.
    grep -rhE 'command not found|syntax error|Permission denied|Read-only file|cannot open shared|version .GLIBC' \
        "$work/tmp/log-1" "$work/tmp/log-2" | grep -v 'libnccl-net-none.so' | sort | uniq -c >"$work/out"
    find "$work/tmp" -mindepth 1 -maxdepth 1 ! -name 'log-[12]' ! -name mps-calls ! -name topo.xml >>"$work/out"
    # The plugin keeps the statistics of killed processes until pvn-topo stat --clean.
    grep -v '^nccl-net-pvrdma-12345$' "$work/shm" >>"$work/out"
    tar -tzf "$work/tmp/log-1/logs.tar.gz" | grep -qx ./summary.txt || echo "no summary in the archive" >>"$work/out"
    echo end >>"$work/out"
    paste -sd'|' "$work/out" >"$work/left"
    check "$release: nothing was missing, nothing is left" "$work/left" '^end$'
}

for release in ${PVN_REHEARSAL:-$own}; do
    if make_tree "$release"; then
        rehearse "$release"
    else
        echo "skip $release: $why"
    fi
done

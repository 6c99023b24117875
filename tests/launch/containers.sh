#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Real containers under launch lines of the pages. podman from Debian builds the image of plugin/packaging/container
# by the command that the page prints, over a base made of this machine's own packages. Two containers, each with a
# network of its own, act as two hosts. Then each restriction that clusters put on a container is tried by itself,
# with the losses that pvn-perf and pvn-topo report. Nothing comes from a registry.
# run-all limit: 600
set -u
launch_folder=launchers-containers
launch_packages=(podman crun)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
needed=(ibverbs-providers libibverbs1 libnl-3-200 libnl-route-3-200 libpci3 pci.ids)

# Fetches the base, and an archive of packages in it, from which the Dockerfile's apt-get takes those that the base
# lacks.
launch_fetch_more() {
    local base=$1/base deb
    python3 -B "$launch_here/base.py" "$base" && mkdir -p "$base/archive" "$1/image/partial" || return 1
    timeout 120 apt-get -q -o Debug::NoLocking=1 -o Dir::Cache::archives="$1/image" -o APT::Sandbox::User="$(id -un)" \
        -o Dir::State::status="$base/var/lib/dpkg/status" -o APT::Keep-Downloaded-Packages=1 \
        install -y -d --no-install-recommends "${needed[@]}" || return 1
    cp "$1"/image/*.deb "$base/archive/" || return 1
    (
        cd "$base/archive" || exit 1
        for deb in *.deb; do
            dpkg-deb -f "$deb" || exit 1
            printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum <"$deb" | cut -d ' ' -f 1)"
        done
    ) >"$base/archive/Packages" || return 1
    rm -r "$1/image"
    echo 'deb [trusted=yes] file:///archive ./' >"$base/etc/apt/sources.list"
    # launch_world finds by this file that everything was fetched, even if the machine has a podman of its own.
    printf '#!/bin/sh\n' >"$1/root/usr/bin/base-of-image"
    chmod 755 "$1/root/usr/bin/base-of-image"
}

launch_etc() {
    local files processes
    files=$(ulimit -Hn) processes=$(ulimit -Hu)
    processes=${processes/unlimited/-1}
    mkdir -p "$1/containers" || return 1
    # Podman 5 would raise these limits, which root may not do everywhere.
    cat >"$1/containers/containers.conf" <<END
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
log_driver = "k8s-file"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
END
    cat >"$1/containers/storage.conf" <<END
[storage]
driver = "overlay"
graphroot = "$PVN_LAUNCH_WORK/images"
runroot = "/run/storage"
END
    echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$1/containers/policy.json"
}

# here COMMAND...: runs a command of the world itself, for run_as
here() { timeout -k 5 "${launch_limit:-120}" "$@"; }

launch_world podman crun conmon python3 base-of-image
export BUILDAH_ISOLATION=chroot
podman() { here podman "$@"; }

# crun refuses a machine with both kinds of control groups. No container here is in one.
mount -t tmpfs none /run && mount -t sysfs none /sys && mount -t cgroup2 none /sys/fs/cgroup && mkdir /run/netns empty || exit 1
# A release's tools have these libraries linked in. Those of the build tree do not.
mkdir -p libraries/usr/lib
ldd /usr/bin/pvn-perf /usr/bin/pvn-topo | awk '$2 == "=>" && $1 !~ /^lib(c|m|dl|rt|pthread)\.so/ { print $3 }' | sort -u | xargs cp -Lt libraries/usr/lib
mapfile -t linked < <(cd libraries && ls -d usr/lib/*)
tar -c -C "$launch_cache/base" . -C /mnt/libraries "${linked[@]}" | podman import - docker.io/library/debian:12-slim >"$out" 2>&1 &&
    podman run --rm --network none docker.io/library/debian:12-slim true >>"$out" 2>&1 ||
    launch_skip "podman runs no container here: $(tail -n 1 "$out")"

# The files of a release's folder that the Dockerfile needs
page=$PVN_SRCDIR/plugin/packaging
version=$(sed -n 's/^ARG VERSION=//p' "$page/container/Dockerfile")
release=nccl-net-pvrdma-$version-linux-x86_64
mkdir -p /tmp/release "$release"/{lib,bin,share/nccl-net-pvrdma/container}
cp /usr/bin/pvn-perf /usr/bin/pvn-topo "$release/bin/"
cp /usr/lib/libnccl-net-pvrdma.so "$release/lib/"
cp "$page"/container/* "$release/share/nccl-net-pvrdma/container/"
tar -cJf "/tmp/release/$release.tar.xz" "$release"
rm -r "$release"
image=nccl-net-pvrdma:$version

lines=0
while read -r line; do
    lines=$((lines + 1))
    run_as ok "packaging/README.md: $line" 120 here sh -c "cd $PVN_SRCDIR && ${line/#docker/podman} --network host"
done < <(sed -n 's/^    \(docker build .*\)/\1/p' "$page/README.md")
[[ $lines = 1 ]]
holds "the page has one line that builds the image" $?

# Makes two networks with a link between them. A container in each acts as a host.
join() {
    ip netns add net1 && ip netns add net2 && ip link add eth0 netns net1 type veth peer name eth0 netns net2 || return 1
    for n in 1 2; do
        ip -n net$n addr add 10.88.0.$n/24 dev eth0 && ip -n net$n link set lo up && ip -n net$n link set eth0 up || return 1
    done
    for ((n = 0; n < 200; n++)); do
        ip -n net1 link show eth0 | grep -q 'state UP' && ip -n net2 link show eth0 | grep -q 'state UP' && return 0
        sleep 0.05
    done
    return 1
}
join >"$out" 2>&1
holds "a link between two networks" $?

# in_box N OPTIONS... -- COMMAND...: runs COMMAND in a container in network N
in_box() {
    local n=$1 opts=()
    shift
    while [[ $1 != -- ]]; do
        opts+=("$1")
        shift
    done
    shift
    podman run --rm --network "ns:/run/netns/net$n" --hostname "host$n" "${opts[@]}" "$image" "$@"
}

# ring OPTIONS...: runs a ring between two containers, with these options for rank 0's. Returns 0 if both ranks end
# well.
ring() {
    local rank1 rc ranks=(-e WORLD_SIZE=2 -e MASTER_ADDR=10.88.0.1) ring=(pvn-perf ring --sizes 1M --iters 2 --check --boot-timeout 60)
    in_box 2 "${ranks[@]}" -e RANK=1 -- "${ring[@]}" >rank1.out 2>&1 &
    rank1=$!
    in_box 1 "$@" "${ranks[@]}" -e RANK=0 -- "${ring[@]}"
    rc=$?
    wait $rank1 || rc=1
    cat rank1.out
    return $rc
}

# restricted NAME PATTERN OPTIONS...: expects a ring to work with these options of podman, and rank 0 to print
# PATTERN
restricted() {
    local name=$1 pattern=$2
    shift 2
    run_as ok "$name: a ring" 90 ring "$@"
    says "$name: the ring is whole" '^all data verified$' "$pattern"
}

run_as ok "the image's plugin" 60 in_box 1 -- pvn-topo --all check
says "the image's plugin is found by pvn-topo check" '^OK +plugin +/opt/nccl-net-pvrdma/lib/libnccl-net-pvrdma.so'
kept='statistics for pvn-topo stat: /dev/shm/nccl-net-pvrdma-'
restricted "no restriction" "$kept"
none='statistics.* No space left on device'
restricted "a small /dev/shm" "$none" --shm-size 4k
mkdir full && mount -t tmpfs -o size=256k none full && ! cat /dev/zero >full/fill 2>"$out" && grep -q 'No space' "$out"
holds "a folder is full" $?
restricted "a full /dev/shm" "$none" -v /mnt/full:/dev/shm
restricted "a /dev/shm that is read only" 'statistics.* Read-only file system' -v /mnt/empty:/dev/shm:ro
# Podman 5 makes /dev/shm read only as well.
unless_shm="$kept|statistics.* Read-only file system"
restricted "a root that is read only" "$unless_shm" --read-only --read-only-tmpfs=false
restricted "a user without privileges" "${kept}65499/" --user 65499:65499
restricted "no capabilities" "$kept" --cap-drop all
few=(--ulimit memlock=65536:65536 --ulimit nofile=1024:1024 --ulimit nproc=4096:4096)
restricted "64 KiB of locked memory" "$kept" "${few[@]}"
run_as ok "64 KiB of locked memory: check" 60 in_box 1 "${few[@]}" -- pvn-topo --all check
says "64 KiB of locked memory: check says so" '^OK +memlock +process: limited to 64 KiB'

# The default seccomp profile forbids io_uring, by which pvn-perf pins memory if there is no GPU.
run_as ok "no container" 60 here pvn-perf ring --ranks 2 --sizes 1M --iters 2
if grep -q io_uring_setup "$out"; then
    echo "# io_uring is not to be had outside of a container either"
    restricted "the default seccomp profile" 'memory cannot be pinned.*io_uring_setup'
else
    restricted "the default seccomp profile" 'memory cannot be pinned.*io_uring_setup'
    restricted "no seccomp profile" "$kept" --security-opt seccomp=unconfined
    # ulimit -l may still refuse the memory itself.
    ! grep -q io_uring_setup "$out"
    holds "no seccomp profile: io_uring is to be had" $?
fi

# All restrictions of a DaemonSet's container are combined. The image's own command keeps its readiness file there.
daemon=(--read-only --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges --tmpfs /status -e TMPDIR=/status)
restricted "all restrictions of the DaemonSet" "$unless_shm" "${daemon[@]}"
run_as ok "check.sh with all restrictions of the DaemonSet" 60 in_box 1 "${daemon[@]}" -- sh -c '
    "$(dirname "$NCCL_NET_PLUGIN")/../share/nccl-net-pvrdma/container/check.sh" /status &
    for i in $(seq 200); do [ -e /status/ready ] && break; sleep 0.1; done
    kill $!; wait $!; [ $i != 200 ]'
says "check.sh with all restrictions of the DaemonSet: it finds nothing that fails" '^0 failed'
mkdir lib
run_as ok "install.sh" 60 in_box 1 --read-only -v /mnt/lib:/host/lib -- \
    "/opt/nccl-net-pvrdma/share/nccl-net-pvrdma/container/install.sh" /host/lib
cmp -s lib/libnccl-net-pvrdma.so /usr/lib/libnccl-net-pvrdma.so
holds "install.sh puts the library on the node" $?

# The container of a rank ends. The other rank reports it and ends.
in_box 2 -e WORLD_SIZE=2 -e MASTER_ADDR=10.88.0.1 -e RANK=1 --name gone -- pvn-perf ring --time 100 --sizes 1M >rank1.out 2>&1 &
(
    for ((i = 0; i < 300; i++)); do
        podman exec gone pvn-topo stat 2>/dev/null | grep -qE 'send +tcp .* MiB ' && break
        sleep 0.1
    done
    podman kill -s KILL gone
) >killed 2>&1 &
killer=$!
run_as fails "a container that is killed" 110 in_box 1 -e WORLD_SIZE=2 -e MASTER_ADDR=10.88.0.1 -e RANK=0 -- pvn-perf ring --time 100 --sizes 1M
says "a container that is killed: the other names its host" 'rank 1|host2'
wait $killer
holds "a container that is killed: it was" $?
wait
exit 0

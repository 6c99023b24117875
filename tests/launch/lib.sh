# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the tests of launchers; sourced, not run. It makes a world of its own: mount, network, process, host name
# and IPC namespaces. Further namespaces in it act as hosts. Each host has a name, an address, processes, and a /run,
# /tmp and /dev/shm that the others do not see. It has the tools of the build tree as if they were installed.
# Debian's packages are those of the machine. Missing ones are fetched by apt once, and unpacked below the build
# directory (17 MB to fetch, 78 MB unpacked, 7 s). They are laid over /usr in that world alone. So nothing is
# installed, and no daemon of the machine starts, now or at the next boot.
#
#   launch_world PROGRAM...  goes on inside such a world if these programs can be had there, or ends the script with a skip.
#                            Outside, it waits, reports anything that was left behind, and ends the script
#   launch_host N            starts host N: node01 and so on, 10.88.0.N. The first two are also called host0, node0, vm0 and so on
#   on N COMMAND...          runs COMMAND on host N as root
#   by_user N COMMAND...     runs COMMAND on host N as a user without privileges
#   launch_lines WORD        prints the lines of the pages that begin with WORD: PLACE, tab, line
#   run_as ok|fails NAME SECONDS on|by_user N COMMAND...   prints ok, or not ok with the command's output, which is in $out
#   data_flow N              true if a rank on host N sends
#   says NAME PATTERN...     prints ok if $out has a line for each extended regular expression
#   holds NAME STATUS        prints ok if the status is 0, otherwise not ok with $out

launch_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PVN_SRCDIR=${PVN_SRCDIR:-$(cd "$launch_here/../.." && pwd)}
PVN_BUILDDIR=$(cd "${PVN_BUILDDIR:-$PWD}" && pwd)
export PVN_SRCDIR PVN_BUILDDIR
# A script that needs other packages names them, and the folder that keeps them, before it sources this file.
launch_cache=$PVN_BUILDDIR/${launch_folder:-launchers}
[[ -v launch_packages ]] || launch_packages=(slurmctld slurmd slurm-client munge openmpi-bin mpich openssh-server openssh-client)
launch_name=$(basename "$0" .sh)
out=/mnt/out
declare -A launch_pid=()

launch_skip() {
    echo "skip launchers, $launch_name: $1"
    exit 0
}

# Lists processes, mounts and files of a world that has ended.
launch_left() {
    grep -lzF "PVN_LAUNCH_WORK=$1" /proc/[0-9]*/environ 2>/dev/null
    grep -F "$1" /proc/mounts
    find "$1" -mindepth 1
    return 0
}

# Fetches and unpacks the packages that this machine lacks, with their dependencies.
launch_fetch() {
    local new=$launch_cache.new deb
    [[ ! -e $launch_cache/complete ]] || return 0
    command -v apt-get >/dev/null || return 1
    mkdir -p "$new/debs/partial" "$new/root/usr/"{bin,sbin,lib}
    ln -sfn usr/bin "$new/root/bin" && ln -sfn usr/sbin "$new/root/sbin" && ln -sfn usr/lib "$new/root/lib"
    timeout 120 apt-get -q -o Debug::NoLocking=1 -o Dir::Cache::archives="$new/debs" -o APT::Sandbox::User="$(id -un)" \
        -o APT::Keep-Downloaded-Packages=1 install -y -d --no-install-recommends "${launch_packages[@]}" || return 1
    for deb in "$new"/debs/*.deb; do
        [[ -e $deb ]] || continue
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$new/root" || return 1
    done
    launch_fetch_more "$new" || return 1
    rm -rf "$new/debs" "$launch_cache"
    touch "$new/complete"
    mv "$new" "$launch_cache"
}

# launch_fetch_more FOLDER: a script that needs more files redefines this to fetch them into FOLDER.
launch_fetch_more() { :; }

launch_outside() {
    local left rc program
    [[ $(id -u) = 0 ]] || launch_skip "it needs root"
    unshare --mount --net --pid --uts --ipc --fork true 2>/dev/null || launch_skip "no namespaces here"
    unshare --mount mount -t overlay none -o lowerdir=/usr/bin:/usr/lib /mnt 2>/dev/null || launch_skip "no overlay file system here"
    (
        flock 9
        launch_fetch
    ) 9>"$launch_cache.lock" >"$launch_cache.log" 2>&1
    PVN_LAUNCH_WORK=$(mktemp -d)
    for program; do
        [[ -x $launch_cache/root/usr/bin/$program || -x $launch_cache/root/usr/sbin/$program ]] || command -v "$program" >/dev/null ||
            { rmdir "$PVN_LAUNCH_WORK"; launch_skip "no $program, and apt-get does not have it: $(grep -m 1 -E '^E:' "$launch_cache.log")"; }
    done
    # All processes in the world end with its first process, which ends with this one.
    trap 'kill -9 "$launch_world" 2>/dev/null; wait; rm -rf "$PVN_LAUNCH_WORK"' EXIT
    trap 'exit 143' TERM INT HUP
    PVN_LAUNCH_WORK=$PVN_LAUNCH_WORK unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc --propagation private \
        "$BASH" "$0" </dev/null &
    launch_world=$!
    wait "$launch_world"
    rc=$?
    left=$(launch_left "$PVN_LAUNCH_WORK")
    echo "$left" >"$PVN_LAUNCH_WORK/left"
    out=$PVN_LAUNCH_WORK/left
    [[ -z $left ]]
    holds "nothing is left behind" $?
    exit $rc
}

# Makes the first mounts of the world: Debian's programs and ours in /usr, users and hosts in /etc.
launch_inside() {
    local over=$PVN_LAUNCH_WORK n user multiarch
    multiarch=$(basename "$(dirname "$(find "$launch_cache/root/usr/lib" /usr/lib -maxdepth 2 -name libpmix.so.2 | head -n 1)")")
    mkdir -p "$over"/{usr/bin,usr/sbin,"usr/lib/$multiarch/pmix2/lib",etc/slurm,etc/munge,etc/ssh}
    # Ours are placed as an installation places them. Core dumps of killed ranks are of no use.
    install -t "$over/usr/bin" "$PVN_BUILDDIR/pvn-perf" "$PVN_BUILDDIR/topo/pvn-topo" || return 1
    install -t "$over/usr/lib" "$PVN_BUILDDIR/.libs/libnccl-net-pvrdma.so" || return 1
    ulimit -c 0
    cp /etc/passwd "$over/etc/passwd"
    echo "trainer:x:65499:65534::/mnt:/bin/bash" >>"$over/etc/passwd"
    for user in sshd munge slurm; do
        grep -q "^$user:" "$over/etc/passwd" || echo "$user:x:65500:65534::/nonexistent:/usr/sbin/nologin" >>"$over/etc/passwd"
    done
    {
        echo "127.0.0.1 localhost"
        for ((n = 1; n <= 16; n++)); do
            printf '10.88.0.%d node%02d' $n $n
            ((n > 2)) || printf ' host%d node%d vm%d' $((n - 1)) $((n - 1)) $((n - 1))
            echo
        done
    } >"$over/etc/hosts"
    chmod 700 "$over/etc/munge"
    dd if=/dev/urandom of="$over/etc/munge/munge.key" bs=128 count=1 status=none
    chmod 400 "$over/etc/munge/munge.key"
    # The files are written before the layers are joined, because later changes of a lower layer are undefined.
    launch_etc "$over/etc" || return 1
    # Links that the packages' set-up scripts would make (daemons of Slurm 24.11 know themselves by these names), and
    # libpmix.so, which Debian's Slurm loads but only libpmix-dev has
    for n in slurmctld slurmd slurmstepd; do
        ln -s $n-wlm "$over/usr/sbin/$n"
    done
    ln -s libpmix.so.2 "$over/usr/lib/$multiarch/pmix2/lib/libpmix.so"
    mount -t overlay none -o "lowerdir=$over/usr:$launch_cache/root/usr:/usr" /usr &&
        mount -t overlay none -o "lowerdir=$over/etc:$launch_cache/root/etc:/etc" /etc || return 1
    mount --rbind "$PVN_SRCDIR" /mnt && mount -t tmpfs none /tmp || return 1
    if [[ $PVN_SRCDIR/ == /tmp/* ]]; then # it went out of sight just now
        mkdir -p "$PVN_SRCDIR" && mount --rbind /mnt "$PVN_SRCDIR" || return 1
    fi
    mount -t tmpfs -o mode=1777 none /mnt || return 1
    ip link set lo up
    ip link add br0 type bridge stp_state 0 forward_delay 0 && ip link set br0 up
}

# launch_etc FOLDER: a script redefines this to add its own files to /etc.
launch_etc() { :; }

launch_world() {
    if [[ -z ${PVN_LAUNCH_WORK:-} ]]; then
        trap - EXIT
        launch_outside "$@"
    fi
    # No variable of this machine's user remains, so a rank has only those that the launcher gives it.
    local name
    for name in $(compgen -e); do
        case $name in
            PVN_LAUNCH_WORK | PVN_SRCDIR | PVN_BUILDDIR) ;;
            *) unset "$name" ;;
        esac
    done
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=dumb
    mount -t tmpfs -o mode=755 none "$PVN_LAUNCH_WORK" || exit 1
    out=$PVN_LAUNCH_WORK/out
    launch_inside >"$out" 2>&1 || {
        holds "a world of its own" 1
        exit 1
    }
    out=/mnt/out
    cd /mnt || exit 1
}

# The first process of a host adopts orphans. All hosts share /mnt.
launch_init='
    mount -t tmpfs none /run && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && mount -t sysfs none /sys && mkdir -p /run/sshd /run/munge || exit 1
    for dir in /var/lib /var/log /var/spool; do mount -t tmpfs none "$dir" || exit 1; done
    hostname "$0"
    ip link set lo up
    trap : TERM
    while :; do sleep 1000; done'

launch_host() {
    local name pid i
    name=$(printf 'node%02d' "$1")
    unshare --net --uts --mount --ipc --pid --fork --kill-child --mount-proc sh -c "$launch_init" "$name" >/mnt/"$name".init 2>&1 &
    launch_pid[$1]=
    for ((i = 0; i < 200; i++)); do
        pid=$(pgrep -P $!) && [[ $(nsenter -t "$pid" --uts hostname) = "$name" ]] && break
        sleep 0.05
    done
    launch_pid[$1]=$pid
    ip link add "v$1" type veth peer name eth0 netns "$pid" && ip link set "v$1" master br0 up || return 1
    on "$1" sh -c "ip addr add 10.88.0.$1/16 dev eth0 && ip link set eth0 up"
}

on() {
    local pid=${launch_pid[$1]}
    shift
    timeout -k 5 "${launch_limit:-600}" nsenter -t "$pid" --net --uts --mount --ipc --pid -- sh -c 'cd /mnt && exec "$@"' sh "$@"
}

# Runs a command as a user without privileges, who is known on every host.
by_user() {
    local host=$1
    shift
    on "$host" env HOME=/mnt USER=trainer LOGNAME=trainer setpriv --reuid 65499 --regid 65534 --clear-groups --inh-caps=-all -- "$@"
}

# Ends a host as if its machine were gone: no process and no link is left.
launch_kill() {
    ip link set "v$1" down
    kill -9 "${launch_pid[$1]}"
}

# True if a living rank on host N has sent data, as its statistics say.
data_flow() {
    by_user "$1" pvn-topo stat 2>/dev/null |
        awk '/^rank/ { alive = / alive, / } alive && /send +tcp .* MiB / { sent = 1 } END { exit !sent }'
}

launch_lines() {
    PYTHONPATH=$PVN_SRCDIR/tests/docs python3 -B "$launch_here/lines.py" "$1"
}

holds() {
    if [[ $2 = 0 ]]; then
        echo "ok launchers, $launch_name: $1"
    else
        echo "not ok launchers, $launch_name: $1"
        sed 's/^/    /' "$out" | head -n 60
    fi
}

run_as() {
    local want=$1 name=$2 start=$EPOCHREALTIME rc
    launch_limit=$3
    shift 3
    "$@" >"$out" 2>&1 </dev/null
    rc=$?
    ((rc != 124 && rc != 137)) || echo "it was ended after $launch_limit s" >>"$out"
    launch_limit=
    echo "# $(((${EPOCHREALTIME/./} - ${start/./}) / 1000)) ms, status $rc: $name"
    case $want in
        ok) [[ $rc = 0 ]] ;;
        fails) [[ $rc != 0 && $rc != 124 && $rc != 137 ]] ;;
    esac
    holds "$name" $?
}

says() {
    local name=$1 pattern bad=0
    shift
    for pattern; do
        grep -qE -- "$pattern" "$out" || {
            echo "no line with: $pattern" >>"$out"
            bad=1
        }
    done
    holds "$name" $bad
}

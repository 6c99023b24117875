# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions that the virtual machine tests share, to be sourced. They boot guests under QEMU without KVM, without
# privileges and without a network. Unix sockets join the guests.
#
#   vm_start DEVICE [STATUS]   sets up for rxe, pvrdma or tls (no RDMA device, a newer kernel). If that is not
#                          possible it ends the script with a skip and STATUS (default 0)
#   vm_job NAME [VAR=VALUE...]   makes the directory of a job and prints its path. Its file `run` is what
#                          the guest executes: the first that exists of jobs/<device>-NAME, jobs/NAME and
#                          jobs/NAME without -a or -b. The job has BUILD (the build tree, read-only in the
#                          guest) and the given variables
#   vm_parts JOB NAME...   lets JOB run other jobs in one boot, in this order. Each has a folder of JOB, with the
#                          variables of JOB and a range of ports of its own
#   vm_boot NAME JOB [QEMU ARGUMENT...]   boots one guest in the foreground; returns the job's status
#   vm_alone JOB           boots one guest, a: two rxe devices on a veth pair with 10.77.0.1 and .2, or one
#                          PVRDMA device with 10.77.0.1, or (tls) only a veth pair. By IPv4 GID each rxe device
#                          reaches the other one, or itself if VM_V4SELF is empty
#   vm_pair JOB_A JOB_B    boots two guests, a and b, joined by VM_RAILS wires; returns 0 if both jobs did.
#                          Rail r: eth<r> with 10.77.<r>.1 and .2, MAC 52:54:00:00:0<r>:01 and :02
#   vm_results NAME JOB N  passes on the result lines that the guest wrote to JOB/results; fails if there
#                          are not N of them or the guest failed
#   vm_part_results NAME JOB/PART N STATUS   the same for a part of a job, if the guest ended with STATUS
#   vm_rdma_tests RESULTS [PART...], vm_plugin_tests TRANSPORT [PART...]   the tests in one guest, of the RDMA lane and
#                          of the plugin, and those of the plugin between two, after other parts in the same boot
#   ok, not_ok, skip       the result lines of tests/run-all
#
# Settings of a boot (shell variables): VM_SMP, VM_MEM (MiB), VM_LIMIT (seconds), VM_MTU, VM_IP,
# VM_VETH, VM_V4SELF, VM_MODS (more module groups, with commas between, such as tls,wireguard),
# VM_RAILS, VM_HOOKS (pvrdma: 0 for QEMU's device as it is), VM_SWITCH (pvrdma: below a PCIe switch,
# with a graphics card below its other port), VM_BOOT_LIMIT (seconds until a guest's first output),
# VM_COUNTED (the clock counts instructions, see boot_once). vm_boot returns 124 if the guest ran out of
# time, 127 if it stopped without a report (panic, killed). A job's directory stays for inspection:
# console, out, dmesg, status.

vm_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PVN_SRCDIR=${PVN_SRCDIR:-$(cd "$vm_here/../.." && pwd)}
PVN_BUILDDIR=${PVN_BUILDDIR:-$PWD}
PVN_VM_CACHE=${PVN_VM_CACHE:-$PVN_BUILDDIR/vm-cache}
export PVN_SRCDIR PVN_BUILDDIR PVN_VM_CACHE
vm_qemu=${PVN_VM_QEMU:-qemu-system-x86_64}
vm_tests=$PVN_BUILDDIR/tests/vm
vm_device=
vm_tsc_khz= # the host's TSC frequency
vm_sockets= # short path: a Unix socket's has at most 107 bytes

ok() {
    echo "ok $1"
}

not_ok() { # not_ok NAME [JOB...]: prints the ends of the jobs' console and output, too
    local job file folder
    echo "not ok $1"
    shift
    for job; do
        for file in console out; do
            # A part's console is that of the whole job.
            folder=$job
            [[ $file == out || -e $job/console ]] || folder=${job%/*}
            [[ -s $folder/$file ]] || continue
            echo "--- $folder/$file"
            tail -n 40 "$folder/$file"
        done
    done
    vm_failed=1
}

skip() { # skip NAME WHY
    echo "skip $1: $2"
}

vm_end() {
    local pids file
    # A guest in the background is the child of a subshell, whose end alone would leave the guest running.
    for file in "$vm_sockets"/*.pid; do
        [[ ! -s $file ]] || kill "$(<"$file")" 2>/dev/null
    done
    pids=$(jobs -p)
    # shellcheck disable=SC2086
    [[ -z $pids ]] || kill $pids 2>/dev/null
    wait
    rm -rf "$vm_sockets"
}

vm_start() {
    local why status
    vm_device=$1
    vm_failed=0
    why=$("$vm_here/setup" "$1")
    status=$?
    if ((status == 77)); then
        skip "$1" "${why##*$'\n'}"
        exit "${2:-0}"
    elif ((status != 0)); then
        echo "$why"
        echo "not ok set-up of the $1 guests"
        exit 1
    fi
    vm_tsc_khz=$("$vm_tests/tsc-khz") || vm_tsc_khz=
    vm_sockets=$(mktemp -d "${TMPDIR:-/tmp}/pvn-vm.XXXXXX")
    trap vm_end EXIT
    trap 'exit 143' TERM INT
}

vm_job() { # vm_job NAME [VARIABLE=VALUE...]
    local name=$1 job file
    shift
    job=$PVN_BUILDDIR/vm-work/$vm_device-$name
    rm -rf "$job"
    mkdir -p "$job"
    cp "$vm_here/guest-results" "$vm_here/guest-perf" "$job/"
    name=${name##*/}
    for file in "$vm_device-$name" "$name" "${name%-[ab]}"; do
        [[ -e $vm_here/jobs/$file ]] || continue
        install -m 755 "$vm_here/jobs/$file" "$job/run"
        break
    done
    # The job gets copies of the expected results, because the guest may not see the source tree.
    cp "$vm_here"/verbs/verbsprobe.rxe "$vm_here"/verbs/verbsprobe.pvrdma "$job/"
    printf '%q\n' "BUILD=$PVN_BUILDDIR" "$@" >"$job/settings"
    echo "$job"
}

vm_parts() { # vm_parts JOB NAME...
    local job=$1 part folder port=29500
    shift
    for part; do
        folder=$(vm_job "${job##*/"$vm_device"-}/$part")
        { cat "$job/settings" && echo "FIRST_PORT=$port"; } >"$folder/settings"
        port=$((port + 100))
    done
    printf 'PARTS=%q\n' "$*" >>"$job/settings"
}

# Serves a guest's requests (`host WORD...`) until QEMU ends:
#   monitor LINE     sends a line to QEMU's monitor, such as set_link nic0 off
#   device COMMAND   sends a command to the PVRDMA stand-in of this guest
#   kill NAME        kills the QEMU of guest NAME
#   pause NAME N     pauses guest NAME for N seconds
# Kills a guest without output for VM_BOOT_LIMIT seconds, and leaves its processors' registers in JOB/hung.
serve_guest() { # serve_guest NAME JOB
    local word rest answer pid booting=1 until=$((SECONDS + ${VM_BOOT_LIMIT:-60}))
    exec 3<>"$vm_sockets/$1.in" 4<>"$vm_sockets/$1.out"
    while [[ -d $vm_sockets ]]; do
        read -r -t 0.05 -u 4 _
        if [[ -s $2/console || ${VM_SERIAL:-} == stdio ]]; then
            booting=
        elif [[ -n $booting ]] && ((SECONDS >= until)); then
            echo "info registers -a" >&3
            timeout 2 cat <&4 >"$2/hung"
            kill -KILL "$(<"$vm_sockets/$1.pid")"
            booting=
        fi
        [[ -e $2/ask ]] || continue
        read -r word rest <"$2/ask"
        rm -f "$2/ask"
        answer="done"
        case $word in
        monitor) echo "$rest" >&3 ;;
        device) answer=$("$vm_tests/pvrdma-device/pvstand-ctl" "$vm_sockets/$1.ctl" "$rest" 2>&1) ;;
        pause)
            echo stop >"$vm_sockets/${rest% *}.in"
            sleep "${rest#* }"
            echo cont >"$vm_sockets/${rest% *}.in"
            ;;
        kill)
            read -r pid <"$vm_sockets/$rest.pid"
            kill -KILL "$pid"
            ;;
        *) answer="no such word: $word" ;;
        esac
        echo "$answer" >"$2/answer.new"
        mv "$2/answer.new" "$2/answer"
    done
}

# Adds the network device of a rail and the RDMA device that belongs to it to vm_args.
pvrdma_args() { # pvrdma_args NAME RAIL NETDEV MAC
    local slot="addr=1$2"
    if [[ -n ${VM_SWITCH:-} ]]; then
        slot="bus=down$2,addr=0"
        vm_args+=(-device "pcie-root-port,id=root$2,chassis=1$2"
            -device "x3130-upstream,id=up$2,bus=root$2"
            -device "xio3130-downstream,id=down$2,bus=up$2,chassis=2$2"
            -device "xio3130-downstream,id=beside$2,bus=up$2,chassis=3$2"
            -device "ati-vga,bus=beside$2,romfile=")
    fi
    vm_args+=(
        -device "vmxnet3,$slot.0,multifunction=on,netdev=$3,id=nic$2,mac=$4,romfile="
        -chardev "socket,id=mads$2,path=$vm_sockets/$1.mux"
        -device "pvrdma,$slot.1,ibdev=pvstand0,ibport=1,netdev=eth$2,mad-chardev=mads$2")
}

tls_args() {
    rxe_args "$@"
}

rxe_args() {
    vm_args+=(-device "virtio-net-pci,netdev=$3,id=nic$2,mac=$4,romfile=")
}

# An emulated kernel with two processors hung before its first process in about one of sixty boots, before any of our
# code ran in the guest. Such a guest is booted again, and the output says so.
vm_boot() {
    local status=0 boots=1
    boot_once "$@" || status=$?
    while [[ -e $2/hung ]] && ((boots < 3)); do
        mv "$2/hung" "$2/hung-$boots"
        echo "guest $1 of ${2##*/} stopped while it booted, and is booted again" \
            "($(grep -oE 'RIP=[0-9a-f]+|HLT=.' "$2/hung-$boots" | tr '\n' ' '))"
        boots=$((boots + 1)) status=0
        boot_once "$@" || status=$?
    done
    return "$status"
}

boot_once() {
    local name=$1 job=$2 agent status words preload=() tsc_khz=$vm_tsc_khz
    local mem=${VM_MEM:-512} smp=${VM_SMP:-1} mods=${VM_MODS:-}
    shift 2
    if [[ $vm_device == pvrdma ]]; then
        mods=nic,pvrdma${mods:+,$mods} mem=${VM_MEM:-1024}
        preload=(PVSTAND_DIR="$vm_sockets/fabric" PVSTAND_MUX="$vm_sockets/$name.mux"
            PVSTAND_CTL="$vm_sockets/$name.ctl" PVSTAND_HOOKS="${VM_HOOKS:-1}"
            PVSTAND_STATS="$job/doorbells" LD_PRELOAD="$vm_tests/pvrdma-device/.libs/pvstand.so")
        mkdir -p "$vm_sockets/fabric"
    elif [[ $vm_device == tls ]]; then
        mods=nic,diag,tls${VM_VETH:+,veth}${mods:+,$mods}
    else
        mods=nic,diag,rxe${VM_VETH:+,veth}${mods:+,$mods}
    fi
    [[ -z ${VM_COUNTED:-} ]] || tsc_khz=1000000
    words="console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr cryptomgr.notests"
    words+=" no_timer_check tsc=reliable ${tsc_khz:+tsc_early_khz=$tsc_khz} audit=0"
    words+=" pvn.name=$name pvn.mods=$mods pvn.ip=${VM_IP:-} pvn.mtu=${VM_MTU:-}"
    words+=" pvn.veth=${VM_VETH:-0} pvn.v4self=${VM_V4SELF:-}"
    [[ $vm_device == rxe ]] && words+=" pvn.rxe=1"
    local kernel=$PVN_VM_CACHE/vmlinux
    [[ $vm_device != tls ]] || kernel+=-tls
    # VM_COUNTED makes the guest's clock advance 1 ns per instruction and its processors run in turn. So a time of a guest
    # with one processor that is never idle is a number of instructions, however busy the host is. Each iteration of a rep
    # instruction counts, so without erms and fsrm the kernel copies words, not bytes.
    local clock=(-accel "tcg,thread=multi" -cpu max)
    [[ -z ${VM_COUNTED:-} ]] || clock=(-accel "tcg,thread=single" -icount shift=0 -cpu "max,-erms,-fsrm")
    # -nodefaults leaves out devices that are not named here. The pvrdma device can map memory only with share=on.
    local args=("${clock[@]}" -M q35 -smp "$smp" -m "$mem"
        -object "memory-backend-ram,id=ram0,size=${mem}M,share=on" -machine memory-backend=ram0
        -nodefaults -no-user-config -display none -no-reboot -serial "${VM_SERIAL:-file:$job/console}"
        -kernel "$kernel" -initrd "$PVN_VM_CACHE/initrd-$vm_device"
        -device "isa-debug-exit,iobase=0x501,iosize=1" -pidfile "$vm_sockets/$name.pid"
        -virtfs "local,path=$job,mount_tag=job,security_model=none"
        -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
        -chardev "pipe,id=mon,path=$vm_sockets/$name" -mon chardev=mon)
    if [[ $PVN_BUILDDIR == /tmp/* || $PVN_BUILDDIR == /run/* ]]; then
        args+=(-virtfs "local,path=$PVN_BUILDDIR,mount_tag=share,security_model=none,readonly=on")
        words+=" pvn.share=$PVN_BUILDDIR"
    fi
    rm -f "$job"/{console,status,dmesg,ask,answer,hung} "$vm_sockets/$name".{in,out}
    mkfifo "$vm_sockets/$name.in" "$vm_sockets/$name.out"
    serve_guest "$name" "$job" &
    agent=$!
    if [[ ${VM_SERIAL:-} == stdio ]]; then
        env "${preload[@]}" "$vm_qemu" "${args[@]}" -append "$words" "$@"
    else
        # The braces keep bash's message about a killed QEMU out of the results.
        {
            timeout --foreground -k 5 "${VM_LIMIT:-300}" env "${preload[@]}" "$vm_qemu" \
                "${args[@]}" -append "$words" "$@" </dev/null >"$job/qemu" 2>&1
        } 2>/dev/null
    fi
    status=$?
    kill "$agent" 2>/dev/null
    wait "$agent" 2>/dev/null
    [[ $status != 124 && $status != 137 ]] || return "$status"
    ((status & 1)) && [[ -s $job/status ]] && return $((status >> 1))
    return 127
}

vm_alone() { # vm_alone JOB
    vm_args=()
    if [[ $vm_device == tls ]]; then
        VM_VETH=${VM_VETH:-1} VM_IP=10.77.0.1/24,10.77.0.2/24 vm_boot a "$1"
    elif [[ $vm_device == rxe ]]; then
        VM_VETH=1 VM_V4SELF=${VM_V4SELF-1} VM_IP=10.77.0.1/24,10.77.0.2/24 VM_MODS=netem${VM_MODS:+,$VM_MODS} vm_boot a "$1"
    else
        vm_args=(-netdev "hubport,id=n0,hubid=0")
        pvrdma_args a 0 n0 52:54:00:00:00:01
        VM_IP=10.77.0.1/24 vm_boot a "$1" "${vm_args[@]}"
    fi
}

vm_pair() {
    local rail wire end other name pids=() addresses
    for end in 1 2; do
        name=$([[ $end == 1 ]] && echo a || echo b)
        other=$((3 - end)) addresses='' vm_args=()
        for ((rail = 0; rail < ${VM_RAILS:-1}; rail++)); do
            wire=$vm_sockets/wire$rail
            # Unix datagram sockets allow either guest to start first.
            vm_args+=(-netdev "dgram,id=n$rail,local.type=unix,local.path=$wire.$end,remote.type=unix,remote.path=$wire.$other")
            "${vm_device}_args" "$name" "$rail" "n$rail" "52:54:00:00:0$rail:0$end"
            addresses+=${addresses:+,}10.77.$rail.$end/24
        done
        VM_IP=$addresses vm_boot "$name" "${!end}" "${vm_args[@]}" &
        pids+=($!)
    done
    vm_status_a=0 vm_status_b=0
    wait "${pids[0]}" || vm_status_a=$?
    wait "${pids[1]}" || vm_status_b=$?
    ((vm_status_a == 0 && vm_status_b == 0))
}

# Runs, in one guest, the given jobs, the tests of the RDMA lane without the rest of the plugin, and the plugin over RDMA.
# The caller prints the results of its own jobs, which are in vm_parts_job.
vm_rdma_tests() { # vm_rdma_tests RESULTS [JOB...]
    local parts=("${@:2}" lane perf-one)
    vm_status=0
    [[ -e $PVN_BUILDDIR/tests/rdma/test_rdma_lane ]] || parts=("${@:2}" perf-one)
    vm_parts_job=$(vm_job parts TRANSPORT=rdma)
    vm_parts "$vm_parts_job" "${parts[@]}"
    VM_SMP=2 VM_MEM=1024 VM_LIMIT=800 VM_V4SELF='' vm_alone "$vm_parts_job" || vm_status=$?
    if [[ -e $vm_parts_job/lane ]]; then
        vm_part_results "RDMA lane" "$vm_parts_job/lane" "$1" "$vm_status"
    else
        skip "RDMA lane" "its tests have not been built (no GoogleTest)"
    fi
    vm_part_results "rdma, one guest" "$vm_parts_job/perf-one" 3 "$vm_status"
}

# Runs the plugin's jobs with TRANSPORT between two guests: with the link of one going down and up, and for RDMA with a
# peer without RDMA, with faults that a ring survives, and with a killed peer.
vm_plugin_tests() { # vm_plugin_tests TRANSPORT [JOB...]
    local both=6 faults=5
    [[ $1 != rdma ]] || both=8 faults=4
    # The last one kills guest b.
    VM_LIMIT=1000 vm_plugin_pair "$@" perf-pair perf-faults perf-kill
    vm_pair_results "$1, two guests" perf-pair "$both" "$both"
    vm_pair_results "$1, failover" perf-faults "$faults" 1
    vm_pair_results "$1, two guests" perf-kill 1
}

vm_plugin_pair() { # vm_plugin_pair TRANSPORT JOB...: runs the jobs, one after the other, in two guests
    local settings=(TRANSPORT="$1" KERNEL_TLS="$([[ $vm_device != tls ]] || echo yes)")
    shift
    vm_parts_a=$(vm_job parts-a "${settings[@]}" RANK=0) vm_parts_b=$(vm_job parts-b "${settings[@]}" RANK=1)
    vm_parts "$vm_parts_a" "${@/%/-a}"
    vm_parts "$vm_parts_b" "${@/%/-b}"
    VM_LIMIT=${VM_LIMIT:-400} vm_pair "$vm_parts_a" "$vm_parts_b"
}

vm_pair_results() { # vm_pair_results TITLE JOB RESULTS_A [RESULTS_B]: what vm_plugin_pair's guests say of a job
    vm_part_results "$1, rank 0" "$vm_parts_a/$2-a" "$3" "$vm_status_a"
    [[ -z ${4:-} ]] || vm_part_results "$1, rank 1" "$vm_parts_b/$2-b" "$4" "$vm_status_b"
}

vm_part_results() { # vm_part_results NAME JOB/PART N STATUS
    local status=$4
    [[ ! -s $2/status ]] || status=$(<"$2/status")
    vm_results "$1" "$2" "$3" "$status"
}

vm_results() {
    local name=$1 job=$2 expected=$3 status=${4:-0} found
    found=$(grep -cE '^(ok|not ok|skip) ' "$job/results" 2>/dev/null)
    [[ ! -e $job/results ]] || sed -E "s/^(ok|not ok|skip) /\\1 $name: /" "$job/results"
    if ((found != expected || status != 0)); then
        not_ok "$name: $found of $expected results, guest status $status" "$job"
    elif grep -q '^not ok' "$job/results"; then
        [[ ! -e $job/details ]] || sed 's/^/    /' "$job/details"
        vm_failed=1
    fi
}

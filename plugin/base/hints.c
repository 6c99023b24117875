/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/hints.h"

#include <errno.h>
#include <stdlib.h>

/* Values of ibv_wc_status (libibverbs/verbs.h, part of its ABI). A test compares them with the header. */
enum {
    WC_LOC_LEN_ERR = 1,
    WC_LOC_PROT_ERR = 4,
    WC_WR_FLUSH_ERR = 5,
    WC_REM_INV_REQ_ERR = 9,
    WC_REM_ACCESS_ERR = 10,
    WC_REM_OP_ERR = 11,
    WC_RETRY_EXC_ERR = 12,
    WC_RNR_RETRY_EXC_ERR = 13,
    WC_FATAL_ERR = 19
};

/* Order matters, because the first row that matches is used: rows with a phase or a history come before rows of
 * the same code without them. */
static const struct pvn_hint table[] = {
    {PVN_HINT_REFUSED_LOOPBACK, PVN_HINT_ERRNO, ECONNREFUSED, PVN_PHASE_DIAL, PVN_PAST_ELSEWHERE,
     "the peer offered its loopback address, which no other machine reaches: no other interface of "
     "its host was up",
     "look at `ip addr` and NCCL_SOCKET_IFNAME on the peer's host, and at the warnings in its log"},
    {PVN_HINT_REFUSED, PVN_HINT_ERRNO, ECONNREFUSED, PVN_PHASE_ANY, PVN_PAST_ANY,
     "nothing listens at that address: the peer has ended, or the address belongs to another "
     "machine",
     "look at the peer's log first; check that all nodes have distinct addresses, and set "
     "NCCL_SOCKET_IFNAME to an interface that the nodes share"},
    {PVN_HINT_DIAL_TIMEOUT, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_DIAL, PVN_PAST_ANY,
     "packets to the peer are dropped: a firewall, or an address of a network that this node does "
     "not "
     "share",
     "`ping -I INTERFACE PEER`; open the TCP ports of net.ipv4.ip_local_port_range between the "
     "nodes; set NCCL_SOCKET_IFNAME; a slow start needs a longer NCCL_PVRDMA_CONNECT_TIMEOUT"},
    {PVN_HINT_NOT_TAKEN, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_VERIFY, PVN_PAST_ANSWERS,
     "the control connection works, but this one is not made or not taken: a process at either end "
     "has no descriptor left, or a firewall limits the number of connections",
     "look for \"Too many open files\" in the logs of both ends, and raise `ulimit -n` there; look "
     "for a firewall between"},
    {PVN_HINT_VERIFY_TIMEOUT, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_VERIFY, PVN_PAST_ANY,
     "the connection was set up but a first message over it did not arrive: a wrong GID or VLAN, "
     "no route between the two devices, or an MTU larger than the network carries",
     "compare the two GIDs and addresses in this message; try `ping -M do -s 8972` where jumbo "
     "frames are set; NCCL_IB_GID_INDEX or NCCL_IB_HCA choose others"},
    {PVN_HINT_NO_PEER, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_ACCEPT, PVN_PAST_ANY,
     "the peer never connected: it failed earlier, it cannot reach the address listened at, or it "
     "chose another network plugin",
     "look at the peer's log; all nodes need the same NCCL_NET_PLUGIN; set NCCL_SOCKET_IFNAME to "
     "an interface that the nodes share; NCCL_PVRDMA_ACCEPT_TIMEOUT sets the time limit"},
    {PVN_HINT_LOST_AFTER_WORKING, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_ANY, PVN_PAST_WORKED,
     "the peer no longer answers: its machine stopped, or the link between went down",
     "check the peer's machine and `ip -s link` at both ends; NCCL_PVRDMA_TCP_USER_TIMEOUT and, "
     "for an idle connection, NCCL_PVRDMA_KEEPALIVE_IDLE and _INTVL set the time limit"},
    {PVN_HINT_LARGE_PACKETS_LOST, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_TRANSFER, PVN_PAST_ANSWERS,
     "the peer's machine answers on the control connection and has acknowledged none of these data: "
     "the network loses large packets, since somewhere the MTU is smaller than at the two ends, or "
     "drops this connection",
     "`ping -M do -s 8972 PEER` (28 bytes less than the MTU of `ip link`); set the MTU that the "
     "network carries at both ends, or net.ipv4.tcp_mtu_probing=1 at both; look for a firewall between"},
    {PVN_HINT_PEER_IS_LATE, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_TRANSFER, PVN_PAST_STALLED,
     "the peer's process is late for this transfer, is stopped, or waits for another rank itself",
     "look at the peer's log and stack; `pvn-topo stat` on all hosts names the rank that all wait for; "
     "a limit longer than any rank may be late"},
    {PVN_HINT_SILENT_HANDSHAKE, PVN_HINT_ERRNO, ETIMEDOUT, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer accepted the connection and then sent nothing: its process hangs, or another "
     "program listens at that address",
     "look at the peer's log and stack; the parameter in this message sets the time limit"},
    {PVN_HINT_NO_ROUTE, PVN_HINT_ERRNO, EHOSTUNREACH, PVN_PHASE_ANY, PVN_PAST_ANY,
     "no route to the peer, or nobody answers for its address on the local network",
     "`ip route get PEER` and `ip neigh`; set NCCL_SOCKET_IFNAME to an interface that reaches "
     "it"},
    {PVN_HINT_NO_NETWORK, PVN_HINT_ERRNO, ENETUNREACH, PVN_PHASE_ANY, PVN_PAST_ANY,
     "this node has no route to the peer's network, or lacks addresses of that family",
     "`ip route get PEER`; set NCCL_SOCKET_FAMILY when only one of IPv4 and IPv6 is set up "
     "everywhere"},
    {PVN_HINT_WRONG_SOURCE, PVN_HINT_ERRNO, EINVAL, PVN_PHASE_DIAL, PVN_PAST_ANY,
     "the local address cannot send to that peer: it is the loopback's, or an interface's without "
     "a "
     "link",
     "see in the log which interface was chosen and why; bring the network's interface up, or set "
     "NCCL_SOCKET_IFNAME to it"},
    {PVN_HINT_RESET_IDLE, PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_ANY, PVN_PAST_IDLE,
     "the peer's process ended without closing, or a firewall dropped the idle connection",
     "look at the peer's log for the first error; behind a firewall lower "
     "NCCL_PVRDMA_KEEPALIVE_IDLE below its idle limit"},
    {PVN_HINT_RESET_WORKING, PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_ANY, PVN_PAST_WORKED,
     "the peer's process ended without closing the connection",
     "look at the peer's log for the first error"},
    {PVN_HINT_RESET_HANDSHAKE, PVN_HINT_ERRNO, ECONNRESET, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer closed the connection during set-up: it failed, or what listens there is not this "
     "plugin",
     "look at the peer's log; all nodes need the same NCCL_NET_PLUGIN"},
    {PVN_HINT_CLOSED_WORKING, PVN_HINT_ERRNO, EPIPE, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer closed its end: its process ended or aborted its communicator",
     "look at the peer's log for the first error"},
    {PVN_HINT_ADDR_IN_USE, PVN_HINT_ERRNO, EADDRINUSE, PVN_PHASE_ANY, PVN_PAST_ANY,
     "every port of the ephemeral range is taken on that address",
     "widen net.ipv4.ip_local_port_range, or look with `ss -s` for connections that are never "
     "closed"},
    {PVN_HINT_ADDR_GONE, PVN_HINT_ERRNO, EADDRNOTAVAIL, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the interface lost its address since it was chosen, or all local ports to that peer are "
     "taken",
     "compare with `ip addr`; a DHCP renewal or a container restart changes addresses"},
    {PVN_HINT_NO_FILES, PVN_HINT_ERRNO, EMFILE, PVN_PHASE_ANY, PVN_PAST_ANY,
     "this process has as many open files and sockets as it may have",
     "raise the limit (`ulimit -n 65536`, in containers --ulimit nofile=65536:65536), or lower "
     "NCCL_PVRDMA_TCP_STREAMS"},
    {PVN_HINT_NO_FILES_SYSTEM, PVN_HINT_ERRNO, ENFILE, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the machine as a whole has no free file handles", "raise fs.file-max (`sysctl fs.file-max`)"},
    {PVN_HINT_REG_MEMLOCK, PVN_HINT_ERRNO, ENOMEM, PVN_PHASE_REG, PVN_PAST_ANY,
     "the limit on locked memory (RLIMIT_MEMLOCK) or the device's own limit is used up",
     "set `ulimit -l unlimited` (in containers --ulimit memlock=-1), check with `ulimit -l` in the "
     "job itself"},
    {PVN_HINT_NO_MEMORY, PVN_HINT_ERRNO, ENOMEM, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the machine or the container's memory limit has no room left",
     "compare `free -m` with the container's memory.max; fewer NCCL channels need fewer buffers"},
    {PVN_HINT_NO_BUFFERS, PVN_HINT_ERRNO, ENOBUFS, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the kernel has no buffers left for sockets",
     "look at net.ipv4.tcp_mem and `cat /proc/net/sockstat`; lower NCCL_PVRDMA_TCP_SNDBUF and "
     "NCCL_PVRDMA_TCP_RCVBUF where set"},
    {PVN_HINT_FORBIDDEN_REG, PVN_HINT_ERRNO, EPERM, PVN_PHASE_REG, PVN_PAST_ANY,
     "locking memory is forbidden in this container or by its cgroup",
     "start it with --ulimit memlock=-1 (and --cap-add IPC_LOCK where that is not enough)"},
    {PVN_HINT_FORBIDDEN, PVN_HINT_ERRNO, EACCES, PVN_PHASE_ANY, PVN_PAST_ANY,
     "a security policy forbids it",
     "look at `dmesg` and the audit log (SELinux, AppArmor, seccomp), and at the device nodes' "
     "modes below /dev/infiniband"},
    {PVN_HINT_FIREWALL, PVN_HINT_ERRNO, EPERM, PVN_PHASE_ANY, PVN_PAST_ANY,
     "a local firewall rule rejects the traffic",
     "look at `nft list ruleset` or `iptables -S OUTPUT`"},
    {PVN_HINT_PROTO_MISMATCH, PVN_HINT_ERRNO, EPROTO, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the other end runs another release of the plugin or another program",
     "compare the versions in both logs (NCCL_DEBUG=INFO); install the same release on all nodes"},
    {PVN_HINT_OTHER_KEY, PVN_HINT_ERRNO, EKEYREJECTED, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the two ends have different key files, one of them has none, or somebody else answers in the "
     "peer's place",
     "compare `sha256sum` of NCCL_PVRDMA_KEY_FILE at all ranks, each of which needs the same file or "
     "none"},
    {PVN_HINT_REPLACED_KEY, PVN_HINT_ERRNO, EKEYREVOKED, PVN_PHASE_ANY, PVN_PAST_ANY,
     "somebody made a new key under the same name, or a Secret of Kubernetes was changed",
     "start the job again, with the same file at all ranks; give each job a key file of its own, and "
     "leave it alone until the job has ended"},
    {PVN_HINT_FORGED, PVN_HINT_ERRNO, EBADMSG, PVN_PHASE_ANY, PVN_PAST_ANY,
     "bytes of an encrypted connection were changed between the two ends, or are somebody else's",
     "look for a proxy or a faulty adapter between the two hosts; if there is none, somebody "
     "interferes"},
    {PVN_HINT_LIB_MISSING, PVN_HINT_ERRNO, ENOENT, PVN_PHASE_LOAD, PVN_PAST_ANY,
     "a library that is loaded at run time is not installed",
     "install rdma-core (libibverbs1) for RDMA and libnl-route-3-200 for interface details; TCP "
     "works without them"},
    {PVN_HINT_NO_DEVICE, PVN_HINT_ERRNO, ENODEV, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the device or interface is gone or was never there",
     "compare with `ip link` and `ls /sys/class/infiniband`; check NCCL_SOCKET_IFNAME and "
     "NCCL_IB_HCA"},

    {PVN_HINT_WC_RETRY_WORKED, PVN_HINT_WC, WC_RETRY_EXC_ERR, PVN_PHASE_ANY, PVN_PAST_WORKED,
     "the peer stopped acknowledging on a path that has worked: its process or machine stopped, "
     "the link went down, or the network drops packets",
     "look at the peer's log and at both ports' counters and link state; NCCL_IB_TIMEOUT and "
     "NCCL_IB_RETRY_CNT set the time limit"},
    {PVN_HINT_WC_RETRY_NEVER, PVN_HINT_WC, WC_RETRY_EXC_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the first message was never acknowledged, so the path cannot have worked: a GID of the wrong "
     "network, VLAN or RoCE version, or no route; longer time-outs do not cure it",
     "compare both GIDs in this message; set NCCL_IB_GID_INDEX or NCCL_IB_HCA, and try `rping` or "
     "`ibv_rc_pingpong -g INDEX` between the two nodes"},
    {PVN_HINT_WC_RNR, PVN_HINT_WC, WC_RNR_RETRY_EXC_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer posted no receive in time: its process is stopped or starved of CPU",
     "look at the peer's load and stack"},
    {PVN_HINT_WC_LOC_PROT, PVN_HINT_WC, WC_LOC_PROT_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "this end's adapter or its driver is being removed or reset, which takes its memory away "
     "first; or the local buffer was unmapped or deregistered while in use, or GPU memory cannot "
     "be reached by the device",
     "look at `dmesg`; if no adapter was removed, try NCCL_NET_GDR_LEVEL=LOC to rule out GPUDirect; in virtual machines check that ACS and the "
     "IOMMU let NIC and GPU talk"},
    {PVN_HINT_WC_LOC_LEN, PVN_HINT_WC, WC_LOC_LEN_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "a message is larger than the posted buffer: both ends disagree on sizes",
     "use the same NCCL and plugin release and the same NCCL_* variables on all nodes"},
    {PVN_HINT_WC_REM_ACCESS, PVN_HINT_WC, WC_REM_ACCESS_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer's process has ended, or its adapter or driver is being removed or reset, which takes "
     "its memory away first; or the peer's memory was deregistered or freed while data was in "
     "flight",
     "look at the peer's log and at `dmesg` there"},
    {PVN_HINT_WC_REM_INV_REQ, PVN_HINT_WC, WC_REM_INV_REQ_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer's device refuses that kind of request or its length",
     "compare device and firmware of both ends (`ibv_devinfo -v`)"},
    {PVN_HINT_WC_REM_OP, PVN_HINT_WC, WC_REM_OP_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the peer's device failed while it served the request, or is being removed or reset",
     "look at `dmesg` on the peer"},
    {PVN_HINT_WC_FLUSH, PVN_HINT_WC, WC_WR_FLUSH_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "a consequence of an earlier error, after which the queue pair gives up all its requests",
     "look for the first error on this connection, in this log or in the peer's"},
    {PVN_HINT_WC_FATAL, PVN_HINT_WC, WC_FATAL_ERR, PVN_PHASE_ANY, PVN_PAST_ANY,
     "the device or its driver failed",
     "look at `dmesg`; the machine may need a reset of the device"},
};

static const size_t rows = sizeof(table) / sizeof(table[0]);

const struct pvn_hint *pvn_hint_find(enum pvn_hint_space space, int code, enum pvn_phase phase,
                                     enum pvn_past past)
{
    size_t i;

    code = abs(code);
    for (i = 0; i < rows; i++) {
        const struct pvn_hint *h = &table[i];

        if (h->space == space && h->code == code &&
            (h->phase == PVN_PHASE_ANY || h->phase == phase) &&
            (h->past == PVN_PAST_ANY || h->past == past ||
             (h->past == PVN_PAST_WORKED && past == PVN_PAST_IDLE)))
            return h;
    }
    return NULL;
}

enum pvn_hint_id pvn_hint_id_find(enum pvn_hint_space space, int code, enum pvn_phase phase,
                                  enum pvn_past past)
{
    const struct pvn_hint *h = pvn_hint_find(space, code, phase, past);

    return h ? h->id : PVN_HINT_NONE;
}

const struct pvn_hint *pvn_hint_get(int id)
{
    size_t i;

    for (i = 0; i < rows && id != PVN_HINT_NONE; i++)
        if ((int)table[i].id == id)
            return &table[i];
    return NULL;
}

const struct pvn_hint *pvn_hint_table(size_t *count)
{
    *count = rows;
    return table;
}

const char *pvn_phase_name(enum pvn_phase phase)
{
    static const char *const names[PVN_PHASE_COUNT] = {
        "any",   "load", "scan",   "listen", "accept",   "dial",     "hello",
        "offer", "bind", "verify", "ready",  "transfer", "register", "close",
    };

    return (unsigned)phase < PVN_PHASE_COUNT ? names[phase] : "?";
}

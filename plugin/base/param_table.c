/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/param.h"

#include <sys/socket.h>

#include "base/clock.h"

#define FIELD(f)                                                                                   \
    .offset = offsetof(struct pvn_params, f), .size = sizeof(((struct pvn_params *)0)->f)

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define US  ((int64_t)PVN_NS_PER_US)
#define MS  ((int64_t)PVN_NS_PER_MS)
#define SEC ((int64_t)PVN_NS_PER_S)

static const struct pvn_param_word transport_words[] = {{"auto", PVN_TRANSPORT_AUTO},
                                                        {"rdma", PVN_TRANSPORT_RDMA},
                                                        {"tcp", PVN_TRANSPORT_TCP},
                                                        {NULL, 0}};

static const struct pvn_param_word family_words[] = {{"auto", AF_UNSPEC},    {"AF_INET", AF_INET},
                                                     {"AF_INET6", AF_INET6}, {"ipv4", AF_INET},
                                                     {"ipv6", AF_INET6},     {NULL, 0}};

static const struct pvn_param_word rdma_mode_words[] = {{"auto", PVN_RDMA_MODE_AUTO},
                                                        {"record", PVN_RDMA_MODE_RECORD},
                                                        {"imm", PVN_RDMA_MODE_IMM},
                                                        {"send", PVN_RDMA_MODE_SEND},
                                                        {NULL, 0}};

static const struct pvn_param_word gpu_mem_words[] = {{"auto", PVN_GPU_MEM_AUTO},
                                                      {"off", PVN_GPU_MEM_OFF},
                                                      {"peermem", PVN_GPU_MEM_PEERMEM},
                                                      {"dmabuf", PVN_GPU_MEM_DMABUF},
                                                      {NULL, 0}};

static const struct pvn_param_word flush_words[] = {{"auto", PVN_FLUSH_MODE_AUTO},
                                                    {"read", PVN_FLUSH_MODE_READ},
                                                    {"cuda", PVN_FLUSH_MODE_CUDA},
                                                    {"none", PVN_FLUSH_MODE_NONE},
                                                    {NULL, 0}};

static const struct pvn_param_word encrypt_words[] = {{"auto", PVN_ENCRYPT_AUTO},
                                                      {"control", PVN_ENCRYPT_CONTROL},
                                                      {"all", PVN_ENCRYPT_ALL},
                                                      {NULL, 0}};

static const struct pvn_param_word auto0_words[] = {{"auto", 0}, {NULL, 0}};
static const struct pvn_param_word auto1_words[] = {{"auto", -1}, {NULL, 0}};
static const struct pvn_param_word auto2_words[] = {{"auto", 2}, {NULL, 0}};
static const struct pvn_param_word unset_words[] = {{"unset", -1}, {NULL, 0}};

static const struct pvn_param_def table[] = {
    {.name = "TRANSPORT",
     .alias = "NCCL_IB_DISABLE",
     .alias_on = "tcp",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = transport_words,
     FIELD(transport),
     .help =
         "What may carry data. auto: RDMA where it works between both ends, else TCP; rdma: only "
         "RDMA devices are offered; tcp: RDMA devices are left alone."},
    {.name = "STRICT",
     .type = PVN_PARAM_BOOL,
     .def = "0",
     FIELD(strict),
     .help = "Fail with the reason where the plugin would otherwise continue with fewer lanes or "
             "devices: a lane that fails its first round trip or is lost later (so there is no "
             "failover), a device that cannot be used."},
    {.name = "VDEVICE",
     .alias = "NCCL_IB_MERGE_NICS",
     .alias_off = "0",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = -1,
     .max = 1,
     .words = auto1_words,
     FIELD(vdevice),
     .help = "Whether devices are joined into one where NCCL requests it. auto: if NCCL can find "
             "every member in the machine's PCI tree, since otherwise it finds no path to the "
             "joined device and ends the job; 0: never; 1: always."},
    {.name = "SHARED_COMMS",
     .alias = "NCCL_NET_SHARED_COMMS",
     .type = PVN_PARAM_BOOL,
     .def = "1",
     FIELD(shared_comms),
     .help =
         "NCCL may let the ranks of a node share connections over RDMA devices (PXN). One that has "
         "fallen back to TCP then sends no message before there is a receive for it. 0: NCCL "
         "does not, and TCP needs fewer system calls for small messages."},
    {.name = "FAILOVER",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = -1,
     .max = 1,
     .words = auto1_words,
     FIELD(failover),
     .help =
         "A connection that loses its lanes (link down, queue pair in error, TCP reset) is set up "
         "again, over RDMA or TCP, by this interface or another one, and messages that were not "
         "delivered are sent again. Both ends must have it. Sends over TCP then complete when the "
         "receiver has the bytes. It returns to better lanes by itself. auto: on devices that have "
         "RDMA, and where there is more than one interface; 0: never, the job ends with its lanes; "
         "1: always."},
    {.name = "FAILOVER_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "120s",
     .min = SEC,
     .max = 86400 * SEC,
     FIELD(failover_timeout),
     .help =
         "For how long a lost connection is dialled again while the peer cannot be reached. "
         "There is no limit for a peer that can be reached but is not ready, asleep or stopped."},
    {.name = "SOCKET_IFNAME",
     .alias = "NCCL_SOCKET_IFNAME",
     .type = PVN_PARAM_LIST,
     .def = "",
     FIELD(socket_ifname),
     .help =
         "Network interfaces for TCP, in the syntax of NCCL_SOCKET_IFNAME: a list of "
         "prefixes; `=` before the list makes them exact names, `^` excludes them, `^=` "
         "excludes exact names. `eth0:1` is the address that has this label. Empty: chosen by kind "
         "of link and by route."},
    {.name = "SOCKET_FAMILY",
     .alias = "NCCL_SOCKET_FAMILY",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = family_words,
     FIELD(socket_family),
     .help = "Address family of TCP connections. auto: IPv4 where an interface has it, else IPv6."},
    {.name = "IB_HCA",
     .alias = "NCCL_IB_HCA",
     .type = PVN_PARAM_LIST,
     .def = "",
     FIELD(ib_hca),
     .help = "RDMA devices and ports, in the syntax of NCCL_IB_HCA: a list of DEVICE[:PORT] "
             "prefixes, with `=` and `^` as in SOCKET_IFNAME. DEVICE:PORT:RAIL:PLANE also gives "
             "the device's rail and plane; PORT may be empty for all. Empty: every usable one."},
    {.name = "RAILS",
     .type = PVN_PARAM_LIST,
     .def = "",
     FIELD(rails),
     .help =
         "The rail of each device: a list of DEVICE=NUMBER (0 to 32767), the same on every host; "
         "devices of one rail reach each other. NCCL 2.30 then keeps rings and trees on one rail, "
         "and lanes of joined devices are paired by it. Empty: what IB_HCA gives, else by "
         "InfiniBand subnet, where ports have several."},

    {.name = "TCP_STREAMS",
     .alias = "NCCL_NSOCKS_PERTHREAD",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = 0,
     .max = 16,
     .words = auto0_words,
     FIELD(tcp_streams),
     .help = "TCP connections per communicator, direction and interface. auto: one on loopback "
             "and virtual links, more where a single flow cannot fill the link, and at least one "
             "for each of up to 4 TCP_THREADS. NCCL_NSOCKS_PERTHREAD is multiplied by "
             "NCCL_SOCKET_NTHREADS, as NCCL does."},
    {.name = "TCP_THREADS",
     .alias = "NCCL_SOCKET_NTHREADS",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = -1,
     .max = 64,
     .words = auto1_words,
     FIELD(tcp_threads),
     .help =
         "Threads of this process that copy messages of 128 KiB and more between buffers and TCP "
         "connections, for all communicators together. They sleep while there is nothing to "
         "copy. 0: NCCL's own thread copies everything. auto: up to 4 on interfaces of 50 Gb/s "
         "and more where the process may use 8 processors or more, else 0."},
    {.name = "TCP_CHUNK",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "512K",
     .min = 4 * KIB,
     .max = 64 * MIB,
     FIELD(tcp_chunk),
     .help = "Messages are cut into chunks of this size, and each goes to the connection that "
             "has room. With a single connection a chunk has at least 4 MiB. RDMA_CHUNK=0 "
             "takes this size over RDMA, too. The size is rounded down to a multiple of 128, "
             "because NCCL's protocol LL128 needs whole lines."},
    {.name = "TCP_CC",
     .type = PVN_PARAM_STRING,
     .def = "",
     FIELD(tcp_cc),
     .help =
         "Congestion control of TCP connections, e.g. cubic or reno; what the kernel allows is in "
         "/proc/sys/net/ipv4/tcp_allowed_congestion_control. Empty: the system's default."},
    {.name = "TCP_NOTSENT_LOWAT",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "256K",
     .min = 0,
     .max = GIB,
     FIELD(tcp_notsent_lowat),
     .help = "Unsent bytes that a connection may hold in the kernel before it counts as full. The "
             "limit keeps a slow connection from taking data that others could send sooner, and "
             "bbr from pacing a fast one down. 0: the kernel's setting."},
    {.name = "TCP_SNDBUF",
     .alias = "NCCL_SOCKET_SNDBUF",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "0",
     .min = 0,
     .max = GIB,
     FIELD(tcp_sndbuf),
     .help = "Send buffer of a TCP connection. 0: the kernel tunes it by itself, which is nearly "
             "always "
             "better."},
    {.name = "TCP_RCVBUF",
     .alias = "NCCL_SOCKET_RCVBUF",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "0",
     .min = 0,
     .max = GIB,
     FIELD(tcp_rcvbuf),
     .help = "Receive buffer of a TCP connection. 0: the kernel tunes it by itself."},
    {.name = "TCP_ZEROCOPY_MIN",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "256K",
     .min = 0,
     .max = GIB,
     FIELD(tcp_zerocopy_min),
     .help =
         "Messages, or chunks of large ones, of this size and more are sent with zero-copy where a "
         "short trial on the connection shows that the kernel does not copy all the same and that "
         "it takes less processor time. Not under bbr, where it is slower, nor with TCP_THREADS, "
         "which copy. Less than 8K counts as 8K. 0: never."},
    {.name = "TCP_BATCH",
     .type = PVN_PARAM_BOOL,
     .def = "1",
     FIELD(tcp_batch),
     .help = "Small messages of a thread that has more to send share a system call; one that is "
             "posted after the thread was idle is sent at once. 0: each is sent at once."},

    {.name = "GID_INDEX",
     .alias = "NCCL_IB_GID_INDEX",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = -1,
     .max = 65535,
     .words = auto1_words,
     FIELD(gid_index),
     .help = "Row of a RoCE port's GID table. auto: chosen from both ends' tables."},
    {.name = "ROCE_VERSION",
     .alias = "NCCL_IB_ROCE_VERSION_NUM",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = 0,
     .max = 2,
     .words = auto0_words,
     FIELD(roce_version),
     .help = "RoCE version of the GIDs that may be used. auto: any, version 2 before 1."},
    {.name = "ADDR_FAMILY",
     .alias = "NCCL_IB_ADDR_FAMILY",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = family_words,
     FIELD(addr_family),
     .help = "Address family of RoCE GIDs. auto: what both ends share, IPv4 first."},
    {.name = "ADDR_RANGE",
     .alias = "NCCL_IB_ADDR_RANGE",
     .type = PVN_PARAM_NETWORK,
     .def = "",
     FIELD(addr_range),
     .help = "Use only GIDs inside ADDRESS/PREFIX. Empty: any."},
    {.name = "SL",
     .alias = "NCCL_IB_SL",
     .type = PVN_PARAM_INT,
     .def = "unset",
     .min = -1,
     .max = 15,
     .words = unset_words,
     FIELD(service_level),
     .help =
         "InfiniBand service level of RDMA traffic; RoCE has its lower three bits. Unset: the lower "
         "bits of the traffic class that the communicator requests, as in NCCL, else 0."},
    {.name = "IB_TIMEOUT",
     .alias = "NCCL_IB_TIMEOUT",
     .type = PVN_PARAM_INT,
     .def = "20",
     .min = 1,
     .max = 31,
     FIELD(ib_timeout),
     .help = "How long a queue pair waits for an acknowledgement before it sends again: 4.096 "
             "us * 2^N (20: 4.3 s)."},
    {.name = "IB_RETRY_CNT",
     .alias = "NCCL_IB_RETRY_CNT",
     .type = PVN_PARAM_INT,
     .def = "7",
     .min = 0,
     .max = 7,
     FIELD(ib_retry_cnt),
     .help = "How often an RDMA packet that is not acknowledged is sent again."},
    {.name = "PKEY",
     .alias = "NCCL_IB_PKEY",
     .type = PVN_PARAM_INT,
     .def = "0",
     .min = 0,
     .max = 65535,
     FIELD(pkey),
     .help =
         "Row of a port's table of partition keys, not a key such as 0x8001. A port without this "
         "row is not used."},
    {.name = "QPS",
     .alias = "NCCL_IB_QPS_PER_CONNECTION",
     .type = PVN_PARAM_INT,
     .def = "1",
     .min = 1,
     .max = 8,
     FIELD(qps),
     .help = "Queue pairs per communicator, direction and port."},
    {.name = "ADAPTIVE_ROUTING",
     .alias = "NCCL_IB_ADAPTIVE_ROUTING",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = -1,
     .max = 1,
     .words = auto1_words,
     FIELD(adaptive_routing),
     .help = "Whether the network may reorder packets; RDMA_MODE auto is then imm. auto: on "
             "InfiniBand only."},
    {.name = "RDMA_MODE",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = rdma_mode_words,
     FIELD(rdma_mode),
     .help =
         "How a receiver detects data. record: by a record in host memory that is written behind "
         "the data, with the fewest doorbells; imm: by a completion per chunk (WRITE with "
         "immediate); send: two-sided, with copies, for devices without RDMA WRITE. auto: what the "
         "device, the network and the peer can do."},
    {.name = "RDMA_CHUNK",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "0",
     .min = 0,
     .max = 64 * MIB,
     FIELD(rdma_chunk),
     .help = "Messages over RDMA are cut into chunks of this size, and each goes to the next queue "
             "pair or port. 0: the value of TCP_CHUNK, and where a connection has one queue pair "
             "at least 4 MiB. Rounded down as TCP_CHUNK."},
    {.name = "RDMA_POLL",
     .type = PVN_PARAM_DURATION,
     .unit = "us",
     .def = "10ms",
     .min = 0,
     .max = SEC,
     FIELD(rdma_poll),
     .help = "On adapters where polling an empty completion queue is expensive (PVRDMA): a "
             "queue without expected completions is polled after this long without progress, "
             "so that a failed request is noticed. The time doubles while the queue stays "
             "empty, up to 1 s. In imm mode, too, where the peer announces what it has sent."},
    {.name = "RDMA_SHORT",
     .type = PVN_PARAM_SIZE,
     .unit = "bytes",
     .def = "292",
     .min = 0,
     .max = PVN_PARAM_RDMA_SHORT_MAX,
     FIELD(rdma_short),
     .help = "Messages up to this size between host memory travel together with their record in "
             "one write, and the receiver copies them into their buffer. 0: this end sends none "
             "and requests none from the peer; every message is written straight into its buffer."},
    {.name = "RELAXED_ORDERING",
     .alias = "NCCL_IB_PCI_RELAXED_ORDERING",
     .type = PVN_PARAM_INT,
     .def = "auto",
     .min = 0,
     .max = 2,
     .words = auto2_words,
     FIELD(relaxed_ordering),
     .help =
         "Whether an adapter may write into registered memory in any order (PCI Express relaxed "
         "ordering), which can help much in virtual machines, by NCCL's user guide. For "
         "connections in imm mode alone: a record must not overtake its data. auto: where adapter "
         "and libibverbs (rdma-core 28) have it; 0: never; 1: as auto, with a warning where it "
         "cannot be had."},
    {.name = "GPU_MEM",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = gpu_mem_words,
     FIELD(gpu_mem),
     .help = "How RDMA adapters may reach GPU memory. auto: by dma-buf or a peer-memory client, "
             "whichever a trial registration at start shows to work; dmabuf, peermem: only that "
             "one; off: NCCL stages GPU data in host memory."},
    {.name = "FLUSH",
     .alias = "NCCL_GDR_FLUSH_DISABLE",
     .alias_on = "none",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = flush_words,
     FIELD(flush),
     .help = "How data that an adapter has written into GPU memory are made visible to the GPU. "
             "read: an RDMA READ by the adapter; cuda: the CUDA driver's flush call; none: not at "
             "all, for GPUs known to need none; auto: by GPU generation, driver and adapter."},
    {.name = "DMABUF",
     .alias = "NCCL_DMABUF_ENABLE",
     .type = PVN_PARAM_BOOL,
     .def = "1",
     FIELD(dmabuf),
     .help = "Whether dma-buf may be used for GPU memory."},

    {.name = "TC",
     .alias = "NCCL_IB_TC",
     .type = PVN_PARAM_INT,
     .def = "unset",
     .min = -1,
     .max = 255,
     .words = unset_words,
     FIELD(traffic_class),
     .help = "Traffic class (the IP header's TOS byte, DSCP in its upper six bits). Unset: the one "
             "that the communicator requests, else the system's default."},
    {.name = "TC_FORCE",
     .type = PVN_PARAM_BOOL,
     .def = "1",
     FIELD(tc_force),
     .help = "TC overrides the traffic class that a communicator requests (trafficClass of "
             "ncclConfig_t), as NCCL_IB_TC does in NCCL. 0: the communicator's class comes first."},

    {.name = "KEY_FILE",
     .type = PVN_PARAM_STRING,
     .def = "",
     FIELD(key_file),
     .help =
         "File with the job's key: 32 to 4096 bytes that its owner alone may read, the same at "
         "all ranks; `pvn-perf --make-key FILE` makes one. Both ends of a connection prove to each "
         "other that they have it, and the control connection is encrypted (ENCRYPT). An end without "
         "it, or with another one, is refused. Read once, when the plugin is loaded. Empty: nothing "
         "is proved or encrypted."},
    {.name = "ENCRYPT",
     .type = PVN_PARAM_ENUM,
     .def = "auto",
     .words = encrypt_words,
     FIELD(encrypt),
     .help =
         "With KEY_FILE, which connections are encrypted (TLS 1.3). control: the control connection "
         "(addresses, keys of registered memory, failover); data are not, and are as fast as without "
         "a key. auto: data over TCP, too; an RDMA adapter cannot encrypt, so its data are not. all: as "
         "auto, and RDMA devices are left alone. Where the two ends differ, the stricter one counts."},
    {.name = "KERNEL_TLS",
     .type = PVN_PARAM_BOOL,
     .def = "0",
     FIELD(kernel_tls),
     .help =
         "With KEY_FILE, 1: the kernel encrypts and decrypts data over TCP where it can (Linux 6.14 or "
         "later with its module tls) and where a loss of them is survived (FAILOVER); OpenSSL does elsewhere. "
         "The peers need not agree."},
    {.name = "CONNECT_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "60s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(connect_timeout),
     .help = "How long to try to reach a peer's listening address."},
    {.name = "ACCEPT_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "300s",
     .min = 0,
     .max = 86400 * SEC,
     FIELD(accept_timeout),
     .help = "How long accept waits for the peer to connect, and connect for the peer's "
             "process to call accept, or to go on with the set-up. 0: no limit."},
    {.name = "SEAL_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "20s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(seal_timeout),
     .help = "With KEY_FILE: how long a connected peer may take to prove that it has the key."},
    {.name = "HELLO_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "20s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(hello_timeout),
     .help = "How long a connected peer may take to identify itself, and how long an "
             "unauthenticated connection may stay open at the listener."},
    {.name = "OFFER_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "20s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(offer_timeout),
     .help = "How long the peer may take to list its lanes."},
    {.name = "BIND_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "30s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(bind_timeout),
     .help = "How long it may take to connect the lanes that both ends chose."},
    {.name = "VERIFY_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "10s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(verify_timeout),
     .help = "How long the first round trip over a lane may take before the lane is left out."},
    {.name = "READY_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "20s",
     .min = 10 * MS,
     .max = 3600 * SEC,
     FIELD(ready_timeout),
     .help = "How long the peer may take to agree to the lanes that worked."},
    {.name = "KEEPALIVE_IDLE",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "15s",
     .min = 0,
     .max = 32767 * SEC,
     FIELD(keepalive_idle),
     .help = "Idle time of a TCP connection after which the kernel probes whether the peer is "
             "there, in whole seconds. 0: no probes."},
    {.name = "KEEPALIVE_INTVL",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "5s",
     .min = SEC,
     .max = 32767 * SEC,
     FIELD(keepalive_intvl),
     .help = "Time between two such probes, in whole seconds."},
    {.name = "KEEPALIVE_CNT",
     .type = PVN_PARAM_INT,
     .def = "45",
     .min = 1,
     .max = 127,
     FIELD(keepalive_cnt),
     .help = "Unanswered probes after which the connection is dead: by default after 240 s, as by "
             "TCP_USER_TIMEOUT without failover."},
    {.name = "TCP_USER_TIMEOUT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "auto",
     .min = 0,
     .max = 86400 * SEC,
     .words = auto1_words,
     FIELD(tcp_user_timeout),
     .help =
         "How long the peer's machine may acknowledge nothing of what it is sent before the "
         "connection is dead. A peer that is late or stopped is waited for: its kernel answers. "
         "auto: 60 s, and 240 s where the job would end with the connection (FAILOVER), because a "
         "virtual machine may stand still for minutes (snapshot, vMotion). 0: the kernel's own "
         "limit (about 15 minutes)."},
    {.name = "STALL_WARN",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "30s",
     .min = 0,
     .max = 86400 * SEC,
     FIELD(stall_warn),
     .help = "A request without progress for this long is reported, with the end that has to "
             "act next. 0: never."},
    {.name = "STALL_ABORT",
     .type = PVN_PARAM_DURATION,
     .unit = "s",
     .def = "0",
     .min = 0,
     .max = 86400 * SEC,
     FIELD(stall_abort),
     .help = "A request without progress for this long ends its communicator with an error. Longer "
             "than any rank may be late. 0: never."},

    {.name = "STATS_DIR",
     .type = PVN_PARAM_STRING,
     .def = "",
     FIELD(stats_dir),
     .help = "Where each process keeps its statistics file, which `pvn-topo stat` reads, also when "
             "the process hangs or is dead. Empty: /dev/shm/nccl-net-pvrdma-UID; none: no file."},

    {.name = "SYSFS_ROOT",
     .type = PVN_PARAM_STRING,
     .def = "/sys",
     FIELD(sysfs_root),
     .help = "Where sysfs is mounted, for containers that mount it elsewhere. The facts about RDMA "
             "devices and the PCIe layout are read there."},
    {.name = "VERBS_LIB",
     .alias = "NCCL_IBVERBS_LIB",
     .type = PVN_PARAM_STRING,
     .def = "libibverbs.so.1",
     FIELD(verbs_lib),
     .help = "The verbs library, by name or path; loaded when RDMA may be used."},
    {.name = "CUDA_LIB",
     .type = PVN_PARAM_STRING,
     .def = "libcuda.so.1",
     FIELD(cuda_lib),
     .help =
         "The CUDA driver library, by name or path; loaded when GPU memory is to be registered."},
    {.name = "NL_LIB",
     .type = PVN_PARAM_STRING,
     .def = "libnl-route-3.so.200",
     FIELD(nl_lib),
     .help = "The netlink library, by name or path. Without it, interfaces are chosen without "
             "their speed, kind and routes."},
    {.name = "SSL_LIB",
     .type = PVN_PARAM_STRING,
     .def = "libssl.so.3",
     FIELD(ssl_lib),
     .help = "OpenSSL's TLS library, version 3, by name or path; loaded with a KEY_FILE only."},
};

const struct pvn_param_def *pvn_param_table(size_t *count)
{
    _Static_assert(sizeof(table) / sizeof(table[0]) <= PVN_PARAM_MAX, "raise PVN_PARAM_MAX");

    *count = sizeof(table) / sizeof(table[0]);
    return table;
}

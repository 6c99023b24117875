/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/nccl_vars.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The order is that of the manual page: variables that users look for most come first. */
static const struct pvn_nccl_var table[] = {
    {"NCCL_IB_FIFO_TC", PVN_NCCL_LOST, NULL,
     "Control messages have the traffic class of the data (NCCL_PVRDMA_TC)."},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", PVN_NCCL_LOST, NULL,
     "Every message is cut into chunks (NCCL_PVRDMA_RDMA_CHUNK), and each goes to the next of "
     "NCCL_PVRDMA_QPS queue pairs."},
    {"NCCL_IB_AR_THRESHOLD", PVN_NCCL_LOST, NULL,
     "With adaptive routing (NCCL_PVRDMA_ADAPTIVE_ROUTING) data and their completion are one "
     "request, whatever the size."},
    {"NCCL_IB_ECE_ENABLE", PVN_NCCL_LOST, "0",
     "Enhanced connection establishment is not negotiated."},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", PVN_NCCL_LOST, "1",
     "A fatal event of an adapter always ends the connections that use it "
     "(NCCL_PVRDMA_FAILOVER sets them up again)."},
    {"NCCL_IB_RESILIENCY_PORT_FAILOVER NCCL_IB_RESILIENCY_PORT_RECOVERY", PVN_NCCL_LOST, "1",
     "NCCL_PVRDMA_FAILOVER decides on failover and on the return to better lanes, which is part of "
     "it."},
    {"NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY",
     PVN_NCCL_LOST, NULL, "NCCL_PVRDMA_FAILOVER_TIMEOUT is the limit of a failover."},
    {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_START_DELAY",
     PVN_NCCL_LOST, NULL, "The return to better lanes has no setting."},
    {"NCCL_IB_MQP_RETRY_ALL NCCL_IB_MQP_RETRY_CNT NCCL_IB_MQP_RETRY_SLEEP_MSEC", PVN_NCCL_LOST,
     NULL,
     "A queue pair whose peer's address does not answer on the link is connected again for half of "
     "NCCL_PVRDMA_BIND_TIMEOUT or NCCL_PVRDMA_VERIFY_TIMEOUT, whichever is shorter, when a comm is "
     "set up. After other failures its lane is left out at once."},
    {"NCCL_IB_DATA_DIRECT", PVN_NCCL_LOST, "0",
     "The Data Direct interface of ConnectX adapters is not used."},
    {"NCCL_IB_OOO_RQ", PVN_NCCL_LOST, "0",
     "ConnectX receive queues that are consumed out of order are not used."},
    {"NCCL_IB_MERGE_VFS", PVN_NCCL_LOST, "0",
     "Every virtual function is a device at its own PCI address."},
    {"NCCL_IB_DEVICE_PCI_ORDER", PVN_NCCL_LOST, "1", "Devices are always in PCI order."},
    {"NCCL_IB_SUBNET_AWARE_ROUTING", PVN_NCCL_LOST, "0",
     "Each end uses the device that NCCL chose there. NCCL_PVRDMA_RAILS says which devices reach "
     "each other."},
    {"NCCL_IB_ROUTABLE_FLID_GID_INDEX", PVN_NCCL_LOST, NULL,
     "Routing between InfiniBand subnets by FLID is not used."},
    {"NCCL_SOCKET_RETRY_CNT NCCL_SOCKET_RETRY_SLEEP_MSEC", PVN_NCCL_LOST, NULL,
     "NCCL's own connections obey it. The plugin's are dialled for NCCL_PVRDMA_CONNECT_TIMEOUT."},
    {"NCCL_SOCKET_MIN_TASKSIZE", PVN_NCCL_LOST, NULL,
     "Messages over several TCP connections are cut into chunks of NCCL_PVRDMA_TCP_CHUNK."},
    {"NCCL_COLLNET_ENABLE", PVN_NCCL_LOST, "0",
     "The plugin has no collectives in the network (CollNet)."},
    {"NCCL_ENV_PLUGIN", PVN_NCCL_LOST, "none",
     "The plugin reads the environment of the process, not what an environment plugin gives NCCL."},
    {"NCCL_IB_CUDA_SUPPORT NCCL_IB_GDR_LEVEL", PVN_NCCL_LOST, NULL,
     "NCCL itself has not read it since version 2.4. NCCL_NET_GDR_LEVEL takes its place."},

    {"NCCL_NET NCCL_NET_PLUGIN NCCL_NET_PLUGIN_REF_COUNT", PVN_NCCL_OWN, NULL,
     "Whether NCCL takes this plugin, and how long it keeps the library."},
    {"NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE NCCL_DEBUG_TIMESTAMP_FORMAT "
     "NCCL_DEBUG_TIMESTAMP_LEVELS NCCL_WARN_ENABLE_DEBUG_INFO",
     PVN_NCCL_OWN, NULL,
     "The plugin's messages go through NCCL's logger: WARN for failures, INFO for what was found "
     "and chosen, TRACE for single messages."},
    {"NCCL_CONF_FILE", PVN_NCCL_OWN, NULL,
     "NCCL puts what is in its files into the environment, where the plugin finds it."},
    {"NCCL_TOPO_FILE NCCL_TOPO_DUMP_FILE NCCL_TOPO_DUMP_FILE_RANK NCCL_GRAPH_FILE "
     "NCCL_GRAPH_DUMP_FILE NCCL_GRAPH_DUMP_FILE_RANK NCCL_TOPO_SPLIT_MLOPART",
     PVN_NCCL_OWN, NULL, "NCCL's model of the machine and of the rings and trees."},
    {"NCCL_CROSS_NIC NCCL_NETDEVS_POLICY NCCL_NET_MERGE_LEVEL NCCL_NET_MERGE_POLICY "
     "NCCL_NET_FORCE_MERGE NCCL_MNNVL_RAIL_PER_HOST NCCL_MNNVL_SCATTER_NETS_ENABLE",
     PVN_NCCL_OWN, NULL,
     "Which devices NCCL uses for which GPU, and which it joins (NCCL_PVRDMA_VDEVICE)."},
    {"NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_NET_GDR_C2C NCCL_NET_GDR_MLOPART "
     "NCCL_MLOPART_RDMA_ENABLE NCCL_MLOPART_GDR_ENABLE",
     PVN_NCCL_OWN, NULL,
     "Whether NCCL gives the plugin GPU memory. NCCL_PVRDMA_GPU_MEM and NCCL_PVRDMA_DMABUF are the "
     "plugin's part of that."},
    {"NCCL_NET_FORCE_FLUSH NCCL_GDRCOPY_ENABLE NCCL_GDRCOPY_SYNC_ENABLE NCCL_GDRCOPY_FLUSH_ENABLE "
     "NCCL_GDRCOPY_TAIL_ENABLE",
     PVN_NCCL_OWN, NULL,
     "Whether NCCL requests a flush of received GPU data; NCCL_PVRDMA_FLUSH is how the plugin does "
     "it. Without NCCL_NET_FORCE_FLUSH=1 NCCL up to 2.23 gets no GPU memory that needs a flush for "
     "which it would not ask."},
    {"NCCL_LOCAL_REGISTER NCCL_GRAPH_REGISTER NCCL_LEGACY_CUDA_REGISTER "
     "NCCL_MULTI_SEGMENT_REGISTER NCCL_SINGLE_PROC_MEM_REG_ENABLE",
     PVN_NCCL_OWN, NULL, "Which buffers of the application NCCL registers with the plugin."},
    {"NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_P2P_PXN_LEVEL NCCL_PXN_DISABLE NCCL_PXN_C2C "
     "NCCL_NVB_DISABLE NCCL_SHM_DISABLE NCCL_NET_DISABLE_INTRA NCCL_IGNORE_DISABLED_P2P",
     PVN_NCCL_OWN, NULL, "What goes over the network, and from which GPU to which device."},
    {"NCCL_BUFFSIZE NCCL_LL_BUFFSIZE NCCL_LL128_BUFFSIZE NCCL_P2P_NET_CHUNKSIZE "
     "NCCL_NET_SHARED_BUFFERS NCCL_SHARED_BUFF_COUNT NCCL_ALLOC_P2P_NET_LL_BUFFERS",
     PVN_NCCL_OWN, NULL, "Size and number of the messages and of NCCL's buffers."},
    {"NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_MIN_NRINGS "
     "NCCL_MAX_NRINGS NCCL_MIN_P2P_NCHANNELS NCCL_MAX_P2P_NCHANNELS "
     "NCCL_NCHANNELS_PER_NET_PEER NCCL_P2P_PER_CHANNEL_NET_BW NCCL_P2P_MAX_PEERS "
     "NCCL_CONNECT_ROUND_MAX_PEERS NCCL_RUNTIME_CONNECT NCCL_REPORT_CONNECT_PROGRESS",
     PVN_NCCL_OWN, NULL, "How many connections NCCL makes, and when."},
    {"NCCL_NET_OPTIONAL_RECV_COMPLETION", PVN_NCCL_OWN, NULL,
     "Whether NCCL leaves out completions that it need not wait for. The plugin supports that."},
    {"NCCL_NET_OVERHEAD", PVN_NCCL_OWN, NULL, "NCCL's estimate of the time per message."},
    {"NCCL_IGNORE_NET_MISMATCH", PVN_NCCL_OWN, NULL,
     "Whether ranks may have different numbers of devices."},
    {"NCCL_COMM_ID NCCL_HOSTID", PVN_NCCL_OWN, NULL,
     "Where rank 0's NCCL listens, and what NCCL takes for one host. They do not choose the "
     "plugin's interfaces (NCCL_PVRDMA_SOCKET_IFNAME)."},
    {"NCCL_OOB_NET_ENABLE NCCL_OOB_NET_IFNAME", PVN_NCCL_OWN, NULL,
     "Whether NCCL's own set-up goes over the plugin, too, and over which of its devices. With "
     "FAILOVER a process needs one thread for all set-ups then."},
    {"NCCL_SOCKET_POLL_TIMEOUT_MSEC NCCL_UID_STAGGER_RATE NCCL_UID_STAGGER_THRESHOLD "
     "NCCL_RAS_ENABLE NCCL_RAS_ADDR NCCL_RAS_TIMEOUT_FACTOR",
     PVN_NCCL_OWN, NULL, "NCCL's own TCP connections, which are not the plugin's."},
    {"NCCL_PROXY_CPUSET NCCL_PROXY_APPEND_BATCH_SIZE NCCL_PROXY_DUMP_SIGNAL "
     "NCCL_PROGRESS_APPENDOP_FREQ",
     PVN_NCCL_OWN, NULL, "The thread in which NCCL calls the plugin."},
    {"NCCL_PROFILER_PLUGIN", PVN_NCCL_OWN, NULL, "The plugin reports its events to a profiler."},

    {"NCCL_IB_USE_INLINE", PVN_NCCL_NONE, NULL,
     "Short requests carry their data inline wherever the adapter can."},
    {"NCCL_SOCKET_INLINE", PVN_NCCL_NONE, NULL,
     "A header and its data are sent together, whatever the size."},
    {"NCCL_SOCKET_MAGIC", PVN_NCCL_NONE, NULL,
     "Each listener has a random number, which its peers get through NCCL and have to send."},
    {"NCCL_IB_SUBNET_PREFIX_LEN", PVN_NCCL_NONE, NULL, "Part of NCCL_IB_SUBNET_AWARE_ROUTING."},
    {"NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", PVN_NCCL_NONE,
     NULL, "Parts of the protocol between two ends of NCCL's own InfiniBand transport."},
    {"NCCL_IB_QUERY_PORT_SPEED", PVN_NCCL_NONE, NULL,
     "The speed of a port is read from its attributes and from sysfs."},
    {"NCCL_IB_WARN_RAIL_LOCAL", PVN_NCCL_NONE, NULL,
     "The log names the lanes of every connection, and those that were left out."},
    {"NCCL_COLLNET_NODE_THRESHOLD NCCL_IGNORE_COLLNET_MISMATCH", PVN_NCCL_NONE, NULL,
     "Parts of CollNet, which the plugin does not have."},
    {"NCCL_UNPACK_DOUBLE_NCHANNELS", PVN_NCCL_NONE, NULL,
     "For networks whose receives are completed by the GPU."},
    {"NCCL_GIN_ENABLE NCCL_GIN_TYPE NCCL_GIN_PLUGIN NCCL_GIN_PLUGIN_REF_COUNT NCCL_GIN_IB_TC "
     "NCCL_GIN_NCONNECTIONS NCCL_GIN_NCONTEXTS NCCL_GIN_PROXY_QUEUE_SIZE NCCL_GIN_ERROR_QUERY_SEC "
     "NCCL_GIN_COUNTER_POOL_SIZE NCCL_GIN_SIGNAL_POOL_SIZE NCCL_GIN_GDAKI_NIC_HANDLER "
     "NCCL_GIN_GDAKI_QP_DEPTH NCCL_GIN_GDAKI_MAX_DEST_RD_ATOMIC NCCL_GIN_GDAKI_MAX_QP_RD_ATOMIC "
     "NCCL_GIN_EXCLUSIVE_CONTEXTS NCCL_GDAKI_USE_RELIABLE_DB",
     PVN_NCCL_NONE, NULL,
     "Networking that the GPU starts by itself (GIN) has its own plugins and code in NCCL."},
    {"NCCL_RMA_DISABLE NCCL_RMA_PLUGIN NCCL_RMA_PLUGIN_REF_COUNT NCCL_RMA_PROXY_DUMP_SIGNAL "
     "NCCL_RMA_PROXY_QUEUE_SIZE NCCL_NUM_RMA_CTX",
     PVN_NCCL_NONE, NULL, "One-sided operations (RMA) have their own plugins and code in NCCL."},
};

const struct pvn_nccl_var *pvn_nccl_var_table(size_t *count)
{
    *count = sizeof(table) / sizeof(table[0]);
    return table;
}

/* Reads the next word of a list that is separated by blanks. False at the end of the list. */
static bool next_word(const char **at, char *word, size_t size)
{
    size_t len;

    *at += strspn(*at, " ");
    len = strcspn(*at, " ");
    snprintf(word, size, "%.*s", (int)len, *at);
    *at += len;
    return len > 0;
}

bool pvn_nccl_var_next(const char **at, char name[PVN_NCCL_VAR_LEN])
{
    return next_word(at, name, PVN_NCCL_VAR_LEN);
}

const struct pvn_nccl_var *pvn_nccl_var_find(const char *name)
{
    char one[PVN_NCCL_VAR_LEN];
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const char *at = table[i].names;

        while (pvn_nccl_var_next(&at, one))
            if (strcmp(one, name) == 0)
                return &table[i];
    }
    return NULL;
}

/* Compares values as NCCL reads them: numbers may begin with 0x or with 0 (octal), as in C. */
static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    long long x = strtoll(a, &end_a, 0), y = strtoll(b, &end_b, 0);

    if (end_a == a || end_b == b || *end_a || *end_b)
        return strcasecmp(a, b) == 0;
    return x == y;
}

bool pvn_nccl_var_is_missed(const struct pvn_nccl_var *var, const char *value)
{
    const char *at = var->fits ? var->fits : "";
    char fits[16];

    if (var->use != PVN_NCCL_LOST || !*value || same_value(value, "-1") || same_value(value, "-2"))
        return false;
    while (next_word(&at, fits, sizeof(fits)))
        if (same_value(value, fits))
            return false;
    return true;
}

const struct pvn_nccl_var *pvn_nccl_var_of_entry(const char *entry, char name[PVN_NCCL_VAR_LEN],
                                                 const char **value)
{
    const char *equal = strchr(entry, '=');

    if (strncmp(entry, "NCCL_", 5) != 0 || !equal || equal - entry >= PVN_NCCL_VAR_LEN)
        return NULL;
    snprintf(name, PVN_NCCL_VAR_LEN, "%.*s", (int)(equal - entry), entry);
    *value = equal + 1;
    return pvn_nccl_var_find(name);
}

const char *pvn_nccl_use_name(enum pvn_nccl_use use)
{
    static const char *const names[] = {"NCCL's own", "no effect", "no meaning here"};

    return names[use];
}

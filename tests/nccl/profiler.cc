// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* A profiler plugin for the NCCL at hand (interface v5) that counts the network plugin's events:
 * how many of each kind began and ended, and their bytes. It prints one line for each
 * communicator when that is finalized. */
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

#include "nccl_common.h"
#include "nccl_profiler.h"
#include "profiler/net_ib_v1.h"
#include "profiler/net_socket_v1.h"

namespace
{

struct Counts {
    int rank = 0;
    std::atomic<long> began{0}, ended{0}, qp{0}, sock{0}, wrong{0}, bytes{0};
};

struct Event {
    Counts *of; /* of a network event; NULL: another one */
};

ncclResult_t init(void **context, uint64_t, int *mask, const char *, int, int, int rank,
                  ncclDebugLogger_t)
{
    auto *c = new Counts;
    c->rank = rank;
    *context = c;
    *mask = ncclProfileGroup | ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp |
            ncclProfileProxyStep | ncclProfileNetPlugin;
    return ncclSuccess;
}

void count(Counts *c, int64_t id, const void *data)
{
    c->began++;
    if (id == (NCCL_PROFILER_NET_TYPE_IB | NCCL_PROFILER_NET_IB_VER)) {
        auto *d = static_cast<const ncclProfilerNetIbDescr_v1_t *>(data);
        c->qp++;
        c->bytes += d->qp.length;
        c->wrong += d->type != ncclProfileQp || d->qp.device < 0 || d->qp.qpNum <= 0;
    } else if (id == (NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER)) {
        auto *d = static_cast<const ncclProfilerNetSockDescr_v1_t *>(data);
        c->sock++;
        c->bytes += d->sock.length;
        c->wrong += d->type != ncclProfileSocket || d->sock.fd < 0;
    } else {
        c->wrong++;
    }
}

ncclResult_t start(void *context, void **handle, ncclProfilerEventDescr_v5_t *d)
{
    auto *c = static_cast<Counts *>(context);
    bool net = d->type == ncclProfileNetPlugin;
    if (net)
        count(c, d->netPlugin.id, d->netPlugin.data);
    *handle = new Event{net ? c : nullptr};
    return ncclSuccess;
}

ncclResult_t stop(void *handle)
{
    auto *e = static_cast<Event *>(handle);
    if (e && e->of) {
        e->of->ended++;
        delete e; /* the others may be parents of events that are still to come */
    }
    return ncclSuccess;
}

ncclResult_t record(void *, ncclProfilerEventState_v5_t, ncclProfilerEventStateArgs_v5_t *)
{
    return ncclSuccess;
}

ncclResult_t finalize(void *context)
{
    auto *c = static_cast<Counts *>(context);
    char line[200];
    int n = snprintf(
        line, sizeof line,
        "[%d] profiler: %ld events began, %s; %ld of queue pairs, %ld of sockets, %ld wrong, "
        "%ld bytes\n",
        c->rank, c->began.load(), c->began == c->ended ? "all ended" : "not all ended",
        c->qp.load(), c->sock.load(), c->wrong.load(), c->bytes.load());
    return write(1, line, n) == n ? ncclSuccess : ncclSystemError;
}

} // namespace

extern "C" __attribute__((visibility("default"))) ncclProfiler_v5_t ncclProfiler_v5;
ncclProfiler_v5_t ncclProfiler_v5 = {"pvn-count", init, start, stop, record, finalize};

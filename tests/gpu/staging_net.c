/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "gpu/staging_net.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "perf/driver/netdrv.h"

/* Messages are of 512 KiB, up to four at a time in each direction, as in NCCL's proxy. */
enum { MESSAGE = 512 << 10, WINDOW = 4, ROUNDS = 12, LIMIT_S = 20 };

struct st_net {
    struct pvn_netdrv *d;
    void *ctx, *listen, *send, *recv;
};

static void quiet(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                  const char *fmt, ...)
{
}

static const char *join(struct st_net *n)
{
    static const ncclNetCommConfig_v12_t config = {0};
    char handle[NCCL_NET_HANDLE_MAXSIZE] __attribute__((aligned(8))) = {0};
    int devices = 0;
    double until = pvn_now_s() + LIMIT_S;
    if (pvn_netdrv_init(n->d, &n->ctx, 1, &config, quiet, NULL) ||
        pvn_netdrv_devices(n->d, &devices) || !devices)
        return "the plugin has no device";
    if (pvn_netdrv_listen(n->d, n->ctx, 0, handle, &n->listen))
        return "listen failed";
    while (!n->send || !n->recv) {
        if (!n->send && pvn_netdrv_connect(n->d, n->ctx, 0, handle, &n->send))
            return "connect failed";
        if (!n->recv && pvn_netdrv_accept(n->d, n->listen, &n->recv))
            return "accept failed";
        if (pvn_now_s() > until)
            return "no connection in time";
    }
    return NULL;
}

struct st_net *st_net_open(const char *plugin, char *why, size_t why_len)
{
    struct st_net *n = calloc(1, sizeof(*n));
    if (!n || pvn_netdrv_open(plugin, 0, &n->d, why, why_len)) {
        free(n);
        return NULL;
    }
    const char *failed = join(n);
    if (!failed)
        return n;
    snprintf(why, why_len, "%s", failed);
    st_net_close(n);
    return NULL;
}

void st_net_close(struct st_net *n)
{
    if (!n)
        return;
    if (n->send)
        pvn_netdrv_close_send(n->d, n->send);
    if (n->recv)
        pvn_netdrv_close_recv(n->d, n->recv);
    if (n->listen)
        pvn_netdrv_close_listen(n->d, n->listen);
    if (n->ctx)
        pvn_netdrv_finalize(n->d, n->ctx);
    pvn_netdrv_close(n->d);
    free(n);
}

/* One direction of a round. */
struct stream {
    void *comm, *handle, *open[WINDOW];
    char *base;
    size_t posted, done;
};

static const char *advance(struct pvn_netdrv *d, struct stream *s, size_t count, int receives)
{
    for (; s->posted < count && s->posted - s->done < WINDOW; s->posted++) {
        void **slot = &s->open[s->posted % WINDOW], *at = s->base + s->posted * MESSAGE;
        size_t size = MESSAGE;
        int tag = 0;
        *slot = NULL;
        if (receives ? pvn_netdrv_irecv(d, s->comm, 1, &at, &size, &tag, &s->handle, NULL, slot)
                     : pvn_netdrv_isend(d, s->comm, at, size, tag, s->handle, NULL, slot))
            return receives ? "irecv failed" : "isend failed";
        if (!*slot)
            break;
    }
    int done = 0;
    if (s->done < s->posted &&
        pvn_netdrv_test(d, s->open[s->done % WINDOW], &done, NULL) != ncclSuccess)
        return "test failed";
    s->done += (size_t)done;
    return NULL;
}

static const char *rounds(struct st_net *n, struct stream *out, struct stream *in, size_t count,
                          double *best)
{
    double until = pvn_now_s() + LIMIT_S;
    for (int i = 0; i < ROUNDS; i++) {
        double start = pvn_now_s();
        out->posted = out->done = in->posted = in->done = 0;
        while (out->done < count || in->done < count) {
            const char *failed = advance(n->d, in, count, 1);
            if (!failed)
                failed = advance(n->d, out, count, 0);
            if (failed || pvn_now_s() > until)
                return failed ? failed : "the messages did not arrive in time";
        }
        double gb = (double)(count * MESSAGE) * 1e-9 / (pvn_now_s() - start);
        *best = gb > *best ? gb : *best;
    }
    return NULL;
}

double st_net_rate(struct st_net *n, void *mem, size_t bytes, char *why, size_t why_len)
{
    struct stream out = {.comm = n->send, .base = mem};
    struct stream in = {.comm = n->recv, .base = (char *)mem + bytes / 2};
    double best = 0;
    const char *failed = NULL;
    if (pvn_netdrv_reg_mr(n->d, n->send, mem, bytes, NCCL_PTR_HOST, &out.handle) ||
        pvn_netdrv_reg_mr(n->d, n->recv, mem, bytes, NCCL_PTR_HOST, &in.handle))
        failed = "the plugin did not register the memory";
    if (!failed)
        failed = rounds(n, &out, &in, bytes / 2 / MESSAGE, &best);
    if (failed) {
        snprintf(why, why_len, "%s", failed);
        return -1;
    }
    pvn_netdrv_dereg_mr(n->d, n->send, out.handle);
    pvn_netdrv_dereg_mr(n->d, n->recv, in.handle);
    return best;
}

/*
 * Both ends of one comm of the plugin in one process, on softverbs, eight messages in flight: what
 * instructions.sh counts. One thread calls everything and the device works inside the calls, so two
 * runs do the same. Prints nothing; exits with 1 and a sentence when something fails.
 * usage: messages PLUGIN COUNT BYTES, environment as softverbs needs it
 */
#include <stdio.h>
#include <stdlib.h>

#include "plugin/perf/netdrv.h"

enum { DEPTH = 8 };

static struct pvn_netdrv *drv;

static void check(ncclResult_t rc, const char *what)
{
    if (rc == ncclSuccess)
        return;
    fprintf(stderr, "messages: %s: %s\n", what, pvn_netdrv_strerror(rc));
    exit(1);
}

static void quiet(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                  const char *fmt, ...)
{
}

struct end {
    void *comm, *mr;
    char *buf;
    void *req[DEPTH];
    long posted, done;
};

void move_messages(struct end *s, struct end *r, long count, size_t size);

static void reg(struct end *e, size_t size)
{
    e->buf = calloc(DEPTH, size);
    if (!e->buf)
        exit(1);
    check(pvn_netdrv_reg_mr(drv, e->comm, e->buf, DEPTH * size, NCCL_PTR_HOST, &e->mr), "regMr");
}

static void test_oldest(struct end *e)
{
    int done = 0, size;
    if (e->done == e->posted)
        return;
    check(pvn_netdrv_test(drv, e->req[e->done % DEPTH], &done, &size), "test");
    e->done += done;
}

/* Kept apart by name: only what runs below it is counted. */
__attribute__((noinline)) void move_messages(struct end *s, struct end *r, long count, size_t size)
{
    while (s->done < count || r->done < count) {
        if (r->posted < count && r->posted - r->done < DEPTH) {
            void *data = r->buf + (size_t)(r->posted % DEPTH) * size,
                 **req = &r->req[r->posted % DEPTH];
            int tag = 0;
            *req = NULL;
            check(pvn_netdrv_irecv(drv, r->comm, 1, &data, &size, &tag, &r->mr, NULL, req),
                  "irecv");
            r->posted += *req != NULL;
        }
        if (s->posted < count && s->posted - s->done < DEPTH) {
            void **req = &s->req[s->posted % DEPTH];
            check(pvn_netdrv_isend(drv, s->comm, s->buf + (size_t)(s->posted % DEPTH) * size, size,
                                   0, s->mr, NULL, req),
                  "isend");
            s->posted += *req != NULL;
        }
        test_oldest(s);
        test_oldest(r);
    }
}

int main(int argc, char **argv)
{
    static char handle[NCCL_NET_HANDLE_MAXSIZE] __attribute__((aligned(8)));
    ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    void *ctx, *listener = NULL;
    struct end s = {0}, r = {0};
    char msg[512];
    if (argc != 4)
        return 2;
    long count = atol(argv[2]);
    size_t size = strtoul(argv[3], NULL, 10);
    if (pvn_netdrv_open(argv[1], 0, &drv, msg, sizeof(msg)) != 0) {
        fprintf(stderr, "messages: %s\n", msg);
        return 1;
    }
    check(pvn_netdrv_init(drv, &ctx, 1, &config, quiet, NULL), "init");
    check(pvn_netdrv_listen(drv, ctx, 0, handle, &listener), "listen");
    while (!s.comm || !r.comm) {
        if (!s.comm)
            check(pvn_netdrv_connect(drv, ctx, 0, handle, &s.comm), "connect");
        if (!r.comm)
            check(pvn_netdrv_accept(drv, listener, &r.comm), "accept");
    }
    reg(&s, size);
    reg(&r, size);
    move_messages(&s, &r, count, size);
    check(pvn_netdrv_dereg_mr(drv, s.comm, s.mr), "deregMr");
    check(pvn_netdrv_dereg_mr(drv, r.comm, r.mr), "deregMr");
    check(pvn_netdrv_close_send(drv, s.comm), "closeSend");
    check(pvn_netdrv_close_recv(drv, r.comm), "closeRecv");
    check(pvn_netdrv_close_listen(drv, listener), "closeListen");
    check(pvn_netdrv_finalize(drv, ctx), "finalize");
    free(s.buf);
    free(r.buf);
    return 0;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that instructions.sh counts: both ends of one comm of the plugin in one process, on
 * softverbs, with DEPTH messages in flight. One thread makes all calls and the device works inside
 * them, so two runs do the same. The first run writes to OUTCOMES which calls succeeded. The second
 * run reads that, and makes the other calls from functions of their own. Then it makes COUNT calls
 * of each kind that fail to complete. It prints the number of these isends, tests of a receive and
 * tests of a send, and on a second line the device's counts while messages moved, as name=value. It
 * exits with 1 and a message if something fails or differs from the first run. If softverbs plays
 * several adapters, the comm uses all of them.
 * usage: messages PLUGIN COUNT BYTES DEPTH OUTCOMES, environment as softverbs needs it
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin/perf/driver/netdrv.h"
#include "tests/softverbs/softverbs.h"

enum { MAX_DEPTH = 32 };

static struct pvn_netdrv *drv;

static void check(ncclResult_t rc, const char *what)
{
    if (rc == ncclSuccess)
        return;
    fprintf(stderr, "messages: %s: %s\n", what, pvn_netdrv_strerror(rc));
    exit(1);
}

static void no_log(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
}

struct end {
    void *comm, *mr;
    char *buf;
    void *req[MAX_DEPTH];
    long posted, done;
};

/* '+' for each isend and test of the messages that succeeded, '-' for one that did not */
static struct {
    FILE *file;
    bool written; /* by the first run */
} outcomes;

/* instructions.sh knows these by name, so they are neither inlined nor static. */
void move_messages(struct end *s, struct end *r, long count, size_t size, int depth);
void post_receive(struct end *e, size_t size, int depth);
void post_send(struct end *e, size_t size, int depth);
void post_send_to_no_end(struct end *e, size_t size, int depth);
void test_oldest(struct end *e, int depth);
void test_to_no_end(struct end *e, int depth);
void send_in_vain(struct end *e, size_t size);
void test_of_receive(struct end *e);
void test_of_send(struct end *e);

static void reg(struct end *e, size_t size, int depth)
{
    size_t len = (size_t)depth * size;
    e->buf = calloc(1, len);
    if (!e->buf)
        exit(1);
    check(pvn_netdrv_reg_mr(drv, e->comm, e->buf, len, NCCL_PTR_HOST, &e->mr), "regMr");
}

__attribute__((noinline)) void post_receive(struct end *e, size_t size, int depth)
{
    void *data = e->buf + (size_t)(e->posted % depth) * size, **req = &e->req[e->posted % depth];
    int tag = 0;
    *req = NULL;
    check(pvn_netdrv_irecv(drv, e->comm, 1, &data, &size, &tag, &e->mr, NULL, req), "irecv");
    e->posted += *req != NULL;
}

/* Returns the next call's outcome in the first run. In the first run itself it returns true. */
static bool expected(void)
{
    return !outcomes.written || fgetc(outcomes.file) == '+';
}

static void record(bool something, bool was_expected)
{
    if (!outcomes.written) {
        fputc(something ? '+' : '-', outcomes.file);
    } else if (something != was_expected) {
        fprintf(stderr, "messages: the second run is not as the first was\n");
        exit(1);
    }
}

static inline bool isend(struct end *e, size_t size, int depth)
{
    void *data = e->buf + (size_t)(e->posted % depth) * size, **req = &e->req[e->posted % depth];
    check(pvn_netdrv_isend(drv, e->comm, data, size, 0, e->mr, NULL, req), "isend");
    e->posted += *req != NULL;
    return *req != NULL;
}

__attribute__((noinline)) void post_send(struct end *e, size_t size, int depth)
{
    record(isend(e, size, depth), true);
}

__attribute__((noinline)) void post_send_to_no_end(struct end *e, size_t size, int depth)
{
    record(isend(e, size, depth), false);
}

static void post_some_send(struct end *e, size_t size, int depth)
{
    (expected() ? post_send : post_send_to_no_end)(e, size, depth);
}

static inline bool test(struct end *e, int depth)
{
    int done = 0, size;
    check(pvn_netdrv_test(drv, e->req[e->done % depth], &done, &size), "test");
    e->done += done;
    return done;
}

__attribute__((noinline)) void test_oldest(struct end *e, int depth)
{
    record(test(e, depth), true);
}

__attribute__((noinline)) void test_to_no_end(struct end *e, int depth)
{
    record(test(e, depth), false);
}

static void test_some(struct end *e, int depth)
{
    (expected() ? test_oldest : test_to_no_end)(e, depth);
}

/* Posts until the window is full or a call finds no room. */
static void fill(struct end *e, void (*post)(struct end *, size_t, int), long count, size_t size,
                 int depth)
{
    long before = -1;
    while (e->posted < count && e->posted - e->done < depth && e->posted != before) {
        before = e->posted;
        post(e, size, depth);
    }
}

__attribute__((noinline)) void move_messages(struct end *s, struct end *r, long count, size_t size,
                                             int depth)
{
    while (s->done < count || r->done < count) {
        fill(r, post_receive, count, size, depth);
        fill(s, post_some_send, count, size, depth);
        if (s->done < s->posted)
            test_some(s, depth);
        if (r->done < r->posted)
            test_some(r, depth);
    }
}

static void one_isend(struct end *e, size_t size)
{
    check(pvn_netdrv_isend(drv, e->comm, e->buf, size, 0, e->mr, NULL, &e->req[0]), "isend");
}

static void one_test(struct end *e)
{
    int done = 0, size;
    check(pvn_netdrv_test(drv, e->req[0], &done, &size), "test");
    if (done)
        e->req[0] = NULL;
}

__attribute__((noinline)) void send_in_vain(struct end *e, size_t size)
{
    one_isend(e, size);
}

__attribute__((noinline)) void test_of_receive(struct end *e)
{
    one_test(e);
}

__attribute__((noinline)) void test_of_send(struct end *e)
{
    one_test(e);
}

/* Moves one more message: sent before it can be, with its receive tested before it is sent, and
 * its send tested before the receiver has acknowledged it. A sender may learn from its queue that
 * it is done nevertheless. */
static void in_vain(struct end *s, struct end *r, long count, size_t size)
{
    void *data = r->buf;
    int tag = 0;
    long sends = 0, of_receive = 0, of_send = 0;
    s->req[0] = r->req[0] = NULL;
    /* In send mode an isend needs no clear-to-send. */
    for (; sends < count && !s->req[0]; sends += !s->req[0])
        send_in_vain(s, size);
    bool early = s->req[0];
    if (!early) {
        check(pvn_netdrv_irecv(drv, r->comm, 1, &data, &size, &tag, &r->mr, NULL, &r->req[0]),
              "irecv");
        for (; of_receive < count; of_receive++)
            test_of_receive(r);
    }
    while (!s->req[0] && !early)
        one_isend(s, size);
    for (; of_send < count && s->req[0]; of_send += s->req[0] != NULL)
        test_of_send(s);
    printf("%ld %ld %ld\n", sends, of_receive, of_send);
    if (early)
        check(pvn_netdrv_irecv(drv, r->comm, 1, &data, &size, &tag, &r->mr, NULL, &r->req[0]),
              "irecv");
    while (r->req[0] || s->req[0])
        one_test(r->req[0] ? r : s);
}

/* Returns the only device, or one that joins all. */
static int device(void)
{
    ncclNetVDeviceProps_v12_t all = {0};
    int n, dev = 0;
    check(pvn_netdrv_devices(drv, &n), "devices");
    for (int i = 0; i < n && i < NCCL_NET_MAX_DEVS_PER_NIC_V12; i++)
        all.devs[all.ndevs++] = i;
    if (n > 1)
        check(pvn_netdrv_make_vdevice(drv, &dev, &all), "makeVDevice");
    return dev;
}

/* The plugin has loaded this file, too, so its counts are found here. */
static struct sv_stats device_counts(void)
{
    struct sv_stats now;
    const char *path = getenv("NCCL_PVRDMA_VERBS_LIB");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void (*get)(struct sv_stats *) = NULL;
    if (lib)
        *(void **)&get = dlsym(lib, "sv_total_stats");
    if (!get) {
        fprintf(stderr, "messages: the plugin has not loaded the software verbs that "
                        "NCCL_PVRDMA_VERBS_LIB names\n");
        exit(1);
    }
    get(&now);
    dlclose(lib);
    return now;
}

static void print_counts(const struct sv_stats *from, const struct sv_stats *to)
{
#define SINCE(field) (unsigned long long)(to->field - from->field)
    printf("doorbells=%llu send_wr=%llu recv_wr=%llu cqe=%llu post_send=%llu post_recv=%llu "
           "poll=%llu poll_empty=%llu\n",
           SINCE(doorbells), SINCE(send_wr), SINCE(recv_wr), SINCE(cqe), SINCE(post_send),
           SINCE(post_recv), SINCE(poll), SINCE(poll_empty));
#undef SINCE
}

int main(int argc, char **argv)
{
    static char handle[NCCL_NET_HANDLE_MAXSIZE] __attribute__((aligned(8)));
    ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    void *ctx, *listener = NULL;
    struct end s = {0}, r = {0};
    char msg[512];
    if (argc != 6)
        return 2;
    long count = atol(argv[2]);
    size_t size = strtoul(argv[3], NULL, 10);
    int depth = atoi(argv[4]);
    if (depth < 1 || depth > MAX_DEPTH)
        return 2;
    if (pvn_netdrv_open(argv[1], 0, &drv, msg, sizeof(msg)) != 0) {
        fprintf(stderr, "messages: %s\n", msg);
        return 1;
    }
    check(pvn_netdrv_init(drv, &ctx, 1, &config, no_log, NULL), "init");
    int dev = device();
    check(pvn_netdrv_listen(drv, ctx, dev, handle, &listener), "listen");
    while (!s.comm || !r.comm) {
        if (!s.comm)
            check(pvn_netdrv_connect(drv, ctx, dev, handle, &s.comm), "connect");
        if (!r.comm)
            check(pvn_netdrv_accept(drv, listener, &r.comm), "accept");
    }
    reg(&s, size, depth);
    reg(&r, size, depth);
    outcomes.file = fopen(argv[5], "r");
    outcomes.written = outcomes.file;
    if (!outcomes.file && !(outcomes.file = fopen(argv[5], "w"))) {
        fprintf(stderr, "messages: %s cannot be written\n", argv[5]);
        return 1;
    }
    struct sv_stats before = device_counts();
    move_messages(&s, &r, count, size, depth);
    struct sv_stats after = device_counts();
    fclose(outcomes.file);
    in_vain(&s, &r, count, size);
    print_counts(&before, &after);
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

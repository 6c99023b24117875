/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "gpu/lost_lane.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Only writes of at least LOST_MIN bytes may be lost. Any WINDOW messages in a row have one. */
enum { WINDOW = 4, LOST_MIN = 65536, SLOT = 320 << 10, SET_UP_S = 20 };

struct ll_message ll_message(int i)
{
    static const size_t sizes[] = {1, 300000, 292, 70001, 4096, 131072};
    size_t at = (size_t)(i / LL_BUFFERS) * SLOT;
    return (struct ll_message){
        .from = at + 5, .to = at + 1, .len = sizes[(size_t)i % (sizeof(sizes) / sizeof(sizes[0]))]};
}

/* ---- what the plugin's log says ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ll_seen logged;

/* Parses "... connected again after 0.012 s: rdma on mlx5_0, ...". */
static void note_failover(const char *text)
{
    const char *after = strstr(text, "connected again after "), *lanes;
    if (!after)
        return;
    after += strlen("connected again after ");
    lanes = strstr(after, ": ");
    logged.again++;
    logged.elsewhere += !lanes || strncmp(lanes + 2, "rdma on ", 8) || strstr(lanes, "tcp on ");
    snprintf(logged.after, sizeof(logged.after), "%.*s", lanes ? (int)(lanes - after) : 0, after);
    snprintf(logged.lanes, sizeof(logged.lanes), "%.*s", lanes ? (int)strcspn(lanes + 2, ";") : 0,
             lanes ? lanes + 2 : "");
}

/* Parses "... the new lanes do not take the memory that is registered: REASON; others are tried". */
static void note_refusal(const char *text)
{
    static const char words[] = "do not take the memory that is registered: ";
    const char *at = strstr(text, words);
    if (!at)
        return;
    logged.refused++;
    snprintf(logged.refusal, sizeof(logged.refusal), "%s", at + strlen(words));
}

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    if (level == NCCL_LOG_TRACE)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&log_lock);
    fprintf(stderr, "%d %s %s\n", (int)getpid(), level == NCCL_LOG_WARN ? "WARN" : "INFO", text);
    note_failover(text);
    note_refusal(text);
    logged.elsewhere += strstr(text, "copied through host memory") != NULL;
    pthread_mutex_unlock(&log_lock);
}

struct ll_seen ll_seen(const struct ll_rank *r)
{
    pthread_mutex_lock(&log_lock);
    struct ll_seen seen = logged;
    pthread_mutex_unlock(&log_lock);
    seen.dmabufs = r->rule_seen("dmabufs");
    return seen;
}

long long ll_relaxed(const struct ll_rank *r)
{
    char reply[1024] = "";
    r->command("stat", reply, sizeof(reply));
    const char *at = strstr(reply, " relaxed=");
    return at ? atoll(at + strlen(" relaxed=")) : 0;
}

/* ---- set-up ---- */

/* Counts this process's descriptors of GPU memory: dma-bufs, or the files that the double of CUDA
 * has instead. */
static int open_dmabufs(void)
{
    DIR *d = opendir("/proc/self/fd");
    const struct dirent *e;
    int n = 0;
    while (d && (e = readdir(d)) != NULL) {
        char to[256];
        ssize_t len = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);
        to[len > 0 ? len : 0] = '\0';
        n += strstr(to, "dmabuf") || strstr(to, "memfd:fakecuda");
    }
    if (d)
        closedir(d);
    return n;
}

/* Registers a buffer as NCCL does, which closes its descriptor after the registration. */
static bool register_buffer(struct ll_rank *r, struct ll_buffer *b)
{
    void *data = (void *)(uintptr_t)b->at;
    int fd = -1;
    ncclResult_t rc;
    if (r->by_dmabuf) {
        int cr = ll_gpu_export(&fd, b->at, LL_BYTES);
        if (cr)
            return ll_fail(r, "cuMemGetHandleForAddressRange: CUDA error %d", cr);
        rc = pvn_netdrv_reg_dmabuf(r->d, r->comm, data, LL_BYTES, NCCL_PTR_CUDA, 0, fd, &b->mh);
        close(fd);
    } else {
        rc = pvn_netdrv_reg_mr(r->d, r->comm, data, LL_BYTES, NCCL_PTR_CUDA, &b->mh);
    }
    return !rc || ll_fail(r, "registering a buffer: %s", pvn_netdrv_strerror(rc));
}

static bool open_buffers(struct ll_rank *r)
{
    for (int b = 0; b < LL_BUFFERS; b++) {
        int cr = ll_gpu_alloc(&r->buf[b].at, LL_BYTES);
        if (cr)
            return ll_fail(r, "cuMemAlloc: CUDA error %d", cr);
    }
    int before = open_dmabufs();
    for (int b = 0; b < LL_BUFFERS; b++)
        if (!register_buffer(r, &r->buf[b]))
            return false;
    int kept = open_dmabufs() - before;
    return !kept || ll_fail(r, "%d descriptors were kept for %d buffers", kept, LL_BUFFERS);
}

static bool connect_ranks(struct ll_rank *r)
{
    struct ll_shared *s = r->shared;
    double until = pvn_now_s() + SET_UP_S;
    if (!r->sender) {
        if (pvn_netdrv_listen(r->d, r->ctx, 0, s->handle, &r->listen))
            return ll_fail(r, "listen failed");
        atomic_store(&s->listens, 1);
    }
    while (r->sender && !atomic_load(&s->listens)) {
        if (!ll_goes_on(r, until, "listening"))
            return false;
        usleep(1000);
    }
    while (!r->comm) {
        ncclResult_t rc = r->sender ? pvn_netdrv_connect(r->d, r->ctx, 0, s->handle, &r->comm)
                                    : pvn_netdrv_accept(r->d, r->listen, &r->comm);
        if (rc)
            return ll_fail(r, "no connection: %s", pvn_netdrv_strerror(rc));
        if (!ll_goes_on(r, until, "connecting"))
            return false;
        usleep(50);
    }
    return true;
}

/* Finds the functions that control the software verbs that the plugin has loaded. The rule only
 * counts. */
static bool find_software_verbs(struct ll_rank *r)
{
    const char *path = getenv("NCCL_PVRDMA_VERBS_LIB");
    const struct {
        const char *name;
        void *to;
    } names[] = {{"sv_command", &r->command},
                 {"sv_rule_seen", &r->rule_seen},
                 {"sv_rule_fired", &r->rule_fired}};
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *f = lib ? dlsym(lib, names[i].name) : NULL;
        if (!f)
            return ll_fail(r, "NCCL_PVRDMA_VERBS_LIB does not name the software verbs");
        memcpy(names[i].to, &f, sizeof(f));
    }
    return !r->command("rule dmabufs fail call=reg_dmabuf_mr errno=EIO nth=1000000", NULL, 0) ||
           ll_fail(r, "the software verbs take no rule");
}

static bool join(struct ll_rank *r)
{
    static const ncclNetCommConfig_v12_t config = {.trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF};
    ncclNetProperties_v12_t props;
    int devices = 0;
    char why[256];
    if (pvn_netdrv_open(r->opt->plugin, 0, &r->d, why, sizeof(why)))
        return ll_fail(r, "%s", why);
    if (pvn_netdrv_init(r->d, &r->ctx, 1, &config, logger, NULL) ||
        pvn_netdrv_devices(r->d, &devices) || !devices || pvn_netdrv_properties(r->d, 0, &props))
        return ll_fail(r, "the plugin has no device");
    if (!(props.ptrSupport & NCCL_PTR_CUDA))
        return ll_fail(r, "%s does not reach GPU memory: only staged", props.name);
    r->by_dmabuf = props.ptrSupport & NCCL_PTR_DMABUF;
    return find_software_verbs(r) && connect_ranks(r) && open_buffers(r);
}

static void join_in_context(void *arg)
{
    struct ll_rank *r = arg;
    if (!join(r))
        atomic_store(&r->shared->failed, 1);
}

bool ll_open(struct ll_rank *r)
{
    ll_gpu_call(join_in_context, r);
    return !atomic_load(&r->shared->failed);
}

static void close_in_context(void *arg)
{
    struct ll_rank *r = arg;
    for (int b = 0; b < LL_BUFFERS; b++)
        pvn_netdrv_dereg_mr(r->d, r->comm, r->buf[b].mh);
    if (r->sender)
        pvn_netdrv_close_send(r->d, r->comm);
    else
        pvn_netdrv_close_recv(r->d, r->comm);
    if (r->listen)
        pvn_netdrv_close_listen(r->d, r->listen);
    pvn_netdrv_finalize(r->d, r->ctx);
    pvn_netdrv_close(r->d);
}

void ll_close(struct ll_rank *r)
{
    ll_gpu_call(close_in_context, r);
}

/* ---- messages ---- */

struct traffic {
    void *open[WINDOW];
    int posted, done;
};

static bool is_lost(const struct ll_rank *r, enum ll_time time)
{
    char name[16];
    snprintf(name, sizeof(name), "lost%d", (int)time);
    return r->rule_fired(name) > 0;
}

/* Breaks the queue pair of the next large write. */
static bool lose_next(struct ll_rank *r, enum ll_time time)
{
    char rule[128];
    snprintf(rule, sizeof(rule), "rule lost%d status status=RETRY_EXC_ERR min_len=%d", (int)time,
             LOST_MIN);
    return !r->command(rule, NULL, 0) || ll_fail(r, "the software verbs do not take: %s", rule);
}

static bool post_send(struct ll_rank *r, struct traffic *t)
{
    struct ll_message m = ll_message(t->posted);
    const struct ll_buffer *b = &r->buf[t->posted % LL_BUFFERS];
    void **slot = &t->open[t->posted % WINDOW];
    *slot = NULL;
    ncclResult_t rc = pvn_netdrv_isend(r->d, r->comm, (void *)(uintptr_t)(b->at + m.from), m.len, 0,
                                       b->mh, NULL, slot);
    t->posted += *slot != NULL;
    return !rc || ll_fail(r, "isend: %s", pvn_netdrv_strerror(rc));
}

/* Tests the oldest request. If it is done, *size is the size of the message. */
static bool test_oldest(struct ll_rank *r, const struct traffic *t, int *done, int *size)
{
    *done = 0;
    if (t->done == t->posted)
        return true;
    ncclResult_t rc = pvn_netdrv_test(r->d, t->open[t->done % WINDOW], done, size);
    return !rc || ll_fail(r, "test: %s", pvn_netdrv_strerror(rc));
}

/* True if the sender must wait before its next message. */
static bool holds(const struct ll_rank *r, enum ll_time time, const struct traffic *t, bool armed)
{
    return t->posted == LL_MESSAGES || t->posted - t->done == WINDOW ||
           (t->posted == LL_BEFORE && !armed) ||
           (time == LL_SENDER_SLEEPS && armed && !atomic_load(&r->shared->lost[time]) &&
            is_lost(r, time));
}

/* True once the queue pair may be lost: after the first messages, and, if the receiver should
 * sleep, when it does. */
static bool is_time(const struct ll_rank *r, enum ll_time time, const struct traffic *t)
{
    return t->posted == LL_BEFORE &&
           (time != LL_RECEIVER_SLEEPS || atomic_load(&r->shared->sleeps[time]));
}

bool ll_send(struct ll_rank *r, enum ll_time time, double until)
{
    struct traffic t = {0};
    bool armed = false;
    int done;
    while (t.done < LL_MESSAGES) {
        if (!ll_goes_on(r, until, "sending"))
            return false;
        if (!armed && is_time(r, time, &t)) {
            armed = true;
            if (!lose_next(r, time))
                return false;
        }
        while (!holds(r, time, &t, armed)) {
            int before = t.posted;
            if (!post_send(r, &t))
                return false;
            if (t.posted == before)
                break;
        }
        if (armed && !atomic_load(&r->shared->lost[time]) && is_lost(r, time)) {
            atomic_store(&r->shared->lost[time], 1);
            if (time == LL_SENDER_SLEEPS)
                sleep((unsigned)r->opt->sleep_s);
        }
        if (!test_oldest(r, &t, &done, NULL))
            return false;
        t.done += done;
    }
    return atomic_load(&r->shared->lost[time]) || ll_fail(r, "the rule met no write");
}

static bool post_receive(struct ll_rank *r, struct traffic *t)
{
    struct ll_message m = ll_message(t->posted);
    struct ll_buffer *b = &r->buf[t->posted % LL_BUFFERS];
    void **slot = &t->open[t->posted % WINDOW], *data = (void *)(uintptr_t)(b->at + m.to);
    int tag = 0;
    *slot = NULL;
    ncclResult_t rc = pvn_netdrv_irecv(r->d, r->comm, 1, &data, &m.len, &tag, &b->mh, NULL, slot);
    t->posted += *slot != NULL;
    return !rc || ll_fail(r, "irecv: %s", pvn_netdrv_strerror(rc));
}

/* Flushes as NCCL does for each message before the GPU may read it. */
static bool flush(struct ll_rank *r, int i, double until)
{
    struct ll_message m = ll_message(i);
    struct ll_buffer *b = &r->buf[i % LL_BUFFERS];
    void *data = (void *)(uintptr_t)(b->at + m.to), *request = NULL;
    int size = (int)m.len, done = 0;
    ncclResult_t rc = pvn_netdrv_iflush(r->d, r->comm, 1, &data, &size, &b->mh, &request);
    while (!rc && request && !done) {
        if (!ll_goes_on(r, until, "a flush"))
            return false;
        rc = pvn_netdrv_test(r->d, request, &done, NULL);
    }
    return !rc || ll_fail(r, "flush: %s", pvn_netdrv_strerror(rc));
}

/* The posted receives have already been announced. The receiver makes no call until a lane is
 * lost, and for a while after that. */
static bool sleep_over_the_loss(struct ll_rank *r, enum ll_time time, double until)
{
    atomic_store(&r->shared->sleeps[time], 1);
    while (!atomic_load(&r->shared->lost[time])) {
        if (!ll_goes_on(r, until, "waiting for the loss of a lane"))
            return false;
        usleep(1000);
    }
    sleep((unsigned)r->opt->sleep_s);
    return true;
}

bool ll_receive(struct ll_rank *r, enum ll_time time, double until)
{
    enum { ANNOUNCES = 100 }; /* calls in which receives that are posted are announced */
    struct traffic t = {0};
    int done, size, calls = 0;
    while (t.done < LL_MESSAGES) {
        if (!ll_goes_on(r, until, "receiving"))
            return false;
        while (t.posted < LL_MESSAGES && t.posted - t.done < WINDOW) {
            int before = t.posted;
            if (!post_receive(r, &t))
                return false;
            if (t.posted == before)
                break;
        }
        if (!test_oldest(r, &t, &done, &size))
            return false;
        if (done && (size_t)size != ll_message(t.done).len)
            return ll_fail(r, "message %d has %d bytes", t.done, size);
        if (done && !flush(r, t.done, until))
            return false;
        t.done += done;
        if (time == LL_RECEIVER_SLEEPS && t.done == LL_BEFORE && ++calls == ANNOUNCES &&
            !sleep_over_the_loss(r, time, until))
            return false;
    }
    return true;
}

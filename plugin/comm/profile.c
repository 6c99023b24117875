/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"
#include "comm/profile.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/device.h"
#include "nccl/profiler.h"

enum {
    SEND_RING = PVN_MAX_SENDS,
    RECV_RING = 2 * PVN_MAX_REQS,
    OPEN_MAX = 1024,       /* events that have started; further ones are not reported */
    WHOLE_BUFFER = 0xffff, /* `chunk` of an event that stands for a buffer */
    LIBRARIES_MAX = 512
};

/* The opcode of a receive, which has none of its own when it is posted: IBV_WC_RECV of enum
 * ibv_wc_opcode. */
enum { OPCODE_RECV = 128 };

struct open_event {
    void *event; /* the profiler's */
    uint32_t id;
    uint16_t chunk;
    uint8_t recv;
    uint64_t got; /* WHOLE_BUFFER: bytes that have arrived */
};

struct send_handle {
    uint64_t message;
    void *handle;
};

struct recv_handles {
    uint64_t slot;
    int n;
    struct {
        const char *data;
        size_t size;
        void *handle;
    } buf[PVN_MAX_RECVS];
};

struct profiled_lane {
    struct pvn_profile *profile;
    struct pvn_lane *lane;
    int dev;
};

struct pvn_profile {
    ncclProfilerCallback_t callback;
    int nlanes;
    struct profiled_lane lane[PVN_MAX_LANES];
    struct send_handle sends[SEND_RING];
    struct recv_handles receives[RECV_RING];
    int nopen;
    struct open_event open[OPEN_MAX];
};

static _Atomic(ncclProfilerCallback_t) nccl_callback;

void pvn_profile_set_callback(ncclProfilerCallback_t callback)
{
    atomic_store(&nccl_callback, callback);
}

/* ---- whether there is a profiler ---- */

struct libraries {
    int n;
    char *name[LIBRARIES_MAX];
};

static int collect(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct libraries *l = arg;

    (void)size;
    if (l->n < LIBRARIES_MAX && info->dlpi_name && *info->dlpi_name &&
        (l->name[l->n] = strdup(info->dlpi_name)))
        l->n++;
    return 0;
}

/* True if the library has a symbol of the profiler's interface, from the oldest version to the
 * newest that may come. */
static bool is_profiler(void *library)
{
    char symbol[32];

    for (int v = 1; v <= 12; v++) {
        snprintf(symbol, sizeof(symbol), "ncclProfiler_v%d", v);
        if (dlsym(library, symbol))
            return true;
    }
    return false;
}

/* Searches this process for a profiler, because NCCL says nowhere whether it has loaded one. The
 * symbols of its interface are in the profiler's own table or, if it is linked into the program, in
 * that of the program. */
static bool search(void)
{
    struct libraries all = {.n = 0};
    void *program = dlopen(NULL, RTLD_LAZY);
    bool found = program && is_profiler(program);

    if (program)
        dlclose(program);
    /* dlopen must not be called while the list is walked. */
    dl_iterate_phdr(collect, &all);
    for (int i = 0; i < all.n; i++) {
        void *library = found ? NULL : dlopen(all.name[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = is_profiler(library);
            dlclose(library);
        }
        free(all.name[i]);
    }
    return found;
}

struct loads {
    unsigned long long added, removed;
};

static int count_loads(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct loads *l = arg;

    (void)size;
    *l = (struct loads){info->dlpi_adds, info->dlpi_subs};
    return 1; /* they are the same for all libraries */
}

/* Searches only if libraries have come or gone: a search takes 3 to 14 ms among 412 libraries, and
 * a process may have a thousand comms. A thread that finds another one at it, or the child of a
 * process in which one was, searches without a record. */
static bool profiler_loaded(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct loads then;
    static bool found;
    struct loads now = {0, 0};
    bool answer;

    dl_iterate_phdr(count_loads, &now);
    if (pthread_mutex_trylock(&lock) != 0)
        return search();
    if (now.added != then.added || now.removed != then.removed) {
        found = search();
        then = now;
    }
    answer = found;
    pthread_mutex_unlock(&lock);
    return answer;
}

/* ---- events ---- */

static void start(struct pvn_profile *p, const struct open_event *what, void *handle,
                  int64_t plugin_id, void *descr)
{
    void *event = NULL;

    if (!handle || p->nopen == OPEN_MAX)
        return;
    p->callback(&event, ncclProfilerNetEventStart, handle, plugin_id, descr);
    /* A profiler that takes no such events leaves this NULL. */
    if (!event)
        return;
    p->open[p->nopen] = *what;
    p->open[p->nopen++].event = event;
}

static struct open_event *find_event(struct pvn_profile *p, uint32_t id, uint8_t recv,
                                     uint16_t chunk)
{
    for (int i = 0; i < p->nopen; i++) {
        struct open_event *o = &p->open[i];
        if (o->id == id && o->recv == recv && o->chunk == chunk)
            return o;
    }
    return NULL;
}

static void stop(struct pvn_profile *p, struct open_event *o)
{
    if (!o)
        return;
    p->callback(&o->event, ncclProfilerNetEventStop, NULL, 0, NULL);
    *o = p->open[--p->nopen];
}

static void start_qp(const struct profiled_lane *o, const struct open_event *what, void *handle,
                     const struct pvn_transfer *t, size_t length)
{
    ncclProfilerNetIbDescr_v1_t d = {.type = ncclProfileQp};

    d.qp.device = o->dev;
    d.qp.wr_id = t->wr_id;
    d.qp.opcode = t->opcode;
    d.qp.qpNum = (int)t->qpn;
    d.qp.length = length;
    start(o->profile, what, handle, NCCL_PROFILER_NET_TYPE_IB | NCCL_PROFILER_NET_IB_VER, &d);
}

static void start_socket(struct pvn_profile *p, const struct open_event *what, void *handle,
                         const struct pvn_transfer *t)
{
    ncclProfilerNetSockDescr_v1_t d = {.type = ncclProfileSocket};

    d.sock.fd = t->fd;
    d.sock.op = t->dst ? NCCL_SOCKET_RECV : NCCL_SOCKET_SEND;
    d.sock.length = t->len;
    start(p, what, handle, NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER, &d);
}

/* ---- handles ---- */

void pvn_profile_send(struct pvn_profile *p, uint64_t message, void *handle)
{
    p->sends[message % SEND_RING] = (struct send_handle){message, handle};
}

void pvn_profile_receive(struct pvn_profile *p, uint64_t slot, int n, void *const *data,
                         const size_t *sizes, void *const *handles)
{
    struct recv_handles *r = &p->receives[slot % RECV_RING];

    r->slot = slot;
    r->n = handles && n <= PVN_MAX_RECVS ? n : 0;
    for (int i = 0; i < r->n; i++) {
        r->buf[i].data = data[i];
        r->buf[i].size = sizes[i];
        r->buf[i].handle = handles[i];
    }
}

static void *handle_of_send(const struct pvn_profile *p, uint32_t id)
{
    const struct send_handle *s = &p->sends[id % SEND_RING];

    return pvn_id(s->message) == id ? s->handle : NULL;
}

/* The handle of the newest receive whose buffer holds this address. */
static void *handle_of_address(const struct pvn_profile *p, const char *at)
{
    const struct recv_handles *newest = NULL;
    void *handle = NULL;

    for (int s = 0; s < RECV_RING; s++) {
        const struct recv_handles *r = &p->receives[s];
        for (int i = 0; i < r->n; i++) {
            bool inside = at >= r->buf[i].data && at < r->buf[i].data + r->buf[i].size;
            if (inside && (!newest || r->slot > newest->slot)) {
                newest = r;
                handle = r->buf[i].handle;
            }
        }
    }
    return handle;
}

/* ---- what the lanes do ---- */

static const struct profiled_lane *of(const struct pvn_lane *l)
{
    return l->profile;
}

/* A lane has taken a chunk. A lane of streams reports that by `trace`, when a stream takes it. */
static void posted(struct pvn_lane *l, const struct pvn_write *w)
{
    struct pvn_transfer t = {.id = w->cookie};
    struct open_event what = {.id = w->cookie, .chunk = w->f.chunk};

    if (l->ops->last_post(l, &t) == 0)
        start_qp(of(l), &what, handle_of_send(of(l)->profile, w->cookie), &t, w->f.len);
}

static void announced(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b)
{
    const struct recv_handles *r = &of(l)->profile->receives[slot % RECV_RING];
    struct pvn_transfer t = {.id = pvn_id(slot)};

    if (r->slot != slot || l->ops->last_post(l, &t) != 0)
        return;
    t.opcode = OPCODE_RECV;
    for (int i = 0; i < n && i < r->n; i++) {
        struct open_event what = {.id = pvn_id(slot), .chunk = WHOLE_BUFFER, .recv = (uint8_t)i};
        start_qp(of(l), &what, r->buf[i].handle, &t, b[i].size);
    }
}

static void transfer_begins(struct pvn_lane *l, const struct pvn_transfer *t)
{
    struct pvn_profile *p = of(l)->profile;
    struct open_event what = {.id = t->id, .chunk = t->chunk, .recv = t->recv};

    start_socket(p, &what, t->dst ? handle_of_address(p, t->dst) : handle_of_send(p, t->id), t);
}

static void sent(struct pvn_profile *p, const struct pvn_event *ev)
{
    stop(p, find_event(p, ev->id, 0, ev->chunk));
    for (uint32_t k = 1; k <= ev->more; k++)
        stop(p, find_event(p, pvn_id((uint64_t)ev->id + k), 0, 0));
}

static void arrived(struct pvn_profile *p, const struct pvn_event *ev)
{
    struct open_event *o = find_event(p, ev->id, ev->recv, WHOLE_BUFFER);

    if (!o)
        stop(p, find_event(p, ev->id, ev->recv, ev->chunk));
    else if ((o->got += ev->bytes) >= ev->total)
        stop(p, o);
}

static void came(struct pvn_lane *l, const struct pvn_event *ev, int n)
{
    for (int i = 0; i < n; i++)
        if (ev[i].kind == PVN_EV_SENT)
            sent(of(l)->profile, &ev[i]);
        else if (ev[i].kind == PVN_EV_ARRIVED)
            arrived(of(l)->profile, &ev[i]);
}

static const struct pvn_lane_profiler profiler = {posted, announced, came};

/* ---- a comm's profile ---- */

/* A lane's device as NCCL numbers it. */
static int device_of_lane(const struct pvn_conn *conn, int k)
{
    const struct pvn_device *all = conn->cfg.dev, *own = conn->lane_args[conn->lane_arg[k]].dev;
    int i;

    for (i = 0; i < all->nmembers; i++)
        if (pvn_device_get(all->members[i]) == own)
            return all->members[i];
    return -1;
}

struct pvn_profile *pvn_profile_of(const struct pvn_conn *conn)
{
    ncclProfilerCallback_t callback = atomic_load(&nccl_callback);
    struct pvn_profile *p = callback && profiler_loaded() ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->callback = callback;
    p->nlanes = conn->nlanes;
    for (int i = 0; i < p->nlanes; i++) {
        struct pvn_lane *l = conn->lane[i];
        p->lane[i] = (struct profiled_lane){p, l, device_of_lane(conn, i)};
        l->profile = &p->lane[i];
        l->trace = transfer_begins;
        l->profiler = &profiler;
        l->moves |= PVN_LANE_MOVES_PROFILED;
    }
    return p;
}

void pvn_profile_free(struct pvn_profile *p)
{
    for (int i = 0; p && i < p->nlanes; i++) {
        p->lane[i].lane->moves &= (uint8_t)~PVN_LANE_MOVES_PROFILED;
        p->lane[i].lane->trace = NULL;
    }
    while (p && p->nopen > 0)
        stop(p, &p->open[p->nopen - 1]);
    free(p);
}

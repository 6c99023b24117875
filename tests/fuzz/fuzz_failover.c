/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a peer's report or answer in a failover, for an engine with open requests. For
 * any input, the engine refuses it with a reason, or goes on. Then every request completes once.
 *
 * Input: byte 0: which end, and if the lanes before and after use slots; 1: number of requests;
 * 2: which of them are complete before; 3: buffers per slot; then the body of REPORT (to a
 * sender) or ANSWER (to a receiver). */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "connect/wire.h"
#include "engine/engine.h"
#include "support/engine_calls.h"
#include "fuzz/fuzz.h"
#include "fuzz/hex.h"

enum { SIZE = 40, CHUNK = 16, REQUESTS = 24, POSTED = 1024, SLOTS = 256 };

struct lane {
    struct pvn_lane l; /* first, so that a pvn_lane can be cast to lane */
    bool by_slot;
    struct pvn_cts slot[SLOTS];
    uint32_t filled[SLOTS][PVN_MAX_RECVS]; /* the message in a buffer, plus 1 */
    int nslots, slots_given;
    struct pvn_event event[POSTED];
    int nevents, events_given;
    struct {
        uint32_t cookie;
        uint16_t chunk;
    } posted[POSTED];
    int nposted;
};

/* The write must go to an announced buffer that no other message has. */
static void check_buffer(struct lane *me, const struct pvn_write *w)
{
    uint32_t *filled;

    fuzz_require(w->f.seq < (uint64_t)me->slots_given && w->f.recv < me->slot[w->f.seq].n &&
                     w->to == &me->slot[w->f.seq].e[w->f.recv],
                 "a write goes to a buffer that was announced");
    filled = &me->filled[w->f.seq][w->f.recv];
    fuzz_require(*filled == 0 || *filled == w->cookie + 1, "a buffer gets one message");
    *filled = w->cookie + 1;
}

static int post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    struct lane *me = (struct lane *)l;

    if (me->nposted == POSTED)
        return -EAGAIN;
    for (int i = 0; i < me->nposted; i++)
        fuzz_require(me->posted[i].cookie != w->cookie || me->posted[i].chunk != w->f.chunk,
                     "a chunk is posted once to the same lanes");
    fuzz_require(w->f.offset + w->f.len <= SIZE && w->f.total <= SIZE, "bytes of the message");
    if (me->by_slot)
        check_buffer(me, w);
    me->posted[me->nposted].cookie = w->cookie;
    me->posted[me->nposted++].chunk = w->f.chunk;
    return 0;
}

static int post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b)
{
    struct lane *me = (struct lane *)l;

    (void)b;
    fuzz_require(n >= 1 && n <= PVN_MAX_RECVS && slot == (uint64_t)me->nslots,
                 "slots are announced in their order");
    me->nslots++;
    me->slots_given++; /* the other end takes slots */
    return 0;
}

static int poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct lane *me = (struct lane *)l;
    int n = 0;

    for (; n < max && me->events_given < me->nevents; n++)
        ev[n] = me->event[me->events_given++];
    return n;
}

static int next_slot(struct pvn_lane *l, const struct pvn_cts **cts)
{
    struct lane *me = (struct lane *)l;

    if (me->slots_given == me->nslots)
        return 0;
    *cts = &me->slot[me->slots_given++];
    return 1;
}

static struct pvn_lane_ops ops = {.name = "fuzz", .drain = poll};
static struct pvn_lane_data_ops data_ops = {
    .post_write = post_write, .post_cts = post_cts, .next_slot = next_slot, .poll = poll};

static struct lane *new_lane(bool sender, bool by_slot)
{
    struct lane *l = calloc(1, sizeof(*l));

    l->l.ops = &ops;
    l->l.data = &data_ops;
    l->l.caps = PVN_LANE_SENT_IS_DELIVERED | (by_slot ? PVN_LANE_NEEDS_CTS : 0);
    l->l.sender = sender;
    l->by_slot = by_slot;
    return l;
}

static void add_slot(struct lane *l, int n)
{
    uint64_t number = (uint64_t)l->nslots;
    struct pvn_cts *c = &l->slot[l->nslots++];

    c->n = n;
    for (int i = 0; i < n; i++) {
        c->e[i].size = SIZE;
        c->e[i].addr = 0x10000 * number + 0x1000 * (uint64_t)(i + 1);
    }
}

static uint64_t no_time(void *ctx)
{
    (void)ctx;
    return 1;
}

static struct pvn_engine *new_engine(bool sender, struct lane *l)
{
    struct pvn_engine_cfg cfg = {.sender = sender,
                                 .nlanes = 1,
                                 .lanes = {&l->l},
                                 .chunk = CHUNK,
                                 .unexpected_max = 1 << 20,
                                 .now = no_time,
                                 .outlives_lanes = true};
    struct pvn_engine *e = pvn_engine_new(&cfg);

    fuzz_require(e != NULL, "an engine");
    return e;
}

static void refused(const struct pvn_engine *e, int rc)
{
    const struct pvn_err *err = pvn_engine_err(e);

    fuzz_require(rc < 0 && err && err->code == rc && err->reason[0][0], "a refusal has its reason");
}

static void pause(struct pvn_engine *e)
{
    struct pvn_err why = PVN_ERR_INIT;

    pvn_err_set(&why, -ENETDOWN, "the test pulls the cable");
    pvn_engine_pause(e, &why);
    fuzz_require(pvn_engine_drain(e) == 0, "nothing comes from the lanes any more");
}

static bool is_done(struct pvn_req **req)
{
    int done = 0;
    size_t sizes[PVN_MAX_RECVS];

    fuzz_require(pvn_engine_test(*req, &done, sizes) == 0, "test of an open request");
    if (done)
        *req = NULL;
    return done;
}

/* ---- sender ---- */

/* All posted chunks arrive. */
static void deliver(struct lane *l, int from)
{
    for (int i = from; i < l->nposted; i++)
        l->event[l->nevents++] = (struct pvn_event){
            .kind = PVN_EV_SENT, .id = l->posted[i].cookie, .chunk = l->posted[i].chunk};
}

static void finish_all(struct pvn_engine *e, struct lane *l, struct pvn_req **req)
{
    int open = 0, from = 0;

    for (int round = 0; round < 2 * REQUESTS; round++) {
        fuzz_require(pvn_engine_progress(e) == 0, "the engine goes on");
        deliver(l, from);
        from = l->nposted;
        open = 0;
        for (int i = 0; i < REQUESTS; i++)
            open += req[i] && !is_done(&req[i]);
    }
    fuzz_require(open == 0 && pvn_engine_pending(e) == 0, "every send completes");
}

static void sender(const uint8_t *p, size_t n)
{
    bool by_slot = p[0] & 2, later_by_slot = p[0] & 4;
    int count = p[1] % (REQUESTS + 1), buffers = 1 + p[3] % 4;
    struct lane *before = new_lane(true, by_slot), *after = new_lane(true, later_by_slot);
    struct pvn_engine *e = new_engine(true, before);
    struct pvn_engine_report r;
    struct pvn_engine_answer a;
    static uint8_t data[SIZE];
    struct pvn_req *req[REQUESTS] = {NULL};

    for (int i = 0; by_slot && i < (count + buffers - 1) / buffers; i++)
        add_slot(before, buffers);
    for (int i = 0; i < count; i++)
        fuzz_require(pvn_engine_isend(e, data, SIZE - (size_t)i, 0, NULL, &req[i]) == 0 && req[i],
                     "a send");
    for (int i = 0; i < before->nposted; i++)
        if (p[2] >> (before->posted[i].cookie % 8) & 1)
            before->event[before->nevents++] = (struct pvn_event){.kind = PVN_EV_SENT,
                                                                  .id = before->posted[i].cookie,
                                                                  .chunk = before->posted[i].chunk};
    fuzz_require(pvn_engine_progress(e) == 0, "the engine goes on");
    for (int i = 0; i < count; i++)
        is_done(&req[i]);
    pause(e);
    if (pvn_report_decode(p + 4, n - 4, &r, NULL) == 0) {
        struct pvn_lane *lanes[] = {&after->l};
        int rc = pvn_engine_resume_sender(e, lanes, 1, &r, &a);

        if (rc) {
            refused(e, rc);
        } else {
            fuzz_require(a.first <= a.next && a.next - a.first <= PVN_MAX_SENDS, "an answer");
            for (int i = 0; later_by_slot && i < r.n; i++) {
                for (int b = 0; b < r.open[i].buffers; b++)
                    after->filled[i][b] = r.open[i].done >> b & 1 ? UINT32_MAX : 0;
                add_slot(after, r.open[i].buffers);
            }
            for (int i = 0; later_by_slot && i < REQUESTS; i++)
                add_slot(after, 1);
            finish_all(e, after, req);
        }
    }
    pvn_engine_free(e);
    free(before);
    free(after);
}

/* ---- receiver ---- */

/* A message arrives whole on a matching lane. False: it has no buffer. */
static bool arrive(struct lane *l, uint64_t number)
{
    struct pvn_frame f = {.seq = number, .total = 1, .len = 1};
    struct pvn_place to = {0};
    int rc = l->l.place(l->l.engine, &l->l, &f, &to);

    if (rc == -EALREADY)
        return true;
    if (rc)
        return false;
    *(uint8_t *)to.dst = 1;
    l->event[l->nevents++] =
        (struct pvn_event){.kind = PVN_EV_ARRIVED, .id = pvn_id(number), .bytes = 1, .total = 1};
    return true;
}

static void arrive_in_slot(struct lane *l, int slot, int buffer)
{
    l->event[l->nevents++] = (struct pvn_event){.kind = PVN_EV_ARRIVED,
                                                .id = pvn_id((uint64_t)slot),
                                                .recv = (uint8_t)buffer,
                                                .bytes = 1,
                                                .total = 1};
}

static void check_report(const struct pvn_engine *e)
{
    struct pvn_engine_report r, again;
    uint8_t out[512];
    int n;

    pvn_engine_make_report(e, &r);
    n = pvn_report_encode(out, sizeof(out), &r);
    fuzz_require(n > 0 && pvn_report_decode(out, (size_t)n, &again, NULL) == 0, "a report");
    fuzz_require(memcmp(&r, &again, sizeof(r)) == 0, "the same report");
}

static void receiver(const uint8_t *p, size_t n)
{
    static uint8_t data[REQUESTS][4][SIZE];
    bool by_slot = p[0] & 2, later_by_slot = p[0] & 4;
    int count = p[1] % (REQUESTS + 1), buffers = 1 + p[3] % 4, open = 0;
    struct lane *before = new_lane(false, by_slot), *after = new_lane(false, later_by_slot);
    struct pvn_engine *e = new_engine(false, before);
    struct pvn_engine_answer a;
    struct pvn_req *req[REQUESTS] = {NULL};
    uint64_t next = 0;

    for (int i = 0; i < count; i++) {
        void *at[] = {data[i][0], data[i][1], data[i][2], data[i][3]};
        size_t sizes[] = {SIZE, SIZE, SIZE, SIZE};
        int tags[4] = {0};

        fuzz_require(pvn_engine_irecv(e, buffers, at, sizes, tags, NULL, &req[i]) == 0 && req[i],
                     "a receive");
    }
    for (int i = 0; i < count * buffers; i++) {
        if (by_slot && p[2] >> (i % 8) & 1)
            arrive_in_slot(before, i / buffers, i % buffers);
        else if (!by_slot && i < (p[2] % 32) && arrive(before, next))
            next++;
    }
    fuzz_require(pvn_engine_progress(e) == 0, "the engine goes on");
    for (int i = 0; i < count; i++)
        is_done(&req[i]);
    pause(e);
    check_report(e);
    if ((!later_by_slot || pvn_engine_may_use_slots(e)) &&
        pvn_answer_decode(p + 4, n - 4, &a, NULL) == 0) {
        struct pvn_lane *lanes[] = {&after->l};
        int rc = pvn_engine_resume_receiver(e, lanes, 1, &a);

        if (rc) {
            refused(e, rc);
        } else {
            fuzz_require(pvn_engine_progress(e) == 0, "the engine goes on");
            fuzz_require(!later_by_slot || after->nslots == pvn_engine_pending(e),
                         "open receives are announced again");
            next = by_slot ? a.first : next;
            for (uint64_t i = 0; !later_by_slot && i < REQUESTS * 4 + PVN_MAX_SENDS; i++)
                if (!arrive(after, next + i))
                    break;
            for (int i = 0; later_by_slot && i < REQUESTS * 4; i++)
                arrive_in_slot(after, i / 4, i % 4);
            for (int round = 0; round < 16; round++)
                fuzz_require(pvn_engine_progress(e) == 0, "the engine goes on");
            for (int i = 0; i < count; i++)
                open += req[i] && !is_done(&req[i]);
            fuzz_require(open == 0 && pvn_engine_pending(e) == 0, "every receive completes");
            pause(e);
            check_report(e);
        }
    }
    pvn_engine_free(e);
    free(before);
    free(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n;
    uint8_t *bytes = fuzz_bytes(data, size, &n);

    pvn_lane_ops_fill(&ops);
    pvn_lane_data_ops_fill(&data_ops);
    if (n >= 4 && bytes[0] & 1)
        receiver(bytes, n);
    else if (n >= 4)
        sender(bytes, n);
    free(bytes);
    return 0;
}

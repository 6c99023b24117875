/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a peer's bytes on the data streams of a TCP lane, for an engine with open
 * requests. A receiver gets headers and payloads; a sender gets acknowledgements and
 * clear-to-send entries. For any input, a request stays open or completes with at most the
 * posted size, or the comm fails with a reason. No memory is written but the buffers of open
 * receives.
 *
 * The input is text. Its first word has a letter for each option: r this end receives (else it
 * sends), c clear-to-send, a chunks are acknowledged, 2 two streams, g receives into memory that
 * is copied to, o the engine outlives its lane, k a worker thread moves pieces of 256 bytes and
 * more. Each further line has a letter and numbers. Missing numbers are 0, and lines with other
 * letters are comments:
 *
 *   r SIZE TAG SIZE TAG ...    this end receives, into so many buffers
 *   s SIZE TAG                 this end sends
 *   t COUNT                    the peer's bytes arrive, and this end is called COUNT times
 *   c SEQ TOTAL OFFSET LEN TAG CHUNK RECV FLAGS   a chunk's header, with magic and check
 *   p COUNT                    the peer sends so many bytes of payload
 *   e COUNT SIZE TAG ...       ... a clear-to-send entry that claims to have COUNT buffers
 *   hex: DIGITS                ... these bytes
 *   w STREAM                   ... on this stream from here on
 *   x                          ... the end of the stream */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/poller.h"
#include "connect/wire.h"
#include "engine/engine.h"
#include "support/engine_calls.h"
#include "fuzz/fuzz.h"
#include "fuzz/hex.h"
#include "net-tcp/frame.h"
#include "net-tcp/tcp_lane.h"
#include "net-tcp/tcp_workers.h"

enum {
    STREAMS = 2,
    LINES = 128,
    NUMBERS = 2 * (PVN_MAX_RECVS + 2), /* of a line; one buffer more than possible */
    CHUNK = 4096,
    WORKER_MIN = 256,
    POSTED_MAX = 32768, /* maximum size of a buffer or a send */
    PEER_MAX = 65536,   /* maximum that the peer sends on a stream */
    SENDS = 64,
    CALLS = 2000,        /* in one run */
    CALLS_AT_ONCE = 600, /* enough for an idle stream to be left to the poller */
    MEMORY = 131072,     /* size of the memory for the receives' buffers */
    GAP = 64,            /* between two buffers */
    UNTOUCHED = 0xA5,
    ECHO = 0x70 /* an acceptor's answer to a stream's preamble, see tcp_setup.c */
};

struct peer_stream {
    int fd, lane_fd;
    uint8_t out[PEER_MAX];
    size_t len, sent; /* of `out`: bytes in all, and bytes sent */
    bool ends;
};

struct receive {
    struct pvn_req *req; /* NULL: complete or refused */
    bool done;
    int n;
    uint8_t *at[PVN_MAX_RECVS];
    size_t size[PVN_MAX_RECVS];
};

struct run {
    bool receiver, cts, acknowledged, copied, outlives, workers;
    int streams;
    struct pvn_lane *lane;
    struct pvn_engine *e;
    struct peer_stream s[STREAMS];
    struct peer_stream *to;   /* the stream that the peer sends on */
    int calls;                /* calls left */
    bool failed;              /* the failure has been seen */
    uint64_t acknowledgeable; /* upper limit of chunks that the peer can have acknowledged */
    struct receive receive[PVN_MAX_REQS];
    int nreceives;
    size_t used; /* bytes of the memory in use */
    struct {
        struct pvn_req *req;
        size_t size;
    } send[SENDS];
    int nsends;
    uint64_t sends_done;
};

static uint8_t memory[MEMORY + GAP], source[POSTED_MAX];
static int taken; /* buffers through which copies go now */

/* ---- memory that is copied to ---- */

static void *take(const struct pvn_mem_copy *c, size_t n)
{
    (void)c;
    fuzz_require(n <= POSTED_MAX, "no more is copied at once than a receive takes");
    taken++;
    return malloc(n);
}

static void give(const struct pvn_mem_copy *c, void *host)
{
    (void)c;
    taken--;
    free(host);
}

static int from_host(const struct pvn_mem_copy *c, void *mem, const void *host, size_t n,
                     struct pvn_err *err)
{
    (void)c;
    (void)err;
    memcpy(mem, host, n);
    return 0;
}

static const struct pvn_mem_copy copy = {.take = take, .give = give, .from_host = from_host};
static const struct pvn_mr copied_mr = {
    .addr = memory, .len = sizeof(memory), .copy = &copy, .gpu = 1};

/* ---- set-up ---- */

static uint64_t no_time(void *ctx)
{
    (void)ctx;
    return 1;
}

static int dial(void *ctx, const uint8_t *to, size_t len, int lane, int stream, unsigned *by,
                struct pvn_err *err)
{
    struct run *r = ctx;

    (void)to;
    (void)by;
    (void)len;
    (void)lane;
    (void)err;
    return r->s[stream].lane_fd;
}

static int preamble(void *ctx, int lane, int stream, uint8_t *out)
{
    (void)ctx;
    (void)lane;
    out[0] = (uint8_t)stream;
    return 1;
}

/* Makes connected sockets of a kind that every system has, on which bytes arrive at once. */
static void connect_streams(struct run *r)
{
    const uint8_t echo = ECHO;

    for (int i = 0; i < r->streams; i++) {
        int sv[2];

        fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) == 0,
                     "a pair of sockets");
        r->s[i].lane_fd = sv[0];
        r->s[i].fd = sv[1];
        if (!r->receiver)
            fuzz_require(send(sv[1], &echo, 1, MSG_NOSIGNAL) == 1, "the peer's echo");
    }
}

static void open_lane(struct run *r)
{
    struct pvn_tcp_lane_cfg cfg = {.sender = !r->receiver,
                                   .streams = r->streams,
                                   .chunk = CHUNK,
                                   .acknowledged = r->acknowledged,
                                   .clear_to_send = r->cts,
                                   .workers = r->workers,
                                   .worker_min = WORKER_MIN,
                                   .name = "fuzz0",
                                   .dial = dial,
                                   .preamble = preamble,
                                   .ctx = r};
    uint8_t offer[256];
    int n;

    r->lane = pvn_tcp_lane_new(&cfg);
    fuzz_require(r->lane != NULL, "a lane");
    /* The end's own offer has all members that it reads in the peer's. */
    n = r->lane->ops->offer(r->lane, offer, sizeof(offer));
    fuzz_require(n > 0 && r->lane->ops->bind(r->lane, offer, (size_t)n) == 0, "a bound lane");
    for (int i = 0; r->receiver && i < r->streams; i++)
        fuzz_require(r->lane->ops->adopt(r->lane, i, r->s[i].lane_fd) == 0, "a stream");
    fuzz_require(r->lane->ops->verify(r->lane) == 0, "the lane is up");
}

static void open_engine(struct run *r)
{
    struct pvn_engine_cfg cfg = {.sender = !r->receiver,
                                 .nlanes = 1,
                                 .lanes = {r->lane},
                                 .chunk = CHUNK,
                                 .unexpected_max = POSTED_MAX,
                                 .now = no_time,
                                 .outlives_lanes = r->outlives};

    r->e = pvn_engine_new(&cfg);
    fuzz_require(r->e != NULL, "an engine");
}

/* ---- what must hold ---- */

static bool is_clean(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            return false;
    return text[0] != '\0';
}

/* Checks the result of a call for the comm. A call that made progress before the failure may
 * still return 0. */
static void check_call(struct run *r, int rc)
{
    const struct pvn_err *err = pvn_engine_err(r->e);

    fuzz_require(rc == 0 ? !r->failed : err && err->code == rc,
                 "the comm works, or every call returns why it failed");
    r->failed = err != NULL;
    for (int i = 0; err && i < err->n; i++)
        fuzz_require(is_clean(err->reason[i]), "a failure has clean reasons");
    fuzz_require(!err || (err->code < 0 && err->n > 0), "a failure has a reason");
}

static bool is_untouched(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == UNTOUCHED && memcmp(p, p + 1, n - 1) == 0);
}

/* A receive is complete: the caller owns its buffers again and overwrites them. */
static void take_back(struct receive *v, int n, const size_t *sizes)
{
    fuzz_require(n == v->n, "a size for each buffer");
    for (int i = 0; i < n; i++) {
        fuzz_require(sizes[i] <= v->size[i], "no more bytes than were posted");
        fuzz_require(is_untouched(v->at[i] + sizes[i], v->size[i] - sizes[i]),
                     "nothing is written behind the message");
        memset(v->at[i], UNTOUCHED, v->size[i]);
    }
    v->done = true;
    v->req = NULL;
}

/* Checks at the end that all memory but the buffers of open receives is untouched. */
static void check_memory(struct run *r)
{
    for (int i = 0; i < r->nreceives; i++)
        for (int b = 0; !r->receive[i].done && b < r->receive[i].n; b++)
            memset(r->receive[i].at[b], UNTOUCHED, r->receive[i].size[b]);
    fuzz_require(is_untouched(memory, sizeof(memory)),
                 "nothing but the buffers of open receives is written");
}

static void test_receives(struct run *r)
{
    for (int i = 0; i < r->nreceives; i++) {
        struct receive *v = &r->receive[i];
        size_t sizes[PVN_MAX_RECVS];
        int done = 0;

        if (!v->req)
            continue;
        int rc = pvn_engine_test(v->req, &done, sizes);

        if (done)
            take_back(v, done, sizes);
        else
            check_call(r, rc);
    }
}

static void test_sends(struct run *r)
{
    for (int i = 0; i < r->nsends; i++) {
        size_t size = 0;
        int done = 0;

        if (!r->send[i].req)
            continue;
        int rc = pvn_engine_test(r->send[i].req, &done, &size);

        if (!done) {
            check_call(r, rc);
            continue;
        }
        fuzz_require(done == 1 && size == r->send[i].size, "a send has its size");
        r->send[i].req = NULL;
        r->sends_done++;
    }
    fuzz_require(!r->acknowledged || r->sends_done <= r->acknowledgeable,
                 "a send is done when the peer has acknowledged it");
}

/* ---- what the lines say ---- */

static void peer_sends(struct run *r, const void *bytes, size_t n)
{
    struct peer_stream *s = r->to;

    if (s->ends || n > sizeof(s->out) - s->len)
        return;
    memcpy(s->out + s->len, bytes, n);
    s->len += n;
    for (size_t i = 0; i < n; i++)
        r->acknowledgeable += ((const uint8_t *)bytes)[i];
}

static void peer_sends_header(struct run *r, const uint64_t *v)
{
    struct pvn_frame f = {.seq = v[0],
                          .total = v[1],
                          .offset = v[2],
                          .len = (uint32_t)v[3],
                          .tag = (int32_t)v[4],
                          .chunk = (uint16_t)v[5],
                          .recv = v[6] & 0x7f};
    uint8_t head[PVN_FRAME_LEN];

    pvn_frame_encode(&f, (unsigned)v[7], head);
    peer_sends(r, head, sizeof(head));
}

static void peer_sends_payload(struct run *r, uint64_t n)
{
    static uint8_t bytes[POSTED_MAX];

    n %= sizeof(bytes) + 1;
    memset(bytes, 1, n);
    peer_sends(r, bytes, n);
}

static void peer_sends_entry(struct run *r, const uint64_t *v, int n)
{
    struct pvn_buffer b[PVN_MAX_RECVS + 1];
    uint8_t out[PVN_CTS_MAX + PVN_CTS_BUFFER];
    int buffers = (n - 1) / 2;
    size_t len;

    if (buffers > PVN_MAX_RECVS)
        buffers = PVN_MAX_RECVS;
    for (int i = 0; i < buffers; i++)
        b[i] = (struct pvn_buffer){.size = v[1 + 2 * i], .tag = (int32_t)v[2 + 2 * i]};
    len = pvn_cts_encode(buffers, b, out);
    out[1] = (uint8_t)v[0];
    peer_sends(r, out, len);
}

static void peer_sends_hex(struct run *r, const char *line)
{
    size_t n;
    uint8_t *bytes = fuzz_bytes((const uint8_t *)line, strlen(line), &n);

    peer_sends(r, bytes, n);
    free(bytes);
}

/* Delivers as many of the peer's bytes as the socket takes, and has the peer read what arrived. */
static void deliver(struct run *r)
{
    static uint8_t got[65536];

    for (int i = 0; i < r->streams; i++) {
        struct peer_stream *s = &r->s[i];
        ssize_t n = send(s->fd, s->out + s->sent, s->len - s->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0)
            s->sent += (size_t)n;
        if (s->ends && s->sent == s->len)
            shutdown(s->fd, SHUT_WR);
        for (int k = 0; k < 16 && recv(s->fd, got, sizeof(got), MSG_DONTWAIT) > 0; k++)
            ;
    }
}

static void call(struct run *r, uint64_t count)
{
    deliver(r);
    pvn_poller_poll_now();
    for (uint64_t i = 0; i < count && i < CALLS_AT_ONCE && r->calls > 0; i++, r->calls--) {
        check_call(r, pvn_engine_progress(r->e));
        if (r->workers)
            sched_yield();
    }
    test_receives(r);
    test_sends(r);
}

static void post_receive(struct run *r, const uint64_t *v, int n)
{
    struct receive *to = &r->receive[r->nreceives];
    const struct pvn_mr *mr[PVN_MAX_RECVS];
    void *at[PVN_MAX_RECVS];
    int tag[PVN_MAX_RECVS], rc;
    size_t used = r->used;

    if (!r->receiver || r->nreceives == PVN_MAX_REQS)
        return;
    to->n = n < 2 ? 1 : n / 2 > PVN_MAX_RECVS ? PVN_MAX_RECVS : n / 2;
    for (int i = 0; i < to->n; i++) {
        size_t size = v[2 * i] % (POSTED_MAX + 1);

        used += GAP;
        if (size + GAP > MEMORY - used)
            return;
        at[i] = to->at[i] = memory + used;
        to->size[i] = size;
        tag[i] = (int)v[2 * i + 1];
        mr[i] = r->copied ? &copied_mr : NULL;
        used += size;
    }
    rc = pvn_engine_irecv(r->e, to->n, at, to->size, tag, mr, &to->req);
    check_call(r, rc);
    if (rc == 0 && !to->req)
        return; /* paused */
    r->used = used;
    r->nreceives++;
}

static void post_send(struct run *r, const uint64_t *v)
{
    size_t size = v[0] % (POSTED_MAX + 1);
    struct pvn_req *req = NULL;

    if (r->receiver || r->nsends == SENDS)
        return;
    check_call(r, pvn_engine_isend(r->e, source, size, (int)v[1], NULL, &req));
    r->send[r->nsends].size = size;
    r->send[r->nsends].req = req;
    r->nsends += req != NULL;
}

/* Parses the numbers in a text. Missing ones are 0. Returns how many there are. */
static int numbers(const char *text, uint64_t v[NUMBERS])
{
    int n = 0;

    memset(v, 0, NUMBERS * sizeof(*v));
    while (n < NUMBERS) {
        char *end;

        text += strcspn(text, "-0123456789");
        if (*text == '\0')
            break;
        v[n] = strtoull(text, &end, 10);
        n += end != text;
        text = end != text ? end : text + 1;
    }
    return n;
}

static void follow(struct run *r, const char *line)
{
    uint64_t v[NUMBERS];
    int n = numbers(line, v);

    switch (line[0]) {
    case 'r':
        post_receive(r, v, n);
        break;
    case 's':
        post_send(r, v);
        break;
    case 't':
        call(r, v[0]);
        break;
    case 'c':
        peer_sends_header(r, v);
        break;
    case 'p':
        peer_sends_payload(r, v[0]);
        break;
    case 'e':
        peer_sends_entry(r, v, n);
        break;
    case 'h':
        peer_sends_hex(r, line);
        break;
    case 'w':
        r->to = &r->s[v[0] % (unsigned)r->streams];
        break;
    case 'x':
        r->to->ends = true;
        break;
    default:
        break;
    }
}

/* ---- the end ---- */

/* Takes the lane out of use, as the engine does at the start of a failover, and checks the
 * report. */
static void pause_and_report(struct run *r)
{
    struct pvn_err why = PVN_ERR_INIT;
    struct pvn_engine_report report, again;
    uint8_t out[512];

    pvn_err_set(&why, -ENETDOWN, "the test pulls the cable");
    pvn_engine_pause(r->e, &why);
    fuzz_require(r->lane->ops->fence(r->lane) == 0, "a fence");
    check_call(r, pvn_engine_drain(r->e));
    test_receives(r);
    test_sends(r);
    if (!r->receiver || pvn_engine_err(r->e))
        return;
    pvn_engine_make_report(r->e, &report);
    int n = pvn_report_encode(out, sizeof(out), &report);

    fuzz_require(n > 0 && pvn_report_decode(out, (size_t)n, &again, NULL) == 0 &&
                     memcmp(&report, &again, sizeof(report)) == 0,
                 "a report that reads as the same");
}

static void end(struct run *r)
{
    char text[256];

    call(r, 4);
    fuzz_require(!r->lane->err.code || pvn_engine_err(r->e) || pvn_engine_paused(r->e),
                 "the loss of the lane shows");
    pvn_engine_oldest(r->e, text, sizeof(text));
    fuzz_require(text[0] == '\0' || is_clean(text), "a clean description of what is waited for");
    if (r->outlives)
        pause_and_report(r);
    r->lane->ops->close(r->lane);
    pvn_engine_free(r->e);
    check_memory(r);
    fuzz_require(taken == 0, "memory for copies is given back");
    for (int i = 0; i < r->streams; i++) {
        fuzz_require(fcntl(r->s[i].lane_fd, F_GETFD) == -1 && errno == EBADF,
                     "the sockets are closed");
        close(r->s[i].fd);
    }
}

static bool says(const char *line, char letter)
{
    return memchr(line, letter, strcspn(line, " ")) != NULL;
}

static void begin(struct run *r, const char *line)
{
    r->receiver = says(line, 'r');
    r->cts = says(line, 'c');
    r->acknowledged = says(line, 'a');
    r->copied = says(line, 'g');
    r->outlives = says(line, 'o');
    r->workers = says(line, 'k');
    r->streams = says(line, '2') ? 2 : 1;
    r->calls = CALLS;
    r->to = &r->s[0];
    memset(memory, UNTOUCHED, sizeof(memory));
    connect_streams(r);
    open_lane(r);
    open_engine(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool polls, works;
    char *text = malloc(size + 1), *rest = text, *line;
    struct run *r = calloc(1, sizeof(*r));

    if (!polls) /* kept for all runs of the process */
        polls = pvn_poller_get() == 0;
    memcpy(text, data, size);
    text[size] = '\0';
    line = strsep(&rest, "\n");
    if (says(line, 'k') && !works) /* kept, too */
        works = tcp_workers_get(1) == 0;
    begin(r, line);
    for (int i = 0; i < LINES && (line = strsep(&rest, "\n")) != NULL; i++)
        follow(r, line);
    end(r);
    free(r);
    free(text);
    return 0;
}

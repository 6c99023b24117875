/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/boot_tcp.h"
#include "tools/boot_accept.h"
#include "tools/boot_line.h"
#include "tools/boot_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_MAGIC 0x70766e68656c6c6full
/* Differs from the hello's, because a socket may have dialled itself. */
#define ANSWER_MAGIC  0x70766e77656c636full
#define HELLO_VERSION 2
/* The hello follows sealed. A peer that does not know this version refuses it as another one. */
#define KNOCK_VERSION 3
#define REASON_LEN    112
#define MOST_REFUSALS 8 /* limit of lines about peers that do not prove the key */

struct hello {
    uint64_t magic;
    uint32_t version; /* every version has the fields up to here */
    uint32_t nranks;
    uint32_t rank;
    uint32_t pad;
    uint64_t token;
    uint64_t job;
    char release[32]; /* version of the program */
    char host[64];
};

/* The first message if there is a key. */
struct first {
    uint64_t magic;
    uint32_t version; /* KNOCK_VERSION */
    uint32_t pad;
    struct pvn_boot_knock knock;
};

_Static_assert(sizeof(struct first) < sizeof(struct hello),
               "hello_length asks for the shorter one");

/* The answer to a hello, and before it to a knock, after which the handshake begins. */
struct answer {
    uint64_t magic;
    uint32_t version;
    uint32_t refused;
    char reason[REASON_LEN];
};

struct meeting {
    const struct pvn_boot_tcp *t;
    struct pvn_boot *b;
    struct pvn_boot_accept accept;
    int missing;
    struct pvn_seal **seal; /* of each rank that is seated, if there is a key */
    int unproved;           /* number of peers that did not prove the key */
    char (*host)[64];       /* of each rank that is seated */
    bool over;              /* a rank of this job was refused, so not all ranks can come */
    char refused[400];      /* the last refused rank, and the reason */
};

static const char *program(const struct pvn_boot_tcp *t)
{
    return t->program ? t->program : "pvn-perf";
}

/* The settings of the rendezvous that a message names. */
static const char *see(const struct pvn_boot_tcp *t, const char *of_perf)
{
    return t->see ? t->see : of_perf;
}

/* The program's version, which all ranks must have. */
static const char *release(const struct pvn_boot_tcp *t)
{
    return t->release ? t->release : "";
}

static int resolve(const struct pvn_boot_tcp *t, int passive, struct addrinfo **ai, char *why,
                   size_t why_len)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    char port[16];
    int rc;

    snprintf(port, sizeof(port), "%d", t->port);
    rc = getaddrinfo(passive ? NULL : t->master, port, &hints, ai);
    if (rc == 0)
        return 0;
    snprintf(why, why_len, "cannot resolve rank 0's host '%s': %s (set %s)", t->master,
             gai_strerror(rc), see(t, "MASTER_ADDR or --master"));
    return -EHOSTUNREACH;
}

/* True if the address is only local: Debian gives a machine's own name the address 127.0.1.1, where
 * no other machine can connect. */
static int only_here(const char *name, const struct addrinfo *ai)
{
    const struct sockaddr_in *in = (const void *)ai->ai_addr;
    struct in_addr v4;

    return ai->ai_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == 127 &&
           inet_pton(AF_INET, name, &v4) != 1 && strcmp(name, "localhost") != 0;
}

/*
 * Listens on the address to which the others connect, so that no other is open. Listens on all
 * addresses if that one is not this machine's own (for example behind a NAT), or if its name
 * resolves only to a local address.
 */
static int open_listener(const struct pvn_boot_tcp *t, char *why, size_t why_len)
{
    int fd = -EADDRNOTAVAIL;

    for (int passive = 0; passive < 2 && fd == -EADDRNOTAVAIL; passive++) {
        struct addrinfo *ai;
        int rc = resolve(t, passive, &ai, why, why_len);

        if (rc)
            return rc;
        for (struct addrinfo *a = ai; a && fd < 0; a = a->ai_next) {
            if (!passive && only_here(t->master, a))
                continue;
            fd = pvn_boot_listen(a);
            if (fd == -EADDRINUSE)
                break;
        }
        freeaddrinfo(ai);
    }
    if (fd < 0)
        snprintf(why, why_len,
                 "rank 0 cannot listen on %s port %d: %s (choose a free port with %s)", t->master,
                 t->port, strerror(-fd), see(t, "MASTER_PORT or --master HOST:PORT"));
    return fd;
}

/* Cleans a text, which anybody may have sent, for display. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text; text++)
        *text = *text > ' ' && *text <= '~' ? *text : '?';
}

/* Refuses a rank. If it belongs to this job, the rendezvous cannot succeed any more. */
static void turn_away(struct meeting *m, const struct pvn_boot_newcomer *n, const struct hello *h,
                      bool ours, const char *reason)
{
    struct answer a = {.magic = ANSWER_MAGIC, .version = HELLO_VERSION, .refused = 1};
    struct pvn_boot_line l = {n->fd, n->seal};
    bool unproved = m->t->key && !n->sealed;
    char addr[64];

    pvn_boot_peer(n->fd, false, addr, sizeof(addr));
    if (h->version == HELLO_VERSION)
        snprintf(m->refused, sizeof(m->refused), "rank %u on %s (%s) was refused: %s", h->rank,
                 h->host, addr, reason);
    else
        snprintf(m->refused, sizeof(m->refused), "a rank at %s was refused: %s", addr, reason);
    /* Anybody may have sent an unencrypted message. */
    m->over = ours && !m->t->partial && !unproved;
    if (unproved && m->unproved++ < MOST_REFUSALS)
        fprintf(stderr, "%s: %s\n", program(m->t), m->refused);
    snprintf(a.reason, sizeof(a.reason), "%s", reason);
    pvn_boot_line_send(&l, &a, sizeof(a), pvn_now_s() + 0.05);
}

/* True if the process in this seat has gone, for example after a restart by its launcher. */
static bool left(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* True with the reason if a rank gets no seat. */
static bool unwelcome(const struct meeting *m, const struct hello *h, char *reason)
{
    const struct pvn_boot_tcp *t = m->t;

    if (h->job != t->job)
        snprintf(reason, REASON_LEN,
                 "rank 0 is of another job, at the same port: choose another one");
    else if (strcmp(h->release, release(t)) != 0)
        snprintf(reason, REASON_LEN, "it runs %s %s, rank 0 %s: install one version on all hosts",
                 program(t), h->release, release(t));
    else if (h->nranks != (uint32_t)t->nranks)
        snprintf(reason, REASON_LEN, "it is one of %u ranks, rank 0 one of %d: start all alike",
                 h->nranks, t->nranks);
    else if (h->token != t->token)
        snprintf(reason, REASON_LEN, "it has other options than rank 0: give all ranks the same");
    else if (h->rank >= h->nranks)
        snprintf(reason, REASON_LEN, "there is no rank %u of %u", h->rank, h->nranks);
    else if (h->rank == 0 || m->b->fd[h->rank] >= 0)
        snprintf(reason, REASON_LEN,
                 "rank %u has already connected, on %.32s: two processes have the same rank",
                 h->rank, m->host[h->rank]);
    else
        return false;
    return true;
}

/* The length of a hello. The hello of another version may be shorter. Other data is refused without
 * a wait for more. */
static long hello_length(void *arg, const struct pvn_boot_newcomer *n)
{
    struct hello h;

    (void)arg;
    if (n->got < offsetof(struct hello, nranks))
        return sizeof(struct first);
    memcpy(&h, n->text, offsetof(struct hello, nranks));
    if (h.magic == HELLO_MAGIC && h.version == KNOCK_VERSION && !n->sealed)
        return sizeof(struct first);
    return h.magic != HELLO_MAGIC || h.version != HELLO_VERSION ? (long)n->got : (long)sizeof(h);
}

/* Gives the rank its seat, which another process may have left. */
static void take_seat(struct meeting *m, struct pvn_boot_newcomer *n, const struct hello *h)
{
    m->b->fd[h->rank] = n->fd;
    memcpy(m->host[h->rank], h->host, sizeof(h->host));
    m->seal[h->rank] = n->seal;
    n->fd = -1;
    n->seal = NULL;
    m->missing--;
}

static void leave_seat(struct meeting *m, uint32_t rank)
{
    struct pvn_boot_line l = {m->b->fd[rank], m->seal[rank]};

    pvn_boot_line_close(&l);
    m->b->fd[rank] = -1;
    m->seal[rank] = NULL;
    m->missing++;
}

/* Checks a knock, the first message with a key, which is not sealed. */
static void let_in(struct meeting *m, struct pvn_boot_newcomer *n, const struct hello *h)
{
    struct answer a = {.magic = ANSWER_MAGIC, .version = KNOCK_VERSION};
    const struct pvn_boot_key *k = m->t->key;
    struct pvn_boot_line l = {n->fd, NULL};
    struct pvn_seal *seal = NULL;
    char reason[REASON_LEN];
    struct first f;

    if (h->version != KNOCK_VERSION) {
        snprintf(reason, sizeof(reason), "it has no key, rank 0 has one (%.28s): set %s", k->text,
                 PVN_BOOT_NO_KEY);
        turn_away(m, n, h, false, reason);
        return;
    }
    memcpy(&f, n->text, sizeof(f));
    if (!pvn_boot_knock_proves(k, &f.knock)) {
        snprintf(reason, sizeof(reason), "it has another key than rank 0 (%.28s): %s", k->text,
                 PVN_BOOT_OTHER);
        turn_away(m, n, h, false, reason);
        return;
    }
    if (pvn_boot_line_send(&l, &a, sizeof(a), pvn_now_s() + 1.0) == 0)
        seal = pvn_boot_key_seal(k, &f.knock, n->fd, true, reason, sizeof(reason));
    if (seal)
        pvn_boot_accept_seal(n, seal, k->timeout);
}

static void unproved(void *arg, const struct pvn_boot_newcomer *n, const struct pvn_err *err)
{
    struct meeting *m = arg;
    char addr[64];

    pvn_boot_peer(n->fd, false, addr, sizeof(addr));
    snprintf(m->refused, sizeof(m->refused), "a rank at %s was refused: %.300s", addr,
             err->reason[0]);
    if (m->unproved++ < MOST_REFUSALS)
        fprintf(stderr, "%s: %s\n", program(m->t), m->refused);
}

static void seat(void *arg, struct pvn_boot_newcomer *n)
{
    struct answer a = {.magic = ANSWER_MAGIC, .version = HELLO_VERSION};
    struct pvn_boot_line l = {n->fd, n->seal};
    struct meeting *m = arg;
    struct hello h = {0};
    char reason[REASON_LEN];

    memcpy(&h, n->text, n->got < sizeof(h) ? n->got : sizeof(h));
    if (h.magic != HELLO_MAGIC) {
        m->accept.dropped++;
        return;
    }
    clean(h.release, sizeof(h.release));
    clean(h.host, sizeof(h.host));
    if (m->t->key && !n->sealed) {
        let_in(m, n, &h);
        return;
    }
    if (h.version != HELLO_VERSION) {
        if (h.version == KNOCK_VERSION)
            snprintf(reason, sizeof(reason), "it has a key, rank 0 has none: set %s",
                     PVN_BOOT_NO_KEY);
        else
            snprintf(reason, sizeof(reason), "rank 0 runs another version of %s", program(m->t));
        turn_away(m, n, &h, true, reason);
        return;
    }
    if (h.rank > 0 && h.rank < (uint32_t)m->t->nranks && m->b->fd[h.rank] >= 0 &&
        left(m->b->fd[h.rank]))
        leave_seat(m, h.rank);
    if (unwelcome(m, &h, reason))
        turn_away(m, n, &h, h.job == m->t->job, reason);
    else if (pvn_boot_line_send(&l, &a, sizeof(a), pvn_now_s() + 1.0) == 0)
        take_seat(m, n, &h);
}

static void say_missing(const struct meeting *m, char *why, size_t why_len)
{
    int len = snprintf(why, why_len, "after %.0f s %d of %d ranks had not reached rank 0 at %s:%d:",
                       m->t->meet_timeout, m->missing, m->t->nranks, m->t->master, m->t->port);

    for (int i = 1, shown = 0; i < m->t->nranks && shown < 8 && (size_t)len < why_len; i++)
        if (m->b->fd[i] < 0)
            len += snprintf(why + len, why_len - (size_t)len, "%s %d", shown++ ? "," : "", i);
    if ((size_t)len < why_len && m->accept.dropped)
        len += snprintf(why + len, why_len - (size_t)len, "; %d connections were not from %s",
                        m->accept.dropped, program(m->t));
    if ((size_t)len < why_len && m->refused[0])
        len += snprintf(why + len, why_len - (size_t)len, "; %s", m->refused);
    if ((size_t)len < why_len)
        snprintf(why + len, why_len - (size_t)len, " (see %s)", see(m->t, "--boot-timeout"));
}

/* Waits for the ranks. 0 or a negative errno with why. */
static int gather(struct meeting *m, char *why, size_t why_len)
{
    double deadline = pvn_now_s() + m->t->meet_timeout;
    char text[128];
    int rc = 0;

    pvn_boot_accept_init(&m->accept);
    while (m->missing && !rc && !m->over) {
        double left = deadline - pvn_now_s();

        rc = left <= 0 ? -ETIMEDOUT : pvn_boot_accept_pass(&m->accept, left < 0.2 ? left : 0.2);
    }
    pvn_boot_accept_close(&m->accept);
    if (m->over) {
        snprintf(why, why_len, "%s", m->refused);
        return -EPERM;
    }
    if (rc == -ETIMEDOUT && m->t->partial) {
        if (m->refused[0] && m->unproved == 0)
            fprintf(stderr, "%s: %s\n", program(m->t), m->refused);
        return 0;
    }
    if (rc == -ETIMEDOUT)
        say_missing(m, why, why_len);
    else if (rc)
        snprintf(why, why_len, "rank 0 cannot take the connections of the others: %s",
                 pvn_boot_accept_why(rc, text, sizeof(text)));
    return rc;
}

static int hold_meeting(struct meeting *m, char *why, size_t why_len)
{
    char unsaid[128];
    int rc;

    m->accept = (struct pvn_boot_accept){.lfd = open_listener(m->t, why, why_len),
                                         .max = PVN_BOOT_MAX_NEWCOMERS,
                                         .length = hello_length,
                                         .enter = seat,
                                         .unproved = unproved,
                                         .arg = m};
    if (m->accept.lfd < 0)
        return m->accept.lfd;
    rc = gather(m, why, why_len);
    if (m->t->key && (rc == 0 || m->over)) {
        bool said = rc != 0;
        int relayed = pvn_boot_relay(m->b, m->seal, program(m->t), said ? unsaid : why,
                                     said ? sizeof(unsaid) : why_len);

        rc = rc ? rc : relayed;
        /* If there is a key, nothing may be sent unencrypted. */
        if (relayed)
            m->over = false;
    }
    if (m->over)
        pvn_boot_abort(m->b, why);
    return rc;
}

static int host_meeting(struct pvn_boot *b, const struct pvn_boot_tcp *t, char *why, size_t why_len)
{
    struct meeting *m = calloc(1, sizeof(*m));
    int rc = -ENOMEM;

    if (m) {
        m->t = t;
        m->b = b;
        m->missing = t->nranks - 1;
        m->host = calloc((size_t)t->nranks, sizeof(*m->host));
        m->seal = calloc((size_t)t->nranks, sizeof(*m->seal));
    }
    if (m && m->host && m->seal) {
        gethostname(m->host[0], sizeof(m->host[0]) - 1);
        rc = hold_meeting(m, why, why_len);
    } else {
        snprintf(why, why_len, "out of memory for %d ranks", t->nranks);
    }
    for (int i = 0; m && m->seal && i < t->nranks; i++)
        pvn_seal_free(m->seal[i]);
    if (m) {
        free(m->host);
        free(m->seal);
    }
    free(m);
    return rc;
}

/* Reads the answer of rank 0. 0; -EAGAIN if the peer was not rank 0 (yet); another negative errno
 * if refused, with the reason in why. */
static int take_answer(const struct pvn_boot_line *l, const struct pvn_boot_tcp *t, double deadline,
                       char *why, size_t why_len)
{
    struct answer a;

    if (pvn_boot_line_recv(l, &a, sizeof(a), deadline) || a.magic != ANSWER_MAGIC)
        return -EAGAIN;
    if (!a.refused)
        return 0;
    a.reason[sizeof(a.reason) - 1] = '\0';
    for (char *c = a.reason; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    if (t->key && !l->seal)
        snprintf(why, why_len, "rank 0 at %s:%d refused this rank (%d), which has a key (%s): %s",
                 t->master, t->port, t->rank, t->key->text, a.reason);
    else
        snprintf(why, why_len, "rank 0 at %s:%d refused this rank (%d): %s", t->master, t->port,
                 t->rank, a.reason);
    return -EPERM;
}

/* Proves the key to each other, after which the line is sealed. Returns as take_answer does. */
static int prove(struct pvn_boot_line *l, const struct pvn_boot_tcp *t, double deadline, char *why,
                 size_t why_len)
{
    struct first f = {.magic = HELLO_MAGIC, .version = KNOCK_VERSION};
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_boot_knock_make(t->key, &f.knock, why, why_len);

    if (rc)
        return rc;
    rc = pvn_boot_line_send(l, &f, sizeof(f), deadline) ? -EAGAIN
                                                        : take_answer(l, t, deadline, why, why_len);
    if (rc)
        return rc;
    l->seal = pvn_boot_key_seal(t->key, &f.knock, l->fd, false, why, why_len);
    if (!l->seal)
        return -EIO;
    rc = pvn_boot_line_shake(l, deadline, &err);
    if (rc == -EKEYREJECTED || rc == -ENOMSG) {
        snprintf(why, why_len, "what answers at %s:%d is not rank 0 of this job: %s", t->master,
                 t->port, err.reason[0]);
        return -EKEYREJECTED;
    }
    return rc ? -EAGAIN : 0;
}

/*
 * Requests a seat. 0 if seated; -EAGAIN if the peer was not rank 0 (yet); another negative errno if
 * refused, with the reason in why.
 */
static int introduce(struct pvn_boot_line *l, const struct pvn_boot_tcp *t, double deadline,
                     char *why, size_t why_len)
{
    struct hello h = {.magic = HELLO_MAGIC,
                      .version = HELLO_VERSION,
                      .nranks = (uint32_t)t->nranks,
                      .rank = (uint32_t)t->rank,
                      .token = t->token,
                      .job = t->job};
    int rc = t->key ? prove(l, t, deadline, why, why_len) : 0;

    if (rc)
        return rc;
    snprintf(h.release, sizeof(h.release), "%s", release(t));
    gethostname(h.host, sizeof(h.host) - 1);
    if (pvn_boot_line_send(l, &h, sizeof(h), deadline))
        return -EAGAIN;
    return take_answer(l, t, deadline, why, why_len);
}

/* Makes a connection that rank 0 has accepted this rank's. */
static int sit_down(struct pvn_boot *b, struct pvn_boot_line *l, const struct pvn_boot_tcp *t,
                    char *why, size_t why_len)
{
    int rc = 0;

    b->fd[0] = l->fd;
    if (l->seal)
        rc = pvn_boot_relay(b, &l->seal, program(t), why, why_len);
    l->fd = -1;
    pvn_boot_line_close(l);
    return rc;
}

static int join_meeting(struct pvn_boot *b, const struct pvn_boot_tcp *t, char *why, size_t why_len)
{
    double deadline = pvn_now_s() + t->meet_timeout;
    struct addrinfo *ai;
    int rc, last = -ETIMEDOUT;

    rc = resolve(t, 0, &ai, why, why_len);
    if (rc)
        return rc;
    rc = -EAGAIN;
    while (rc == -EAGAIN && pvn_now_s() < deadline) {
        for (struct addrinfo *a = ai; a && rc == -EAGAIN; a = a->ai_next) {
            struct pvn_boot_line l = {pvn_boot_dial(a, deadline), NULL};

            if (l.fd < 0) {
                last = l.fd;
                continue;
            }
            last = -EPROTO;
            rc = introduce(&l, t, deadline, why, why_len);
            if (rc)
                pvn_boot_line_close(&l);
            else
                rc = sit_down(b, &l, t, why, why_len);
        }
        if (rc == -EAGAIN)
            usleep(50000);
    }
    freeaddrinfo(ai);
    if (rc == -EAGAIN) {
        snprintf(
            why, why_len,
            "rank %d could not reach rank 0 at %s:%d for %.0f s: %s (is rank 0 started, and the "
            "port open? see %s)",
            t->rank, t->master, t->port, t->meet_timeout, strerror(-last),
            see(t, "MASTER_ADDR, MASTER_PORT, --master, --boot-timeout"));
        rc = -ETIMEDOUT;
    }
    return rc;
}

int pvn_boot_tcp_meet(struct pvn_boot *b, const struct pvn_boot_tcp *t, char *why, size_t why_len)
{
    int n = t->rank == 0 ? t->nranks : 1;
    int rc;

    memset(b, 0, sizeof(*b));
    b->rank = t->rank;
    b->nranks = t->nranks;
    b->timeout = t->timeout;
    b->fd = malloc(sizeof(int) * (size_t)n);
    if (!b->fd) {
        snprintf(why, why_len, "out of memory for %d ranks", t->nranks);
        return -ENOMEM;
    }
    for (int i = 0; i < n; i++)
        b->fd[i] = -1;
    if (t->nranks == 1)
        return 0;
    rc = t->rank == 0 ? host_meeting(b, t, why, why_len) : join_meeting(b, t, why, why_len);
    if (rc)
        pvn_boot_close(b);
    return rc;
}

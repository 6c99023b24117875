/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* control.c: commands on a datagram socket, asynchronous events, doorbell counts.
 *
 * Commands (text; the answer to each is one datagram):
 *   event TYPE INFO   raises the asynchronous event TYPE (enum ibv_event_type); INFO is the number of
 *                     the queue pair, completion queue, SRQ or port
 *   fail QPN STATUS   completes the oldest unacknowledged send of the queue pair with this status
 *                     (enum ibv_wc_status) and moves the queue pair to ERROR
 *   doorbells         returns the counts so far; write_counts has the format */
#define _GNU_SOURCE
#include "pvstand.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NHANDLE = 2048, NOPCODE = 8 };

struct event {
    uint32_t type, info;
    struct event *next;
};

static struct event *events, **events_tail = &events;
static pthread_cond_t event_ready = PTHREAD_COND_INITIALIZER;
static atomic_ulong doorbells[NDOORBELL][NHANDLE];
static atomic_ulong requests[NHANDLE][NOPCODE];

/* -- doorbell counts --------------------------------------------------------------------------- */

void stand_count_doorbell(enum doorbell kind, uint32_t handle)
{
    atomic_fetch_add_explicit(&doorbells[kind][handle % NHANDLE], 1, memory_order_relaxed);
}

void stand_count_request(uint32_t qpn, uint32_t opcode)
{
    atomic_fetch_add_explicit(&requests[qpn % NHANDLE][opcode < NOPCODE ? opcode : NOPCODE - 1], 1,
                              memory_order_relaxed);
}

/* Writes a line "total send N recv N srq N poll N arm N requests N", then for every queue with any counts
 * "qp QPN send N recv N requests N write N write_imm N send N send_imm N read N atomic N" or
 * "cq HANDLE poll N arm N". Send, recv, srq, poll and arm count doorbells. */
static void write_counts(FILE *f)
{
    unsigned long total[NDOORBELL] = {0}, fetched = 0;

    for (int h = 0; h < NHANDLE; h++) {
        for (int k = 0; k < NDOORBELL; k++)
            total[k] += doorbells[k][h];
        for (int o = 0; o < NOPCODE; o++)
            fetched += requests[h][o];
    }
    fprintf(f, "total send %lu recv %lu srq %lu poll %lu arm %lu requests %lu\n",
            total[DOORBELL_SEND], total[DOORBELL_RECV], total[DOORBELL_SRQ], total[DOORBELL_POLL],
            total[DOORBELL_ARM], fetched);
    for (int h = 0; h < NHANDLE; h++) {
        atomic_ulong *r = requests[h];
        unsigned long all = 0;

        for (int o = 0; o < NOPCODE; o++)
            all += r[o];
        if (all || doorbells[DOORBELL_SEND][h] || doorbells[DOORBELL_RECV][h])
            fprintf(f,
                    "qp %d send %lu recv %lu requests %lu write %lu write_imm %lu send %lu "
                    "send_imm %lu read %lu atomic %lu\n",
                    h, doorbells[DOORBELL_SEND][h], doorbells[DOORBELL_RECV][h], all,
                    r[IBV_WR_RDMA_WRITE], r[IBV_WR_RDMA_WRITE_WITH_IMM], r[IBV_WR_SEND],
                    r[IBV_WR_SEND_WITH_IMM], r[IBV_WR_RDMA_READ],
                    r[IBV_WR_ATOMIC_CMP_AND_SWP] + r[IBV_WR_ATOMIC_FETCH_AND_ADD]);
        if (doorbells[DOORBELL_POLL][h] || doorbells[DOORBELL_ARM][h])
            fprintf(f, "cq %d poll %lu arm %lu\n", h, doorbells[DOORBELL_POLL][h],
                    doorbells[DOORBELL_ARM][h]);
    }
}

__attribute__((destructor)) static void save_counts(void)
{
    const char *path = stand_hooks ? getenv("PVSTAND_STATS") : NULL;
    FILE *f = path ? fopen(path, "w") : NULL;

    if (!f)
        return;
    write_counts(f);
    fclose(f);
}

/* -- asynchronous events: by a thread that may take QEMU's big lock ---------------------------- */

void stand_async_event(enum ibv_event_type type, uint32_t info)
{
    struct event *e;

    if (!stand_hooks)
        return;
    e = stand_alloc(sizeof *e);
    e->type = type;
    e->info = info;
    *events_tail = e;
    events_tail = &e->next;
    pthread_cond_signal(&event_ready);
}

static void *event_thread(void *arg)
{
    (void)arg;
    for (;;) {
        struct event *e;
        bool raised;

        pthread_mutex_lock(&stand_lock);
        while (!events)
            pthread_cond_wait(&event_ready, &stand_lock);
        e = events;
        events = e->next;
        if (!events)
            events_tail = &events;
        pthread_mutex_unlock(&stand_lock);
        raised = stand_raise_event(e->type, e->info);
        stand_say("asynchronous event %u info %u%s", e->type, e->info, raised ? "" : ": no ring");
        free(e);
    }
    return NULL;
}

/* -- commands ---------------------------------------------------------------------------------- */

static const char *fail_oldest(unsigned qpn, unsigned status)
{
    struct qp *q = qpn < MAX_QPN ? stand_qps[qpn] : NULL;
    struct send_request *w = q ? stand_take_pending(q) : NULL;

    if (!q)
        return "no such queue pair";
    if (w)
        stand_send_done(q, w, status);
    stand_flush(q);
    return w ? "done" : "nothing was outstanding";
}

/* Executes a command and returns the answer, which the caller frees. */
static char *obey(const char *line)
{
    char *answer = NULL;
    size_t size;
    FILE *f = open_memstream(&answer, &size);
    unsigned x, y;

    if (!f)
        return NULL;
    pthread_mutex_lock(&stand_lock);
    if (sscanf(line, "event %u %u", &x, &y) == 2) {
        stand_async_event(x, y);
        fputs("done", f);
    } else if (sscanf(line, "fail %u %u", &x, &y) == 2) {
        fputs(fail_oldest(x, y), f);
    } else if (!strcmp(line, "doorbells")) {
        write_counts(f);
    } else {
        fprintf(f, "not understood: %s", line);
    }
    pthread_mutex_unlock(&stand_lock);
    fclose(f);
    return answer;
}

static void *control_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char line[200];

    for (;;) {
        struct sockaddr_un from;
        socklen_t from_len = sizeof from;
        ssize_t k = recvfrom(fd, line, sizeof line - 1, 0, (struct sockaddr *)&from, &from_len);
        char *answer;

        if (k <= 0)
            continue;
        line[k] = 0;
        answer = obey(line);
        if (answer)
            sendto(fd, answer, strlen(answer), 0, (struct sockaddr *)&from, from_len);
        free(answer);
    }
    return NULL;
}

void stand_control_start(void)
{
    const char *path = getenv("PVSTAND_CTL");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;

    stand_thread(event_thread, NULL);
    if (!path)
        return;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a)) {
        perror(path);
        exit(1);
    }
    stand_thread(control_thread, (void *)(intptr_t)fd);
}

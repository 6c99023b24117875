/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * lost_lane: two ranks, processes of their own, send GPU memory through the plugin over software verbs
 * (tests/softverbs), whose rules break the queue pair in the middle. This happens three times on one connection:
 *
 *     awake             both ranks make calls meanwhile
 *     receiver-sleeps   the receiver has posted its receives and makes no call for a while, in which the lane is lost
 *     sender-sleeps     the sender's next write is lost, and from then on the sender makes no call for a while
 *
 * A thread with a CUDA context registers the buffers, and another thread makes the data calls, as in NCCL. Here the
 * second thread has no context, which is the hardest case, because a failover registers the buffers again on that
 * thread. Every byte is compared. The failover must end on RDMA lanes, because TCP with copies would be exact, too.
 *
 * The environment names the software verbs (NCCL_PVRDMA_VERBS_LIB, PVN_SOFTVERBS_...). Exits with 0, 1 (failed), 2
 * (usage) or 77 (no GPU or library here).
 */
#include "config.h"
#include "gpu/lost_lane.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { LIMIT_S = 20, UNTOUCHED = 0xa5 };

static const char usage[] = "usage: lost_lane --plugin LIB [options]\n"
                            "  --cuda LIB     libcuda.so.1\n"
                            "  --sleep S      for how long a rank makes no call (1)\n"
                            "  --label TEXT   first word of the lines about what was seen\n";

static const char *const names[LL_TIMES] = {"awake", "receiver-sleeps", "sender-sleeps"};

/* Returns the sender's byte at this offset of a buffer. */
static unsigned char pattern(enum ll_time time, int buffer, size_t at)
{
    return (unsigned char)((at * 2654435761u >> 11) + (size_t)buffer * 77 + (size_t)time * 31 + 1);
}

bool ll_fail(struct ll_rank *r, const char *fmt, ...)
{
    va_list ap;
    char text[512];
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s, %s: %s\n", r->opt->label, r->sender ? "sender" : "receiver", text);
    atomic_store(&r->shared->failed, 1);
    return false;
}

bool ll_goes_on(struct ll_rank *r, double until, const char *what)
{
    if (atomic_load(&r->shared->failed))
        return false;
    return pvn_now_s() < until || ll_fail(r, "%s did not end within %d s", what, LIMIT_S);
}

static bool barrier(struct ll_rank *r)
{
    struct ll_shared *s = r->shared;
    int generation = atomic_load(&s->generation);
    double until = pvn_now_s() + LIMIT_S + r->opt->sleep_s;
    if (atomic_fetch_add(&s->arrived, 1) == 1) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->generation, 1);
        return true;
    }
    while (atomic_load(&s->generation) == generation) {
        if (!ll_goes_on(r, until, "waiting for the other rank"))
            return false;
        usleep(500);
    }
    return true;
}

/* ---- one time ---- */

static bool prepare(struct ll_rank *r, enum ll_time time)
{
    for (int b = 0; b < LL_BUFFERS; b++) {
        for (size_t i = 0; r->sender && i < LL_BYTES; i++)
            r->host[i] = pattern(time, b, i);
        int cr = r->sender ? ll_gpu_write(r->buf[b].at, r->host, LL_BYTES)
                           : ll_gpu_set(r->buf[b].at, UNTOUCHED, LL_BYTES);
        if (cr)
            return ll_fail(r, "filling a buffer: CUDA error %d", cr);
    }
    return true;
}

/* Compares all of the receiver's buffers: messages, and the bytes between them. */
static bool compare(struct ll_rank *r, enum ll_time time)
{
    unsigned char *want = r->host + LL_BYTES;
    for (int b = 0; b < LL_BUFFERS; b++) {
        memset(want, UNTOUCHED, LL_BYTES);
        for (int i = b; i < LL_MESSAGES; i += LL_BUFFERS) {
            struct ll_message m = ll_message(i);
            for (size_t k = 0; k < m.len; k++)
                want[m.to + k] = pattern(time, b, m.from + k);
        }
        int cr = ll_gpu_read(r->host, r->buf[b].at, LL_BYTES);
        if (cr)
            return ll_fail(r, "reading a buffer: CUDA error %d", cr);
        for (size_t k = 0; k < LL_BYTES; k++)
            if (r->host[k] != want[k])
                return ll_fail(r, "%s: byte %zu of buffer %d is 0x%02x instead of 0x%02x",
                               names[time], k, b, r->host[k], want[k]);
    }
    return true;
}

/* Judges the failover of this time by the log and by the adapter's counters. */
static bool judge(struct ll_rank *r, enum ll_time time, const struct ll_seen *before)
{
    struct ll_seen now = ll_seen(r);
    if (now.again == before->again)
        return ll_fail(r, "%s: no failover: this has shown nothing", names[time]);
    if (now.refused != before->refused)
        return ll_fail(r, "%s: the failover's lanes did not take GPU memory: %s", names[time],
                       now.refusal);
    if (now.elsewhere != before->elsewhere)
        return ll_fail(r, "%s: the failover ended elsewhere than on RDMA: %s", names[time],
                       now.lanes);
    /* The new lanes register GPU memory from descriptors that the plugin has exported. */
    if (r->by_dmabuf && now.dmabufs - before->dmabufs < LL_BUFFERS)
        return ll_fail(r, "%s: %d buffers were registered again by dma-buf, not %d", names[time],
                       (int)(now.dmabufs - before->dmabufs), LL_BUFFERS);
    if (ll_gpu_has_context())
        return ll_fail(r, "%s: the thread of the data calls was left with a CUDA context",
                       names[time]);
    snprintf(r->shared->again[time][r->sender], sizeof(r->shared->again[time][0]), "%s", now.after);
    snprintf(r->shared->lanes, sizeof(r->shared->lanes), "%s", now.lanes);
    return true;
}

static bool lose_once(struct ll_rank *r, enum ll_time time)
{
    struct ll_seen before = ll_seen(r);
    if (!prepare(r, time) || !barrier(r))
        return false;
    double until = pvn_now_s() + LIMIT_S + r->opt->sleep_s;
    if (r->sender ? !ll_send(r, time, until) : !ll_receive(r, time, until))
        return false;
    if (!barrier(r) || !judge(r, time, &before))
        return false;
    return r->sender || compare(r, time);
}

/* ---- the ranks ---- */

static int run_rank(const struct ll_options *o, struct ll_shared *shared, bool sender)
{
    struct ll_rank r = {.opt = o, .shared = shared, .sender = sender};
    char why[256] = "";
    bool absent = false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    r.host = malloc(2 * LL_BYTES);
    if (!r.host)
        return LL_FAILED;
    if (ll_gpu_open(o->cuda_lib, &absent, why, sizeof(why))) {
        fprintf(stderr, "%s\n", why);
        atomic_store(&shared->failed, 1);
        return absent ? LL_SKIP : LL_FAILED;
    }
    bool ok = ll_open(&r) && barrier(&r);
    if (ok && sender) {
        ll_gpu_probe(r.buf[0].at, LL_BYTES, why, sizeof(why));
        printf("CONTEXT on a thread without one: %s\n", why);
    }
    for (int time = 0; ok && time < LL_TIMES; time++)
        ok = lose_once(&r, (enum ll_time)time);
    if (!ok)
        return LL_FAILED; /* an orderly end might wait for the other rank */
    if (!sender)
        shared->relaxed = ll_relaxed(&r);
    barrier(&r);
    ll_close(&r);
    free(r.host);
    return LL_OK;
}

/* Makes each rank a host of its own to the software verbs, with a sysfs tree of its own. */
static void show_software_verbs(int rank)
{
    const char *dir = getenv("PVN_SOFTVERBS_DIR");
    char text[256];
    snprintf(text, sizeof(text), "%d", rank + 1);
    setenv("PVN_SOFTVERBS_HOST", text, 1);
    if (!dir)
        return;
    int n = snprintf(text, sizeof(text), "%s/sys%d", dir, rank);
    if (n >= (int)sizeof(text) || (mkdir(text, 0700) && errno != EEXIST)) {
        perror("the directory of a sysfs tree");
        _exit(LL_FAILED);
    }
    setenv("PVN_SOFTVERBS_SYSFS", text, 1);
    setenv("NCCL_PVRDMA_SYSFS_ROOT", text, 1);
}

static int parse(struct ll_options *o, int argc, char **argv)
{
    static const struct option options[] = {
        {"plugin", 1, NULL, 'p'}, {"cuda", 1, NULL, 'c'}, {"sleep", 1, NULL, 's'},
        {"label", 1, NULL, 'l'},  {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int opt;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'p':
            o->plugin = optarg;
            break;
        case 'c':
            o->cuda_lib = optarg;
            break;
        case 's':
            o->sleep_s = atoi(optarg);
            break;
        case 'l':
            o->label = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(LL_OK);
        default:
            return -1;
        }
    }
    return o->plugin && o->sleep_s > 0 && optind == argc ? 0 : -1;
}

/* Returns the worst status of the ranks. After a failure the other rank has two seconds. */
static int wait_for(pid_t *pid)
{
    int left = 2, worst = LL_OK;
    double until = 0;
    while (left) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended <= 0) {
            usleep(2000);
            for (int i = 0; i < 2 && until > 0 && pvn_now_s() > until; i++)
                if (pid[i])
                    kill(pid[i], SIGKILL);
            continue;
        }
        pid[ended == pid[1]] = 0;
        left--;
        int rc = WIFEXITED(status) ? WEXITSTATUS(status) : LL_FAILED;
        if (!WIFEXITED(status))
            fprintf(stderr, "a rank died of signal %d\n", WTERMSIG(status));
        if (rc && until == 0) {
            until = pvn_now_s() + 2;
            worst = rc;
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    struct ll_options o = {.cuda_lib = "libcuda.so.1", .sleep_s = 1, .label = "-"};
    if (parse(&o, argc, argv)) {
        fputs(usage, stderr);
        return LL_USAGE;
    }
    struct ll_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return LL_FAILED;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    pid_t pid[2] = {0};
    for (int i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            show_software_verbs(i);
            int rc = run_rank(&o, shared, i == 0);
            fflush(stdout);
            _exit(rc);
        }
        if (pid[i] < 0) {
            perror("fork");
            if (i)
                kill(pid[0], SIGKILL);
            return LL_FAILED;
        }
    }
    int rc = wait_for(pid);
    for (int time = 0; rc == LL_OK && time < LL_TIMES; time++)
        printf("LOST %s %s exact, sender again after %s, receiver after %s, %s\n", o.label,
               names[time], shared->again[time][1], shared->again[time][0], shared->lanes);
    if (rc == LL_OK)
        printf("RELAXED %s %lld writes held back\n", o.label, shared->relaxed);
    return rc;
}

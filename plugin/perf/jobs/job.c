/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/jobs/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/patterns/pairs.h"
#include "perf/rank/rank.h"

/* Further exit statuses of a rank, for its parent. */
#define WRONG_THEN_FAILED 4
#define RANK_INTERRUPTED  5

#define INTERRUPTED "interrupted" /* reason for the ranks that take no part in a job */

#define GRACE      3.0  /* seconds for the other ranks to end after one has failed */
#define STOP_GRACE 15.0 /* seconds for ranks with progress to end after an interruption */
/* Seconds beyond --timeout after which a rank without progress counts as stuck in a call. */
#define STUCK_EXTRA 5.0

struct child {
    pid_t pid; /* 0: ended */
    int killed;
    uint64_t beat;
    double beat_at;
};

struct watch {
    const struct pvn_job *j;
    struct child *child;
    struct pvn_beat *beat; /* shared, one per child */
    int n, alive, first;   /* first: rank number of child[0] */
    int row_fd;
    struct pvn_row row;
    size_t row_got;
    int wrong;
    int interrupted;
    double failed_at; /* time of the first failure; 0: none */
    double stop_at;   /* time when the ranks were signalled to end; 0: not yet */
    double looked_at; /* last reading of the clock; 0: none yet */
};

/*
 * /sys/class/net shows the network namespace in which sysfs was mounted. After a mount of its own,
 * the plugin sees the interfaces of this namespace, as under `ip netns exec`. Otherwise it may take
 * the PCI path of an interface with the same name.
 */
static void mount_own_sysfs(const struct pvn_rank *r)
{
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) == 0 &&
        mount("sysfs", "/sys", "sysfs", 0, NULL) == 0)
        return;
    if (r->o->verbose)
        fprintf(stderr,
                "pvn-perf: rank %d: /sys cannot be mounted for the namespace, so the plugin may "
                "show another one's devices: %s\n",
                r->rank, strerror(errno));
}

/* Enters a namespace: "A" is /run/netns/A, as made by `ip netns`. */
static int enter_netns(struct pvn_rank *r)
{
    const char *name;
    char path[128];
    int fd, rc;

    if (!r->o->nnetns)
        return 0;
    name = r->o->netns[r->rank % r->o->nnetns];
    snprintf(path, sizeof(path), "/run/netns/%s", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pvn_rank_fail(r, "--netns %s: cannot open %s: %s (make it with `ip netns add %s`)",
                             name, path, strerror(errno), name);
    rc = setns(fd, CLONE_NEWNET) ? errno : 0;
    close(fd);
    if (rc)
        return pvn_rank_fail(r, "--netns %s: cannot enter it: %s%s", name, strerror(rc),
                             rc == EPERM ? " (root is needed)" : "");
    mount_own_sysfs(r);
    return 0;
}

/* The timeout of exchanges. It is longer than a rank's wait for data, because the rank where data
 * stalls knows more than one at a barrier. */
static double boot_timeout(const struct pvn_perf_opts *o)
{
    return o->timeout * 1.5 + 2;
}

static void beat_tick(void *arg)
{
    struct pvn_beat *b = arg;

    atomic_fetch_add_explicit(&b->count, 1, memory_order_relaxed);
}

static int run_mode(struct pvn_rank *r)
{
    if (r->o->mode == PVN_PERF_P2P)
        return pvn_p2p_run(r);
    if (r->o->mode == PVN_PERF_MESH)
        return pvn_mesh_run(r);
    if (!pvn_opts_of_pairs(r->o))
        return pvn_ring_run(r);
    if (pvn_pairs_open(r))
        return -1;
    return r->o->collective == PVN_PIPELINE ? pvn_pipeline_run(r) : pvn_alltoall_run(r);
}

/* The rank's process, from here to its end. */
static _Noreturn void rank_main(const struct pvn_job *j, int rank, const struct pvn_boot *boot,
                                struct pvn_beat *beat, int row_fd, int external)
{
    struct pvn_rank *r = calloc(1, sizeof(*r));

    if (!r)
        _exit(PVN_PERF_FAILED);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    r->o = j->o;
    r->plugin = j->plugin;
    r->repeat = j->repeat;
    r->rank = rank;
    r->nranks = j->nranks;
    r->external = external;
    r->boot = *boot;
    r->boot.tick = beat_tick;
    r->boot.tick_arg = beat;
    r->boot.stop = &pvn_stop_flag;
    r->beat = beat;
    r->row_fd = rank == 0 ? row_fd : -1;
    r->mem.pin_fd = -1;
    pvn_rank_find_plugin(r);
    if (enter_netns(r) == 0 && pvn_rank_open(r) == 0) {
        int rc = run_mode(r);

        /* No rank closes a comm while another one still moves data on it. */
        pvn_rank_at(r, "waiting for the other ranks");
        if (rc == 0 && pvn_boot_barrier(&r->boot))
            pvn_rank_fail_boot(r);
    }
    pvn_rank_close(r);
    pvn_rank_doorbells(r);
    fflush(NULL);
    if (r->status == PVN_PERF_INTERRUPTED)
        _exit(r->wrong ? PVN_PERF_WRONG : RANK_INTERRUPTED);
    if (r->status == PVN_PERF_FAILED)
        pvn_rank_error(r);
    if (r->status == PVN_PERF_FAILED)
        _exit(r->wrong ? WRONG_THEN_FAILED
                       : PVN_PERF_FAILED); /* code that the plugin left behind must not run */
    pvn_boot_close(&r->boot);
    rank = r->status;
    free(r);
    exit(rank);
}

static void fail_watch(struct watch *w)
{
    if (w->failed_at <= 0)
        w->failed_at = pvn_now_s();
}

/* Wrong data has priority over other failures, which have been printed. */
static int watch_status(const struct watch *w)
{
    if (w->wrong)
        return PVN_PERF_WRONG;
    /* Ranks that lost connections while they ended by request did not fail. */
    if (w->interrupted || w->stop_at > 0)
        return PVN_PERF_INTERRUPTED;
    return w->failed_at > 0 ? PVN_PERF_FAILED : PVN_PERF_OK;
}

static void read_rows(struct watch *w)
{
    for (;;) {
        ssize_t n = read(w->row_fd, (char *)&w->row + w->row_got, sizeof(w->row) - w->row_got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        w->row_got += (size_t)n;
        if (w->row_got == sizeof(w->row)) {
            w->row_got = 0;
            if (w->j->on_row)
                w->j->on_row(w->j->arg, &w->row);
        }
    }
}

static void child_ended(struct watch *w, int i, int st)
{
    int rank = w->first + i;

    w->child[i].pid = 0;
    w->alive--;
    if (WIFEXITED(st) && WEXITSTATUS(st) == RANK_INTERRUPTED) {
        w->interrupted = 1;
    } else if (WIFSIGNALED(st)) {
        if (!w->child[i].killed)
            fprintf(stderr, "pvn-perf: rank %d was killed by signal %d (%s)\n", rank, WTERMSIG(st),
                    strsignal(WTERMSIG(st)));
        fail_watch(w);
    } else if (WEXITSTATUS(st) == PVN_PERF_WRONG) {
        w->wrong = 1;
    } else if (WEXITSTATUS(st) == WRONG_THEN_FAILED) {
        w->wrong = 1;
        fail_watch(w);
    } else if (WEXITSTATUS(st) != PVN_PERF_OK) {
        if (WEXITSTATUS(st) != PVN_PERF_FAILED)
            fprintf(stderr, "pvn-perf: rank %d ended with status %d, which is not pvn-perf's own\n",
                    rank, WEXITSTATUS(st));
        fail_watch(w);
    }
}

static void reap(struct watch *w)
{
    for (int i = 0; i < w->n; i++) {
        int st;

        if (w->child[i].pid && waitpid(w->child[i].pid, &st, WNOHANG) == w->child[i].pid)
            child_ended(w, i, st);
    }
}

/* Finds ranks without progress: such a rank is inside a call of the plugin, where its own timeout
 * cannot fire. */
static void find_stuck(struct watch *w, double now)
{
    for (int i = 0; i < w->n; i++) {
        struct child *c = &w->child[i];
        uint64_t beat = atomic_load_explicit(&w->beat[i].count, memory_order_relaxed);
        const char *where = atomic_load_explicit(&w->beat[i].where, memory_order_relaxed);

        if (!c->pid)
            continue;
        if (beat != c->beat || c->beat_at <= 0) {
            c->beat = beat;
            c->beat_at = now;
        } else if (now - c->beat_at > w->j->o->timeout + STUCK_EXTRA && w->failed_at <= 0) {
            fprintf(stderr,
                    "pvn-perf: rank %d has not returned from '%s' of plugin %s for %.0f s and is "
                    "killed (--timeout sets the limit)\n",
                    w->first + i, where ? where : "starting", w->j->o->plugin[w->j->plugin].name,
                    now - c->beat_at);
            fail_watch(w);
            c->killed = 1;
            kill(c->pid, SIGKILL);
        }
    }
}

/* only_still: kill only ranks without progress, because the others end by themselves and clean
 * up. */
static void kill_rest(struct watch *w, double now, bool only_still)
{
    for (int i = 0; i < w->n; i++) {
        const char *where = atomic_load_explicit(&w->beat[i].where, memory_order_relaxed);

        if (!w->child[i].pid || (only_still && now - w->child[i].beat_at <= GRACE / 2))
            continue;
        if (now - w->child[i].beat_at > GRACE / 2 && !w->child[i].killed)
            fprintf(stderr, "pvn-perf: rank %d does not return from '%s' of plugin %s\n",
                    w->first + i, where ? where : "starting", w->j->o->plugin[w->j->plugin].name);
        w->child[i].killed = 1;
        kill(w->child[i].pid, SIGKILL);
    }
}

/* Forwards an interruption to the ranks, once. */
static void stop_children(struct watch *w, double now)
{
    if (w->stop_at > 0)
        return;
    w->stop_at = now;
    for (int i = 0; i < w->n; i++)
        if (w->child[i].pid)
            kill(w->child[i].pid, pvn_stop_flag == SIGPIPE ? SIGTERM : pvn_stop_flag);
}

/* Returns the time. If this process was stopped, or waited for the reader of its output, moves all
 * limits by that time. */
static double read_clock(struct watch *w)
{
    double now = pvn_now_s(), stopped = w->looked_at > 0 ? pvn_boot_stopped(w->looked_at, now) : 0;

    w->looked_at = now;
    for (int i = 0; i < w->n; i++)
        if (w->child[i].beat_at > 0)
            w->child[i].beat_at += stopped;
    if (w->failed_at > 0)
        w->failed_at += stopped;
    if (w->stop_at > 0)
        w->stop_at += stopped;
    return now;
}

static void watch_children(struct watch *w)
{
    struct pollfd p = {.fd = w->row_fd, .events = POLLIN};

    while (w->alive) {
        double now;

        /* After the writer has closed the pipe, poll would always report it as ready. */
        if (p.fd >= 0 && poll(&p, 1, 50) > 0 && (p.revents & POLLHUP) && !(p.revents & POLLIN))
            p.fd = -1;
        else if (p.fd < 0)
            poll(NULL, 0, 20);
        if (w->row_fd >= 0)
            read_rows(w);
        reap(w);
        now = read_clock(w);
        find_stuck(w, now);
        if (pvn_stop_flag)
            stop_children(w, now);
        if ((w->failed_at > 0 && now - w->failed_at > GRACE) ||
            (w->stop_at > 0 && (now - w->stop_at > STOP_GRACE || pvn_stop_insists())))
            kill_rest(w, now, false);
        else if (w->stop_at > 0 && now - w->stop_at > GRACE)
            kill_rest(w, now, true);
    }
    if (w->row_fd >= 0)
        read_rows(w);
}

static int watch_open(struct watch *w, const struct pvn_job *j, int n, int first, int row_pipe[2])
{
    size_t len = sizeof(*w->beat) * (size_t)n;

    memset(w, 0, sizeof(*w));
    w->j = j;
    w->n = n;
    w->first = first;
    w->row_fd = -1;
    row_pipe[0] = row_pipe[1] = -1;
    w->child = calloc((size_t)n, sizeof(*w->child));
    w->beat = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!w->child || w->beat == MAP_FAILED || pipe2(row_pipe, O_CLOEXEC)) {
        fprintf(stderr, "pvn-perf: cannot prepare %d ranks: %s\n", n, strerror(errno));
        return -1;
    }
    fcntl(row_pipe[0], F_SETFL, O_NONBLOCK);
    w->row_fd = row_pipe[0];
    fflush(NULL); /* otherwise the children would print it again */
    return 0;
}

static void watch_close(struct watch *w)
{
    if (w->row_fd >= 0)
        close(w->row_fd);
    if (w->beat && w->beat != MAP_FAILED)
        munmap(w->beat, sizeof(*w->beat) * (size_t)w->n);
    free(w->child);
}

int pvn_job_run_forked(const struct pvn_job *j)
{
    int *pairs = NULL, row_pipe[2], n = j->nranks;
    struct watch w;
    char why[256];

    if (watch_open(&w, j, n, 0, row_pipe)) {
        watch_close(&w);
        return PVN_PERF_FAILED;
    }
    if (pvn_boot_pairs(n, &pairs, why, sizeof(why))) {
        fprintf(stderr, "pvn-perf: %s\n", why);
        fail_watch(&w);
    }
    for (int i = 0; i < n && w.failed_at <= 0; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            struct pvn_boot boot;

            close(row_pipe[0]);
            if (i != 0)
                close(row_pipe[1]);
            if (pvn_boot_from_pairs(&boot, i, n, pairs, boot_timeout(j->o)))
                _exit(PVN_PERF_FAILED);
            rank_main(j, i, &boot, &w.beat[i], row_pipe[1], 0);
        }
        if (pid < 0) {
            fprintf(stderr, "pvn-perf: cannot start rank %d: %s\n", i, strerror(errno));
            fail_watch(&w);
            break;
        }
        w.child[i].pid = pid;
        w.alive++;
    }
    for (int i = 1; pairs && i < n; i++) {
        close(pairs[2 * i]);
        close(pairs[2 * i + 1]);
    }
    free(pairs);
    close(row_pipe[1]);
    watch_children(&w);
    watch_close(&w);
    return watch_status(&w);
}

/* Exchanges the worst status of all ranks. */
static int agree(struct pvn_boot *whole, int status, double timeout)
{
    int32_t mine = status, *all = calloc((size_t)whole->nranks, sizeof(*all));

    /* Ranks without a part in this job wait here, however long it takes. */
    whole->timeout = 86400;
    if (!all || pvn_boot_allgather(whole, &mine, all, sizeof(mine))) {
        if (whole->stopped || (whole->heard && strcmp(whole->why, INTERRUPTED) == 0)) {
            free(all);
            return PVN_PERF_INTERRUPTED;
        }
        if (all && status != PVN_PERF_FAILED && !whole->heard)
            fprintf(stderr, "pvn-perf: rank %d ends: %s\n", whole->rank, whole->why);
        status = PVN_PERF_FAILED;
    }
    for (int i = 0; all && i < whole->nranks && status != PVN_PERF_FAILED; i++)
        if (all[i] > status)
            status = all[i];
    free(all);
    whole->timeout = timeout;
    return status;
}

int pvn_job_run_rank(const struct pvn_job *j, struct pvn_boot *whole)
{
    int row_pipe[2], status;
    struct watch w;
    char why[96];
    pid_t pid;

    if (whole->rank >= j->nranks)
        return agree(whole, PVN_PERF_OK, j->o->timeout);
    if (watch_open(&w, j, 1, whole->rank, row_pipe)) {
        watch_close(&w);
        return PVN_PERF_FAILED;
    }
    pid = fork();
    if (pid == 0) {
        struct pvn_boot view;

        close(row_pipe[0]);
        pvn_boot_view(whole, j->nranks, &view);
        view.timeout = boot_timeout(j->o);
        rank_main(j, whole->rank, &view, w.beat, row_pipe[1], 1);
    }
    close(row_pipe[1]);
    if (pid > 0) {
        w.child[0].pid = pid;
        w.alive = 1;
        watch_children(&w);
    } else {
        fprintf(stderr, "pvn-perf: cannot start rank %d: %s\n", whole->rank, strerror(errno));
        fail_watch(&w);
    }
    status = watch_status(&w);
    watch_close(&w);
    if (status == PVN_PERF_INTERRUPTED) {
        /* Ranks without a part in this job wait for its end, so report it. */
        pvn_boot_abort(whole, INTERRUPTED);
        return status;
    }
    if (w.failed_at > 0) {
        /* The child may have died without a report, and this process keeps its sockets open. */
        snprintf(why, sizeof(why), "rank %d failed", whole->rank);
        pvn_boot_abort(whole, why);
        return status;
    }
    return agree(whole, status, j->o->timeout);
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/hosts/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/base/clock.h"

enum { WORDS = 64 };

/* A command that runs. */
struct child {
    struct pvn_topo_fetch *f; /* NULL: free */
    pid_t pid;
    int out, err; /* -1: at its end */
    size_t cap, err_len;
    double deadline;
};

/* Splits text in place and appends the words after argv[n - 1]; returns the new number of words. */
static int split(char *text, char **argv, int n, int most)
{
    char *save = NULL;
    for (char *w = strtok_r(text, " \t\n", &save); w && n < most;
         w = strtok_r(NULL, " \t\n", &save))
        argv[n++] = w;
    return n;
}

static void run_child(char *const *argv, int out, int err)
{
    int null = open("/dev/null", O_RDWR);
    /* A new session has no terminal to ask for a password at, and its process group can be killed
     * as a whole. */
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0)
        execvp(argv[0], argv);
    dprintf(err, "%s: %s\n", argv[0], strerror(errno));
    _exit(255); /* as ssh does if it cannot reach the host */
}

static int start(struct child *c, char *const *argv, struct pvn_topo_fetch *f, int limit_s)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    f->end = PVN_TOPO_FETCH_FAILED;
    c->pid = -1;
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(err, O_CLOEXEC | O_NONBLOCK) == 0 &&
        fcntl(out[1], F_SETFL, 0) == 0 && fcntl(err[1], F_SETFL, 0) == 0)
        c->pid = fork();
    if (c->pid == 0)
        run_child(argv, out[1], err[1]);
    f->status = errno;
    if (out[1] >= 0)
        close(out[1]);
    if (err[1] >= 0)
        close(err[1]);
    if (c->pid < 0) {
        if (out[0] >= 0)
            close(out[0]);
        if (err[0] >= 0)
            close(err[0]);
        return -1;
    }
    c->f = f;
    c->out = out[0];
    c->err = err[0];
    c->cap = c->err_len = 0;
    c->deadline = pvn_now_s() + limit_s;
    return 0;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Kills the command if it still runs, and frees its slot. */
static void finish(struct child *c, enum pvn_topo_fetch_end end, int status)
{
    c->f->end = end;
    c->f->status = status;
    shut(&c->out);
    shut(&c->err);
    c->f = NULL;
}

static void stop(struct child *c, enum pvn_topo_fetch_end end)
{
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL); /* the group may not exist yet */
    waitpid(c->pid, NULL, 0);
    finish(c, end, 0);
}

static int take_out(struct child *c)
{
    struct pvn_topo_fetch *f = c->f;
    for (;;) {
        if (f->len + 1 >= c->cap) {
            size_t cap = c->cap ? 2 * c->cap : 64 << 10;
            char *more = realloc(f->out, cap);
            if (!more)
                return -ENOMEM;
            f->out = more;
            c->cap = cap;
        }
        ssize_t n = read(c->out, f->out + f->len, c->cap - f->len - 1);
        if (n < 0)
            return 0;
        f->out[f->len += (size_t)n] = '\0';
        if (n == 0)
            shut(&c->out);
        if (f->len > PVN_TOPO_FETCH_BYTES)
            stop(c, PVN_TOPO_FETCH_LONG);
        if (!c->f || n == 0)
            return 0;
    }
}

/* Keeps the end of a long text. */
static void take_err(struct child *c)
{
    enum { CAP = PVN_TOPO_FETCH_ERR_LEN - 1 };
    char buf[CAP];
    ssize_t n;
    while ((n = read(c->err, buf, sizeof(buf))) > 0) {
        size_t keep = c->err_len + (size_t)n > CAP ? CAP - (size_t)n : c->err_len;
        memmove(c->f->err, c->f->err + c->err_len - keep, keep);
        memcpy(c->f->err + keep, buf, (size_t)n);
        c->err_len = keep + (size_t)n;
        c->f->err[c->err_len] = '\0';
    }
    if (n == 0)
        shut(&c->err);
}

/* Both pipes are closed. The exit status follows at once, unless the command has closed the pipes
 * itself. */
static void reap(struct child *c)
{
    int status;
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    if (WIFSIGNALED(status))
        finish(c, PVN_TOPO_FETCH_KILLED, WTERMSIG(status));
    else
        finish(c, PVN_TOPO_FETCH_EXITED, WEXITSTATUS(status));
}

/* Waits until a command writes or ends. */
static int wait_some(struct child *all, int n)
{
    struct pollfd p[2 * PVN_TOPO_FETCH_PARALLEL];
    double now = pvn_now_s(), next = now + 1;
    int rc = 0;
    for (int i = 0; i < n; i++) {
        bool closed = all[i].f && all[i].out < 0 && all[i].err < 0;
        p[2 * i] = (struct pollfd){.fd = all[i].f ? all[i].out : -1, .events = POLLIN};
        p[2 * i + 1] = (struct pollfd){.fd = all[i].f ? all[i].err : -1, .events = POLLIN};
        if (all[i].f && all[i].deadline < next)
            next = all[i].deadline;
        if (closed && now + 0.01 < next)
            next = now + 0.01;
    }
    poll(p, (nfds_t)(2 * n), next > now ? (int)((next - now) * 1000) + 1 : 0);
    for (int i = 0; i < n && rc == 0; i++) {
        struct child *c = &all[i];
        if (c->f && p[2 * i + 1].revents)
            take_err(c);
        if (c->f && p[2 * i].revents)
            rc = take_out(c);
        if (c->f && c->out < 0 && c->err < 0)
            reap(c);
        if (c->f && pvn_now_s() >= c->deadline)
            stop(c, PVN_TOPO_FETCH_LATE);
    }
    return rc;
}

static int run_children(char **argv, int host_at, struct pvn_topo_fetch *all, int n,
                        struct child *running, int parallel, int limit_s)
{
    int next = 0, left = 0, rc = 0;
    do {
        left = 0;
        for (int i = 0; i < parallel; i++) {
            while (!running[i].f && next < n) {
                argv[host_at] = (char *)all[next].host;
                start(&running[i], argv, &all[next++], limit_s);
            }
            left += running[i].f != NULL;
        }
        if (left)
            rc = wait_some(running, parallel);
    } while (left && rc == 0);
    for (int i = 0; i < parallel; i++)
        if (running[i].f)
            stop(&running[i], PVN_TOPO_FETCH_FAILED);
    return rc;
}

int pvn_topo_fetch_run(const char *ssh, const char *command, struct pvn_topo_fetch *all, int n,
                       int parallel, int limit_s)
{
    char *text = strdup(ssh), *argv[WORDS + 8];
    struct child *running = calloc((size_t)parallel, sizeof(*running));
    int words = text ? split(text, argv, 0, WORDS) : 0, rc = -ENOMEM;
    const char *program = words && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    char ssh_options[] = "-o BatchMode=yes -o ConnectTimeout=10";
    if (text && running && words) {
        if (strcmp(program, "ssh") == 0)
            words = split(ssh_options, argv, words, WORDS + 4);
        argv[words + 1] = (char *)command;
        argv[words + 2] = NULL;
        rc = run_children(argv, words, all, n, running, parallel, limit_s);
    }
    free(text);
    free(running);
    return rc;
}

void pvn_topo_fetch_free(struct pvn_topo_fetch *all, int n)
{
    for (int i = 0; i < n; i++)
        free(all[i].out);
    free(all);
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets up COUNT comms of a net plugin at once between two processes, as NCCL does if many channels
 * and peers connect together: listen on all, then connect and accept in turn until all comms are
 * up. Prints seconds, processor seconds of both processes, and the KiB per comm that became
 * resident in the sending and in the receiving process, with everything that the plugin and its
 * library allocate once. Nothing is sent. Exits with 1 and a message if something fails.
 * usage: many_comms PLUGIN COUNT
 */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "plugin/perf/driver/netdrv.h"

enum { LIMIT_S = 120 };

struct report {
    double s, cpu_s, kib;
};

static struct pvn_netdrv *drv;
static void *ctx;
static const char *role;

static void check(bool ok, const char *what, const char *why)
{
    if (ok)
        return;
    fprintf(stderr, "many_comms: %s: %s: %s\n", role, what, why);
    exit(1);
}

static void check_call(ncclResult_t rc, const char *what)
{
    check(rc == ncclSuccess, what, pvn_netdrv_strerror(rc));
}

static void no_log(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double resident_kib(void)
{
    unsigned long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    check(f && fscanf(f, "%lu %lu", &size, &pages) == 2, "/proc/self/statm", "cannot be read");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static void move_all(int fd, void *data, size_t len, bool out)
{
    for (char *p = data; len > 0;) {
        ssize_t n = out ? write(fd, p, len) : read(fd, p, len);
        check(n > 0, "the other process", "has ended");
        p += n;
        len -= (size_t)n;
    }
}

static void barrier(int fd)
{
    char c = 0;
    move_all(fd, &c, 1, true);
    move_all(fd, &c, 1, false);
}

static void load(const char *plugin)
{
    ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    char why[512];
    check(pvn_netdrv_open(plugin, 0, &drv, why, sizeof(why)) == 0, plugin, why);
    check_call(pvn_netdrv_init(drv, &ctx, 1, &config, no_log, NULL), "init");
    int n;
    check_call(pvn_netdrv_devices(drv, &n), "devices");
    check(n > 0, "devices", "there is none");
}

/* Sets up one end of all comms. The receiver owns these listen comms, and sends their handles to
 * the sender. */
static struct report set_up(int fd, int count, bool sends)
{
    char(*handle)[NCCL_NET_HANDLE_MAXSIZE] = calloc((size_t)count, sizeof(*handle));
    void **listen = calloc((size_t)count, sizeof(*listen)),
         **comm = calloc((size_t)count, sizeof(*comm));
    check(handle && listen && comm, "memory", "there is not enough");
    barrier(fd);
    double kib = resident_kib(), cpu_before = cpu(), before = pvn_now_s();
    for (int i = 0; i < count && !sends; i++)
        check_call(pvn_netdrv_listen(drv, ctx, 0, handle[i], &listen[i]), "listen");
    move_all(fd, handle, (size_t)count * sizeof(*handle), !sends);
    for (int up = 0, last = -1; up < count;) {
        if (up == last)
            sched_yield();
        last = up;
        check(pvn_now_s() - before < LIMIT_S, "connecting", "not all comms came up in time");
        for (int i = 0; i < count; i++) {
            if (comm[i])
                continue;
            check_call(sends ? pvn_netdrv_connect(drv, ctx, 0, handle[i], &comm[i])
                             : pvn_netdrv_accept(drv, listen[i], &comm[i]),
                       sends ? "connect" : "accept");
            up += comm[i] != NULL;
        }
    }
    barrier(fd);
    struct report r = {pvn_now_s() - before, cpu() - cpu_before, (resident_kib() - kib) / count};
    for (int i = 0; i < count; i++) {
        check_call(sends ? pvn_netdrv_close_send(drv, comm[i])
                         : pvn_netdrv_close_recv(drv, comm[i]),
                   "close");
        if (!sends)
            check_call(pvn_netdrv_close_listen(drv, listen[i]), "closeListen");
    }
    check_call(pvn_netdrv_finalize(drv, ctx), "finalize");
    free(handle);
    free(listen);
    free(comm);
    return r;
}

int main(int argc, char **argv)
{
    int ends[2], count = argc == 3 ? atoi(argv[2]) : 0, status = 0;
    if (count < 1)
        return 2;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    role = "the sender";
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair", "failed");
    pid_t child = fork();
    check(child >= 0, "fork", "failed");
    bool sends = child > 0;
    if (!sends)
        role = "the receiver";
    int fd = ends[sends];
    close(ends[!sends]);
    load(argv[1]);
    struct report mine = set_up(fd, count, sends), other;
    if (!sends) {
        move_all(fd, &mine, sizeof(mine), true);
        return 0;
    }
    move_all(fd, &other, sizeof(other), false);
    check(waitpid(child, &status, 0) == child && status == 0, "the receiver", "has failed");
    printf("%.4f %.4f %.1f %.1f\n", mine.s > other.s ? mine.s : other.s, mine.cpu_s + other.cpu_s,
           mine.kib, other.kib);
    return 0;
}

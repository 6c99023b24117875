/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a comm whose thread may sleep between two calls, as NCCL's does while a rank writes a
 * checkpoint. The two ends find each other through a folder. They move COUNT messages and verify
 * them. Then an end with `nap` makes no call until the folder has a file `wake`. Then they move
 * COUNT messages more. Each warning of the plugin is a line on standard output.
 * usage: sleeper PLUGIN send|recv FOLDER [nap]
 *
 * PVN_SLEEPER changes the second half:
 *   busy     messages are larger, and the second half takes some seconds
 *   idle     messages are larger; a sender begins the second half when the folder has a file
 *           `broken`, a receiver at once
 *   closing  messages are larger; there is no second half, and the comm is closed when the folder
 *           has `broken`
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/perf/driver/netdrv.h"

enum {
    COUNT = 200,
    BYTES = 5000,
    LARGE = 50000,
    DEPTH = 8,
    POLL_US = 1000,
    PACE_US = 10000,
    LIMIT_S = 90
};

static struct pvn_netdrv *drv;
static void *ctx;
static const char *folder, *state = "";
static int bytes = BYTES, pace_us;

static void check(ncclResult_t rc, const char *what)
{
    if (rc == ncclSuccess)
        return;
    printf("FAILED: %s: %s\n", what, pvn_netdrv_strerror(rc));
    exit(1);
}

static void print_warning(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                          const char *fmt, ...)
{
    va_list ap;

    if (level != NCCL_LOG_WARN)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

static const char *path(const char *name)
{
    static char text[4096];

    snprintf(text, sizeof(text), "%s/%s", folder, name);
    return text;
}

/* Writes a file that is complete as soon as it has its name. */
static void put(const char *name, const void *content, size_t len)
{
    char part[4096];
    FILE *f;

    snprintf(part, sizeof(part), "%s/%s.%d", folder, name, (int)getpid());
    f = fopen(part, "w");
    if (!f || fwrite(content, 1, len, f) != len || fclose(f) != 0 ||
        rename(part, path(name)) != 0) {
        perror(part);
        exit(1);
    }
}

static void await(const char *name)
{
    while (access(path(name), F_OK) != 0)
        usleep(POLL_US);
}

static void *receiver(void)
{
    _Alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
    void *listener, *comm = NULL;

    check(pvn_netdrv_listen(drv, ctx, 0, handle, &listener), "listen");
    put("handle", handle, sizeof(handle));
    while (!comm)
        check(pvn_netdrv_accept(drv, listener, &comm), "accept");
    check(pvn_netdrv_close_listen(drv, listener), "closeListen");
    return comm;
}

static void *sender(void)
{
    _Alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    void *comm = NULL;
    FILE *f;

    await("handle");
    f = fopen(path("handle"), "r");
    if (!f || fread(handle, 1, sizeof(handle), f) != sizeof(handle))
        exit(1);
    fclose(f);
    while (!comm)
        check(pvn_netdrv_connect(drv, ctx, 0, handle, &comm), "connect");
    return comm;
}

static char byte(long message, int at)
{
    return (char)(message * 31 + at * 7);
}

static bool is_right(const char *buf, long message)
{
    for (int i = 0; i < bytes; i++)
        if (buf[i] != byte(message, i))
            return false;
    return true;
}

/* Moves messages first to last - 1. */
static void move(void *comm, void *mr, char *bufs, bool sends, long first, long last)
{
    void *req[DEPTH] = {NULL};
    long posted = first, done = first;

    while (done < last) {
        char *buf = bufs + posted % DEPTH * bytes;
        size_t size = (size_t)bytes;
        int tag = 0, is_done = 0, got = 0;
        void *data = buf, **r = &req[posted % DEPTH];

        if (posted < last && posted - done < DEPTH) {
            for (int i = 0; i < bytes; i++)
                buf[i] = sends ? byte(posted, i) : 0;
            if (sends)
                check(pvn_netdrv_isend(drv, comm, buf, size, 0, mr, NULL, r), "isend");
            else
                check(pvn_netdrv_irecv(drv, comm, 1, &data, &size, &tag, &mr, NULL, r), "irecv");
            posted += *r != NULL;
        }
        if (done == posted)
            continue;
        check(pvn_netdrv_test(drv, req[done % DEPTH], &is_done, &got), "test");
        if (is_done && !sends && (got != bytes || !is_right(bufs + done % DEPTH * bytes, done))) {
            printf("FAILED: message %ld is wrong\n", done);
            exit(1);
        }
        done += is_done;
        if (is_done && sends && pace_us)
            usleep((unsigned)pace_us);
        if (!is_done)
            usleep(POLL_US / 10);
    }
}

int main(int argc, char **argv)
{
    bool sends = argc > 2 && strcmp(argv[2], "send") == 0, naps = argc > 4;
    char error[512], *bufs = calloc(DEPTH, LARGE);
    long last = 2 * COUNT;
    ncclNetCommConfig_v12_t config = {.trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF};
    void *comm, *mr;

    if (argc < 4 || !bufs)
        return 2;
    alarm(LIMIT_S);
    setvbuf(stdout, NULL, _IOLBF, 0);
    folder = argv[3];
    if (getenv("PVN_SLEEPER")) {
        state = getenv("PVN_SLEEPER");
        bytes = LARGE;
    }
    if (strcmp(state, "closing") == 0)
        last = COUNT;
    if (pvn_netdrv_open(argv[1], 0, &drv, error, sizeof(error)) != 0) {
        printf("FAILED: %s\n", error);
        return 1;
    }
    check(pvn_netdrv_init(drv, &ctx, 1, &config, print_warning, NULL), "init");
    comm = sends ? sender() : receiver();
    check(pvn_netdrv_reg_mr(drv, comm, bufs, (size_t)DEPTH * LARGE, NCCL_PTR_HOST, &mr), "regMr");
    move(comm, mr, bufs, sends, 0, COUNT);
    put(sends ? "sent" : "received", "", 0);
    if (naps)
        await("wake");
    else if (strcmp(state, "closing") == 0 || (sends && strcmp(state, "idle") == 0))
        await("broken");
    if (strcmp(state, "busy") == 0)
        pace_us = PACE_US;
    move(comm, mr, bufs, sends, COUNT, last);
    check(pvn_netdrv_dereg_mr(drv, comm, mr), "deregMr");
    check(sends ? pvn_netdrv_close_send(drv, comm) : pvn_netdrv_close_recv(drv, comm), "close");
    check(pvn_netdrv_finalize(drv, ctx), "finalize");
    pvn_netdrv_close(drv);
    puts("finished");
    return 0;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvstand.c: the start, and the state that all parts share. See pvstand.h. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

pthread_mutex_t stand_lock = PTHREAD_MUTEX_INITIALIZER;
char stand_dir[80];
char stand_self[108];
bool stand_hooks;
struct qp *stand_qps[MAX_QPN];
union ibv_gid stand_gids[NGID];

static bool logging;

void stand_say(const char *format, ...)
{
    va_list ap;

    if (!logging)
        return;
    va_start(ap, format);
    flockfile(stderr);
    fprintf(stderr, "pvstand[%d]: ", getpid());
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(ap);
}

void *stand_alloc(size_t size)
{
    void *p = calloc(1, size);

    if (!p) {
        fprintf(stderr, "pvstand: no memory for %zu bytes\n", size);
        exit(1);
    }
    return p;
}

void stand_thread(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, arg);

    if (error) {
        fprintf(stderr, "pvstand: no thread: %s\n", strerror(error));
        exit(1);
    }
    pthread_detach(thread);
}

int stand_listen(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 64)) {
        perror(path);
        exit(1);
    }
    return fd;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && atoi(value);
}

__attribute__((constructor)) static void start(void)
{
    const char *dir = getenv("PVSTAND_DIR"), *mux = getenv("PVSTAND_MUX");

    if (!dir || !mux)
        return;
    if (strlen(dir) >= sizeof stand_dir) {
        fprintf(stderr, "pvstand: PVSTAND_DIR is longer than %zu bytes\n", sizeof stand_dir - 1);
        exit(1);
    }
    strcpy(stand_dir, dir);
    logging = is_set("PVSTAND_LOG");
    stand_hooks = is_set("PVSTAND_HOOKS");
    snprintf(stand_self, sizeof stand_self, "%s/node-%d", dir, getpid());
    stand_thread(stand_mux_thread, (void *)(intptr_t)stand_listen(mux));
    stand_fabric_start();
    unsetenv("LD_PRELOAD");
    if (stand_hooks) {
        stand_install_hooks();
        stand_control_start();
    }
}

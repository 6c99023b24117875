/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "stats/stats_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void pvn_stats_dir_name(const char *param, uid_t uid, char *out, size_t cap)
{
    if (param[0])
        snprintf(out, cap, "%s", param);
    else
        snprintf(out, cap, PVN_STATS_DEFAULT_DIR "%u", (unsigned)uid);
}

int pvn_stats_dir_open(const char *path, struct pvn_err *err)
{
    struct stat st;
    int fd, rc;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return pvn_err_set(err, -errno, "it cannot be made");
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return pvn_err_set(err, -errno, "it cannot be opened");
    if (fstat(fd, &st) != 0)
        rc = pvn_err_set(err, -errno, "it cannot be looked at");
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        rc = pvn_err_set(err, -EPERM, "it belongs to user %u", (unsigned)st.st_uid);
    else if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
        rc = pvn_err_set(err, -EPERM, "it is writable by others");
    else
        return fd;
    close(fd);
    return rc;
}

/* ---- who lives ---- */

static int read_text(const char *path, char *buf, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = read(fd, buf, cap - 1);
    rc = n < 0 ? -errno : 0;
    close(fd);
    buf[n > 0 ? n : 0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return rc;
}

/* proc(5): field 3 is the state, 22 the start; field 2 may hold blanks and parentheses. */
static int proc_stat(const char *pid, char *state, uint64_t *start)
{
    char path[64], text[1024];
    const char *p;
    int rc, field;

    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    rc = read_text(path, text, sizeof(text));
    if (rc)
        return rc;
    p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -EPROTO;
    *state = p[2];
    for (field = 2; field < 22 && p; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return -EPROTO;
    *start = strtoull(p, NULL, 10);
    return 0;
}

int pvn_stats_ident_self(struct pvn_stat_ident *id)
{
    struct stat st;
    char state;
    int rc;

    memset(id, 0, sizeof(*id));
    id->pid = (uint64_t)getpid();
    rc = proc_stat("self", &state, &id->start);
    if (rc)
        return rc;
    if (stat("/proc/self/ns/pid", &st) != 0)
        return -errno;
    id->pid_ns = st.st_ino;
    rc = read_text("/proc/sys/kernel/random/boot_id", id->boot_id, sizeof(id->boot_id));
    if (rc)
        return rc;
    if (gethostname(id->host, sizeof(id->host) - 1) != 0)
        snprintf(id->host, sizeof(id->host), "unknown");
    return 0;
}

uint32_t pvn_stats_net_ns(void)
{
    struct stat st;

    return stat("/proc/self/ns/net", &st) == 0 ? (uint32_t)st.st_ino : 0;
}

/* True if the file is locked. A process holds a lock on its file while it has it mapped. */
static bool locked(int fd)
{
    if (flock(fd, LOCK_SH | LOCK_NB) != 0)
        return errno == EWOULDBLOCK;
    flock(fd, LOCK_UN);
    return false;
}

enum pvn_stats_life pvn_stats_life_of(const struct pvn_stat_ident *id, int fd, char *state)
{
    struct pvn_stat_ident self;
    char pid[24], letter = '?';
    uint64_t start = 0;

    if (state)
        *state = '?';
    if (pvn_stats_ident_self(&self) != 0)
        return locked(fd) ? PVN_STATS_ALIVE : PVN_STATS_DEAD;
    if (strncmp(id->boot_id, self.boot_id, sizeof(self.boot_id)) != 0)
        return strncmp(id->host, self.host, sizeof(self.host)) == 0 ? PVN_STATS_DEAD
                                                                    : PVN_STATS_ELSEWHERE;
    /* The lock decides in two cases. Another container numbers its processes by itself. And if the
     * file has this process's own number, another program may have made it before it executed this
     * one. */
    if (id->pid_ns != self.pid_ns || (id->pid == self.pid && id->start == self.start))
        return locked(fd) ? PVN_STATS_ALIVE : PVN_STATS_DEAD;
    snprintf(pid, sizeof(pid), "%llu", (unsigned long long)id->pid);
    if (proc_stat(pid, &letter, &start) != 0 || start != id->start || letter == 'Z' ||
        letter == 'X')
        return PVN_STATS_DEAD;
    if (state)
        *state = letter;
    return PVN_STATS_ALIVE;
}

/* ---- what may be removed ---- */

struct dead {
    char name[64];
    uint64_t touched_s; /* wall clock */
};

static int youngest_first(const void *a, const void *b)
{
    const struct dead *x = a, *y = b;

    return x->touched_s < y->touched_s ? 1 : x->touched_s > y->touched_s ? -1 : 0;
}

static bool is_ours(const char *name)
{
    unsigned long long pid, start;
    unsigned n;
    int end = 0;

    return strlen(name) < sizeof(((struct dead *)0)->name) &&
           sscanf(name, "%llu-%llu-%u" PVN_STATS_SUFFIX "%n", &pid, &start, &n, &end) == 3 &&
           end > 0 && name[end] == '\0';
}

/* 0 with *d if the file is a dead process's. *idle: it has nothing that somebody may look for. */
static int judge(int dirfd, const char *name, uid_t uid, struct dead *d, bool *idle)
{
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct pvn_stat_head h;
    struct stat st;
    bool dead, whole;

    if (fd < 0)
        return -errno;
    memset(&h, 0, sizeof(h));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != uid) {
        close(fd);
        return -EPERM;
    }
    whole = pread(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
            memcmp(h.id.magic, PVN_STAT_MAGIC, sizeof(h.id.magic)) == 0;
    dead = whole ? pvn_stats_life_of(&h.id, fd, NULL) == PVN_STATS_DEAD : !locked(fd);
    close(fd);
    if (!dead)
        return -EBUSY;
    *idle = whole && h.id.version == PVN_STAT_VERSION && h.open == 0 && h.failed == 0;
    snprintf(d->name, sizeof(d->name), "%s", name);
    d->touched_s = (uint64_t)st.st_mtime;
    /* Writes through a mapping do not change a file's time of change. */
    if (whole && h.id.version == PVN_STAT_VERSION && h.touched_ns > h.mono_ns)
        d->touched_s = (h.real_ns + (h.touched_ns - h.mono_ns)) / PVN_NS_PER_S;
    return 0;
}

int pvn_stats_sweep(int dirfd, uid_t uid, bool all)
{
    struct dead *list = calloc(PVN_STATS_ENTRIES, sizeof(*list));
    int fd = list ? openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t now = (uint64_t)time(NULL);
    int i, n = 0, kept = 0, gone = 0, seen = 0;
    const struct dirent *e;

    if (!dir && fd >= 0)
        close(fd);
    while (dir && seen++ < PVN_STATS_ENTRIES && (e = readdir(dir))) {
        bool idle = false;

        if (!is_ours(e->d_name) || judge(dirfd, e->d_name, uid, &list[n], &idle) != 0)
            continue;
        if (idle || all)
            gone += unlinkat(dirfd, list[n].name, 0) == 0;
        else
            n++;
    }
    if (dir)
        closedir(dir);
    if (n > 1)
        qsort(list, (size_t)n, sizeof(*list), youngest_first);
    for (i = 0; i < n; i++)
        if (kept < PVN_STATS_KEEP && now < list[i].touched_s + PVN_STATS_KEEP_S)
            kept++;
        else
            gone += unlinkat(dirfd, list[i].name, 0) == 0;
    free(list);
    return gone;
}

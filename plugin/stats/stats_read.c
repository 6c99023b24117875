/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "stats/stats_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* How often to try to read a row while it is not being written; its owner needs about a
 * microsecond. */
enum { TRIES = 100 };

static void clean(char *text, size_t size)
{
    size_t i;

    text[size - 1] = '\0';
    for (i = 0; text[i]; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            text[i] = '?';
}

#define CLEAN(field) clean(field, sizeof(field))

static bool get(int fd, void *buf, size_t size, size_t at)
{
    return pread(fd, buf, size, (off_t)at) == (ssize_t)size;
}

/* Reads a row whose sequence number is the same before and after; if none of the tries is so,
 * r->seq is 1. */
static bool read_row(int fd, size_t at, int tries, struct pvn_stat_row *r)
{
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t before, after;
    int i;

    for (i = 0; i < tries; i++) {
        if (!get(fd, &before, sizeof(before), at) || !get(fd, r, sizeof(*r), at) ||
            !get(fd, &after, sizeof(after), at))
            return false;
        r->seq = 0;
        if (before == after && before % 2 == 0)
            return true;
        r->seq = 1;
        nanosleep(&pause, NULL);
    }
    return true;
}

static int by_id(const void *a, const void *b)
{
    const struct pvn_stat_row *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id ? 1 : 0;
}

static void clean_row(struct pvn_stat_row *r)
{
    CLEAN(r->state);
    CLEAN(r->device);
    CLEAN(r->peer_host);
    CLEAN(r->peer_addr);
    CLEAN(r->lanes);
    CLEAN(r->text);
    if (r->sealed > PVN_STAT_SEALED_DATA)
        r->sealed = PVN_STAT_SEALED_NONE;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Adds the counts since the row was published. They changed after that, at an unknown time. The
 * live counters are the older ones if nobody has copied them since. */
static void take_live(struct pvn_stat_row *r)
{
    const struct pvn_live *live = &r->live;
    struct pvn_stat_counts *n = &r->n;
    bool whole = r->seq == 0;
    uint64_t opened = later(live->opened, n->msgs + n->flushes + n->open), done;

    if (whole && (live->msgs > n->msgs || live->bytes > n->bytes || live->flushes > n->flushes)) {
        if (n->moved_ns < n->look_ns)
            n->moved_ns = n->look_ns;
        if (r->phase == PVN_STAT_UP && n->stuck_ns)
            r->text[0] = '\0';
        n->stuck_ns = 0;
    }
    n->msgs = later(live->msgs, n->msgs);
    n->bytes = later(live->bytes, n->bytes);
    n->flushes = later(live->flushes, n->flushes);
    done = n->msgs + n->flushes;
    n->open = opened > done ? opened - done : 0;
}

static int read_rows(int fd, struct pvn_stats *out, struct pvn_err *err)
{
    int tries = out->life == PVN_STATS_DEAD ? 1 : TRIES;
    uint32_t i, n = out->head.rows;

    out->row = calloc(n ? n : 1, sizeof(*out->row));
    if (!out->row)
        return pvn_err_set(err, -ENOMEM, "no memory for %u rows", n);
    for (i = 0; i < n; i++) {
        struct pvn_stat_row *r = &out->row[out->nrows];

        if (!read_row(fd, sizeof(out->head) + i * sizeof(*r), tries, r))
            return pvn_err_set(err, -EBADMSG, "the file ends in row %u of %u", i + 1, n);
        /* A process that stopped in the middle of one row writes no other. */
        if (r->seq)
            tries = 1;
        clean_row(r);
        take_live(r);
        out->nrows += r->id != 0 && r->phase >= PVN_STAT_LISTEN && r->phase <= PVN_STAT_CLOSED;
    }
    qsort(out->row, (size_t)out->nrows, sizeof(*out->row), by_id);
    return 0;
}

/* Returns the present time on the rows' clock: the boot's own clock if the file is of this boot,
 * else by the calendar. */
static uint64_t now_of(const struct pvn_stat_head *h)
{
    struct pvn_stat_ident self;
    struct timespec ts;

    if (pvn_stats_ident_self(&self) == 0 &&
        strncmp(self.boot_id, h->id.boot_id, sizeof(self.boot_id)) == 0)
        return pvn_now_ns();
    clock_gettime(CLOCK_REALTIME, &ts);
    return h->mono_ns + (uint64_t)ts.tv_sec * PVN_NS_PER_S + (uint64_t)ts.tv_nsec - h->real_ns;
}

static int read_head(int fd, struct pvn_stats *out, struct pvn_err *err)
{
    struct pvn_stat_head *h = &out->head;
    struct pvn_stat_ident *id = &h->id;

    if (!get(fd, id, sizeof(*id), 0) || memcmp(id->magic, PVN_STAT_MAGIC, sizeof(id->magic)) != 0)
        return pvn_err_set(err, -EBADMSG, "not a statistics file, or not a complete one");
    CLEAN(id->boot_id);
    CLEAN(id->host);
    out->life = pvn_stats_life_of(id, fd, &out->state);
    if (id->version != PVN_STAT_VERSION)
        return pvn_err_set(err, -EPROTONOSUPPORT,
                           "written in version %u of the format, by another version of the plugin "
                           "(process %llu); this program reads version %d",
                           id->version, (unsigned long long)id->pid, PVN_STAT_VERSION);
    if (id->head_bytes != sizeof(*h) || id->row_bytes != sizeof(*out->row) ||
        !get(fd, (char *)h + sizeof(*id), sizeof(*h) - sizeof(*id), sizeof(*id)) ||
        h->rows > PVN_STAT_ROWS)
        return pvn_err_set(err, -EBADMSG, "the header is damaged");
    CLEAN(h->plugin);
    CLEAN(h->command);
    CLEAN(h->rank);
    CLEAN(h->rank_from);
    CLEAN(h->addrs);
    for (int i = 0; i < PVN_STAT_TOTALS; i++)
        CLEAN(h->total[i].device);
    out->now_ns = now_of(h);
    /* Clocks of two hosts differ, but nothing can have been written after it was read. Signed: on
     * the clock of a host that was booted a minute ago, an hour before is negative. */
    if (out->life == PVN_STATS_ELSEWHERE && (int64_t)(out->now_ns - h->touched_ns) < 0) {
        out->ahead_ns = h->touched_ns - out->now_ns;
        out->now_ns = h->touched_ns;
    }
    return 0;
}

/* False if a closed comm's numbers were added to the totals meanwhile. A process that does not run
 * adds none. */
static bool totals_fit(int fd, const struct pvn_stats *s)
{
    uint64_t now;

    if (s->life != PVN_STATS_ALIVE)
        return true;
    return s->head.totals_seq % 2 == 0 &&
           get(fd, &now, sizeof(now), offsetof(struct pvn_stat_head, totals_seq)) &&
           now == s->head.totals_seq;
}

static int read_all(int fd, struct pvn_stats *out, struct pvn_err *err)
{
    int rc = 0;

    for (int i = 0; i < TRIES; i++) {
        pvn_stats_free(out);
        rc = read_head(fd, out, err);
        if (rc == 0)
            rc = read_rows(fd, out, err);
        if (rc || totals_fit(fd, out))
            break;
    }
    return rc;
}

int pvn_stats_read(const char *path, struct pvn_stats *out, struct pvn_err *err)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc;
    struct stat st;

    memset(out, 0, sizeof(*out));
    snprintf(out->path, sizeof(out->path), "%s", path);
    if (fd < 0)
        return pvn_err_set(err, -errno, "it cannot be opened");
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = pvn_err_set(err, -EBADMSG, "not a regular file");
    else
        rc = read_all(fd, out, err);
    close(fd);
    if (rc)
        pvn_stats_free(out);
    return rc;
}

void pvn_stats_free(struct pvn_stats *s)
{
    free(s->row);
    s->row = NULL;
    s->nrows = 0;
}

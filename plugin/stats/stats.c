/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/fork_fds.h"
#include "base/log.h"
#include "base/param.h"
#include "stats/stat_via.h"
#include "stats/stats_dir.h"
#include "base/version.h"

#define LOOK_NS (PVN_NS_PER_S / 10)
#define MAP_BYTES                                                                                  \
    (sizeof(struct pvn_stat_head) + (size_t)PVN_STAT_ROWS * sizeof(struct pvn_stat_row))

_Static_assert(sizeof(struct pvn_stat_ident) == 152 && sizeof(struct pvn_stat_head) == 3584 &&
                   sizeof(struct pvn_stat_row) == 1536,
               "another layout is another PVN_STAT_VERSION");
_Static_assert(sizeof(struct pvn_stat_head) % 64 == 0 && sizeof(struct pvn_stat_row) % 64 == 0 &&
                   offsetof(struct pvn_stat_row, live) % 64 == 0,
               "live counters have cache lines of their own");

/* Names that are tried: of several copies of the plugin in one process, and of the files that a start
 * keeps, which may all be those of this process's earlier failures. */
enum { NAMES = 16 + PVN_STATS_KEEP };

struct pvn_stat {
    unsigned epoch; /* of the process that the row belongs to, see fork.h */
    int index;
    struct pvn_stat_row *row; /* in the file, so not mapped in a forked child: see mine() */
};

/* Protected by the lock, except the contents of a row, which its owner writes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct pvn_stat_head *head; /* NULL: no file */
    struct pvn_stat_row *rows;  /* after the header; the first head->rows have memory */
    int used;                   /* rows with an owner */
    bool leaving;               /* the file goes with the last of them */
    bool owned[PVN_STAT_ROWS];
    int fd; /* holds the lock where the mapping does not, otherwise -1 */
    dev_t dev;
    ino_t ino;
    char path[PATH_MAX];
} file;

/* Stores a word whole and after all before it, because readers are other processes. */
static void put32(uint32_t *at, uint32_t v)
{
    __atomic_store_n(at, v, __ATOMIC_RELEASE);
}

static void put64(uint64_t *at, uint64_t v)
{
    __atomic_store_n(at, v, __ATOMIC_RELEASE);
}

/* ---- the file's life ---- */

static void name_rank(struct pvn_stat_head *h)
{
    /* The nearest launcher comes first, because pvn-perf --ranks may itself run under another
     * one. */
    static const char *const names[] = {"PVN_PERF_RANK", "RANK",     "OMPI_COMM_WORLD_RANK",
                                        "PMIX_RANK",     "PMI_RANK", "SLURM_PROCID"};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *v = getenv(names[i]);

        if (!v || !v[0])
            continue;
        snprintf(h->rank, sizeof(h->rank), "%s", v);
        snprintf(h->rank_from, sizeof(h->rank_from), "%s", names[i]);
        return;
    }
}

static void name_command(struct pvn_stat_head *h)
{
    FILE *f = fopen("/proc/self/comm", "re");

    if (f && fgets(h->command, sizeof(h->command), f))
        h->command[strcspn(h->command, "\n")] = '\0';
    if (f)
        fclose(f);
}

static void fill_head(struct pvn_stat_head *h, const struct pvn_stat_ident *id, int abi)
{
    struct timespec ts;

    h->id = *id;
    h->id.version = PVN_STAT_VERSION;
    h->id.head_bytes = sizeof(struct pvn_stat_head);
    h->id.row_bytes = sizeof(struct pvn_stat_row);
    h->id.max_rows = PVN_STAT_ROWS;
    clock_gettime(CLOCK_REALTIME, &ts);
    h->mono_ns = h->touched_ns = pvn_now_ns();
    h->real_ns = (uint64_t)ts.tv_sec * PVN_NS_PER_S + (uint64_t)ts.tv_nsec;
    h->abi = (uint32_t)abi;
    h->net_ns = pvn_stats_net_ns();
    snprintf(h->plugin, sizeof(h->plugin), "%s", pvn_version());
    name_command(h);
    name_rank(h);
    h->rows = PVN_STAT_GROW;
}

static size_t bytes_of(uint32_t rows)
{
    return sizeof(struct pvn_stat_head) + (size_t)rows * sizeof(struct pvn_stat_row);
}

/* Makes a new file in the directory. Returns its descriptor, and writes its name. */
static int create(int dirfd, const struct pvn_stat_ident *id, char *name, size_t cap,
                  struct pvn_err *err)
{
    int i, fd = -1;

    for (i = 0; i < NAMES && fd < 0; i++) {
        snprintf(name, cap, "%llu-%llu-%d" PVN_STATS_SUFFIX, (unsigned long long)id->pid,
                 (unsigned long long)id->start, i);
        fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd >= 0 ? fd : pvn_err_set(err, -errno, "%s cannot be made", name);
}

static void close_lock(int fd)
{
    if (fd < 0)
        return;
    pvn_fork_fds_lock();
    pvn_fork_fds_remove(fd);
    close(fd);
    pvn_fork_fds_unlock();
}

/* Maps the file at fd and writes its header. The mapping outlives the descriptor, and so does the
 * lock, which belongs to the open file that the mapping holds. */
static int map(int fd, const struct pvn_stat_ident *id, int abi, struct pvn_err *err)
{
    uint64_t magic;
    struct stat st;
    void *m;
    int rc;

    flock(fd, LOCK_EX | LOCK_NB); /* on a file system without locks, pids have to do */
    if (fstat(fd, &st) != 0)
        return pvn_err_set(err, -errno, "the new file cannot be looked at");
    rc = posix_fallocate(fd, 0, (off_t)bytes_of(PVN_STAT_GROW));
    if (rc)
        return pvn_err_set(err, -rc, "no room for %zu bytes", bytes_of(PVN_STAT_GROW));
    m = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED)
        return pvn_err_set(err, -errno, "the new file cannot be mapped");
    /* A child with the mapping would keep the lock of a parent that has died. */
    if (madvise(m, MAP_BYTES, MADV_DONTFORK) != 0) {
        rc = -errno;
        munmap(m, MAP_BYTES);
        return pvn_err_set(err, rc, "the mapping cannot be kept from children");
    }
    file.dev = st.st_dev;
    file.ino = st.st_ino;
    file.head = m;
    file.rows = (struct pvn_stat_row *)(file.head + 1);
    fill_head(file.head, id, abi);
    memcpy(&magic, PVN_STAT_MAGIC, sizeof(magic));
    put64(m, magic);
    return 0;
}

/* Closes the file, which is mapped. The mapping holds it, and with it the lock, but not on
 * overlayfs, the root of containers, where it holds the file of the layer below. There another
 * descriptor takes the lock and is returned. */
static int close_but_lock(int dirfd, const char *name, int fd)
{
    int locks;

    pvn_fork_fds_lock();
    locks = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    pvn_fork_fds_add(locks);
    pvn_fork_fds_unlock();
    close(fd);
    if (locks >= 0 && flock(locks, LOCK_EX | LOCK_NB) == 0)
        return locks;
    close_lock(locks);
    return -1;
}

static int make_file(const char *dir, int abi, struct pvn_err *err)
{
    char name[64];
    struct pvn_stat_ident id;
    int dirfd, fd, rc = pvn_stats_ident_self(&id);

    if (rc)
        return pvn_err_set(err, rc, "/proc does not say who this process is");
    dirfd = pvn_stats_dir_open(dir, err);
    if (dirfd < 0)
        return dirfd;
    pvn_stats_sweep(dirfd, geteuid(), false);
    fd = rc = create(dirfd, &id, name, sizeof(name), err);
    if (fd >= 0) {
        rc = map(fd, &id, abi, err);
        if (rc == 0) {
            file.fd = close_but_lock(dirfd, name, fd);
        } else {
            unlinkat(dirfd, name, 0);
            close(fd);
        }
    }
    close(dirfd);
    if (rc == 0)
        snprintf(file.path, sizeof(file.path), "%s/%s", dir, name);
    return rc;
}

void pvn_stats_open(int abi)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[PVN_ERR_TEXT_LEN], dir[PVN_PARAM_STR_LEN + 32];

    if (strcmp(pvn_params_get()->stats_dir, "none") == 0)
        return;
    pthread_mutex_lock(&lock);
    file.leaving = false;
    pvn_stats_dir_name(pvn_params_get()->stats_dir, geteuid(), dir, sizeof(dir));
    if (!file.head && make_file(dir, abi, &err) != 0) {
        pvn_err_format(&err, text, sizeof(text));
        pvn_info(PVN_INIT | PVN_NET, "no statistics file in %s (NCCL_PVRDMA_STATS_DIR): %s", dir,
                 text);
    }
    pthread_mutex_unlock(&lock);
}

/* The caller holds the lock. A file that reports a failure is kept for people who look for the
 * reason. */
static void let_go_if_idle(void)
{
    if (!file.head || !file.leaving || file.used)
        return;
    if (file.head->failed == 0)
        unlink(file.path);
    munmap(file.head, MAP_BYTES);
    close_lock(file.fd);
    memset(&file, 0, sizeof(file));
}

void pvn_stats_close(void)
{
    pthread_mutex_lock(&lock);
    file.leaving = true;
    let_go_if_idle();
    pthread_mutex_unlock(&lock);
}

void pvn_stats_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    memset(&file, 0, sizeof(file)); /* a child has no mapping */
}

const char *pvn_stats_path(void)
{
    return file.path;
}

/* ---- rows ---- */

static bool grow(void)
{
    uint32_t rows = file.head->rows + PVN_STAT_GROW;
    bool done = false;
    struct stat st;
    int fd;

    if (rows > PVN_STAT_ROWS)
        return false;
    fd = open(file.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    /* Somebody may have removed the file, and another process may have made one of the same
     * name. */
    if (fstat(fd, &st) == 0 && st.st_dev == file.dev && st.st_ino == file.ino)
        done = posix_fallocate(fd, 0, (off_t)bytes_of(rows)) == 0;
    close(fd);
    if (done)
        put32(&file.head->rows, rows);
    return done;
}

/* Returns a row that was never used, else that of the comm that ended first; -1: none. Rows of
 * comms that failed are given up last. */
static int ended_or_new(bool failed_too)
{
    int i, best = -1;

    for (i = 0; i < (int)file.head->rows; i++) {
        const struct pvn_stat_row *r = &file.rows[i];

        if (file.owned[i] || (r->phase == PVN_STAT_FAILED && !failed_too))
            continue;
        if (r->id == 0)
            return i;
        if (best < 0 || r->ended_ns < file.rows[best].ended_ns)
            best = i;
    }
    return best;
}

/* Returns the entry for comms of this kind. The last entry takes all kinds that find none. */
static struct pvn_stat_total *total_for(const struct pvn_stat_row *r, uint32_t via)
{
    struct pvn_stat_total *t = file.head->total, *last = &t[PVN_STAT_TOTALS - 1];

    for (; t < last; t++) {
        if (t->device[0] && (t->sender != r->sender || t->via != via ||
                             strncmp(t->device, r->device, sizeof(t->device)) != 0))
            continue;
        if (!t->device[0])
            snprintf(t->device, sizeof(t->device), "%s", r->device[0] ? r->device : "?");
        t->sender = r->sender;
        t->via = via;
        return t;
    }
    snprintf(last->device, sizeof(last->device), "others");
    return last;
}

/* Adds a closed comm's numbers to the totals before its row is used again. A reader that meets an
 * odd sequence number starts over. */
static void keep_numbers(struct pvn_stat_row *r)
{
    struct pvn_stat_total *t = total_for(r, pvn_via_of_lanes(r->lanes));
    const struct pvn_stat_counts *n = &r->n;

    put64(&file.head->totals_seq, file.head->totals_seq + 1);
    put64(&t->comms, t->comms + 1);
    put64(&t->msgs, t->msgs + n->msgs);
    put64(&t->bytes, t->bytes + n->bytes);
    put64(&t->chunks, t->chunks + n->chunks);
    put64(&t->unexpected, t->unexpected + n->unexpected);
    put64(&t->lane_full, t->lane_full + n->lane_full);
    put64(&t->empty_polls, t->empty_polls + n->empty_polls);
    put64(&t->doorbells_send, t->doorbells_send + n->doorbells_send);
    put64(&t->doorbells_recv, t->doorbells_recv + n->doorbells_recv);
    put64(&t->doorbells_empty, t->doorbells_empty + n->doorbells_empty);
    put64(&t->retransmits, t->retransmits + n->retransmits);
    put64(&t->failovers, t->failovers + n->failovers);
    put64(&t->failbacks, t->failbacks + n->failbacks);
    put64(&t->replayed, t->replayed + n->replayed);
    put64(&r->seq, r->seq + 1);
    put64(&r->id, 0);
    put64(&r->seq, r->seq + 1);
    put64(&file.head->totals_seq, file.head->totals_seq + 1);
}

static int find_row(void)
{
    int i = ended_or_new(false);

    if (i < 0 && grow())
        i = ended_or_new(false);
    return i < 0 ? ended_or_new(true) : i;
}

/* Makes the sequence number odd. Until it is even again, readers wait or start over. */
static struct pvn_stat_row *begin(struct pvn_stat *s)
{
    struct pvn_stat_row *r = s->row;

    /* Acquire, because no later store may come before this one. */
    __atomic_exchange_n(&r->seq, r->seq + 1, __ATOMIC_ACQUIRE);
    return r;
}

static void publish(struct pvn_stat *s)
{
    put64(&s->row->seq, s->row->seq + 1);
    put64(&file.head->touched_ns, s->row->n.look_ns);
}

/* Clears a row but for its sequence number, its live counters, and what is behind the end of its
 * texts. */
static void clear(struct pvn_stat_row *r)
{
    memset(&r->id, 0, offsetof(struct pvn_stat_row, text) + 1 - offsetof(struct pvn_stat_row, id));
}

/* Cuts a text that is too long. snprintf would take 400 instructions for each, some 25 times in a
 * set-up. */
static void copy(char *to, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);

    memcpy(to, text, len);
    to[len] = '\0';
}

static bool mine(const struct pvn_stat *s)
{
    return s && !pvn_fork_in_child(s->epoch);
}

struct pvn_stat *pvn_stat_new(enum pvn_stat_phase phase, bool sender, const char *device)
{
    struct pvn_stat *s = NULL;
    struct pvn_stat_row *r;
    int i;

    if (pvn_forked())
        return NULL;
    pthread_mutex_lock(&lock);
    if (!file.head)
        goto out;
    i = find_row();
    if (i >= 0)
        s = calloc(1, sizeof(*s));
    if (!s) {
        put32(&file.head->untracked, file.head->untracked + 1);
        goto out;
    }
    s->epoch = pvn_fork_epoch();
    s->index = i;
    s->row = &file.rows[i];
    if (s->row->id)
        keep_numbers(s->row);
    r = begin(s);
    clear(r);
    r->id = file.head->comms + 1;
    r->phase = phase;
    r->sender = sender;
    r->born_ns = r->state_ns = r->n.look_ns = pvn_now_ns();
    copy(r->device, sizeof(r->device), device);
    file.owned[i] = true;
    file.used++;
    put64(&file.head->comms, r->id);
    put32(&file.head->open, (uint32_t)file.used);
    pvn_live_put(&r->live, &(struct pvn_live){0});
    publish(s);
out:
    pthread_mutex_unlock(&lock);
    return s;
}

void pvn_stats_addresses(const char *list)
{
    pthread_mutex_lock(&lock);
    if (file.head)
        copy(file.head->addrs, sizeof(file.head->addrs), list);
    pthread_mutex_unlock(&lock);
}

void pvn_stat_peer(struct pvn_stat *s, const char *host, uint32_t pid, const char *addr)
{
    struct pvn_stat_row *r;

    if (!mine(s))
        return;
    r = begin(s);
    copy(r->peer_host, sizeof(r->peer_host), host);
    copy(r->peer_addr, sizeof(r->peer_addr), addr);
    r->peer_pid = pid;
    publish(s);
}

void pvn_stat_state(struct pvn_stat *s, enum pvn_stat_phase phase, const char *name,
                    const char *text)
{
    struct pvn_stat_row *r;

    if (!mine(s))
        return;
    if (phase == PVN_STAT_FAILED && s->row->phase != phase) {
        pthread_mutex_lock(&lock);
        put32(&file.head->failed, file.head->failed + 1);
        pthread_mutex_unlock(&lock);
    }
    r = begin(s);
    r->n.look_ns = pvn_now_ns();
    if (r->phase != phase || phase != PVN_STAT_SETUP || strcmp(r->state, name) != 0)
        r->state_ns = r->n.look_ns;
    r->phase = phase;
    copy(r->state, sizeof(r->state), name);
    copy(r->text, sizeof(r->text), text);
    publish(s);
}

void pvn_stat_lanes(struct pvn_stat *s, const char *lanes)
{
    struct pvn_stat_row *r;

    if (!mine(s))
        return;
    r = begin(s);
    copy(r->lanes, sizeof(r->lanes), lanes);
    publish(s);
}

void pvn_stat_seal(struct pvn_stat *s, enum pvn_stat_sealed sealed)
{
    if (!mine(s))
        return;
    begin(s)->sealed = sealed;
    publish(s);
}

struct pvn_live *pvn_stat_live(struct pvn_stat *s)
{
    return mine(s) ? &s->row->live : NULL;
}

void pvn_stat_put(struct pvn_stat *s, const struct pvn_stat_counts *n, const char *text)
{
    struct pvn_stat_row *r;

    if (!mine(s))
        return;
    r = begin(s);
    r->n = *n;
    copy(r->text, sizeof(r->text), text);
    publish(s);
}

void pvn_stat_look(struct pvn_stat *s, uint64_t now_ns)
{
    if (!mine(s) || now_ns - s->row->n.look_ns < LOOK_NS)
        return;
    begin(s)->n.look_ns = now_ns;
    publish(s);
}

static void end(struct pvn_stat *s, bool discards)
{
    struct pvn_stat_row *r;

    if (!s)
        return;
    if (mine(s)) {
        pthread_mutex_lock(&lock);
        r = begin(s);
        if (discards || r->phase == PVN_STAT_LISTEN)
            clear(r);
        else if (r->phase != PVN_STAT_FAILED)
            r->phase = PVN_STAT_CLOSED;
        r->ended_ns = r->n.look_ns = pvn_now_ns();
        publish(s);
        file.owned[s->index] = false;
        file.used--;
        put32(&file.head->open, (uint32_t)file.used);
        let_go_if_idle();
        pthread_mutex_unlock(&lock);
    }
    free(s);
}

void pvn_stat_end(struct pvn_stat *s)
{
    end(s, false);
}

void pvn_stat_discard(struct pvn_stat *s)
{
    end(s, true);
}

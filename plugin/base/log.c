/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hints.h"

#define PREFIX "NET/PVRDMA : "
#define FOLD_SITES                                                                                 \
    64 /* call sites in the table; a new one replaces the oldest if the table is full */

int pvn_log_trace_on;

struct fold_site {
    const char *file; /* NULL: free */
    int line;
    unsigned long flags;
    uint64_t start_ns; /* begin of the window */
    unsigned held;     /* messages counted instead of printed */
    unsigned ntexts;
    uint64_t texts[PVN_LOG_FOLD_TEXTS]; /* hashes of the texts printed in this window */
    char last[160];                     /* beginning of the last message that was not printed */
};

/* `lock` guards `sites` only. Messages take it by trylock: if the table is busy, the message is printed unfolded.
 * So no message waits, and a child that was forked while the lock was held does not hang. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fold_site sites[FOLD_SITES];
static uint64_t next_due_ns =
    UINT64_MAX; /* atomic; the earliest end of a window with held messages */

static pvn_logger_fn logger;
static pvn_log_capture_fn capture;
static void *capture_arg;
static uint64_t (*clock_now)(void);

static int stderr_level = -1; /* -1: read from the environment at first use */
static unsigned long stderr_flags = PVN_ALL;

static uint64_t now_ns(void)
{
    uint64_t (*fn)(void) = __atomic_load_n(&clock_now, __ATOMIC_ACQUIRE);

    return fn ? fn() : pvn_now_ns();
}

static int level_from_env(void)
{
    static const struct {
        const char *name;
        int level;
    } names[] = {{"VERSION", PVN_LOG_VERSION},
                 {"WARN", PVN_LOG_WARN},
                 {"INFO", PVN_LOG_INFO},
                 {"ABORT", PVN_LOG_ABORT},
                 {"TRACE", PVN_LOG_TRACE}};
    const char *s = getenv("NCCL_DEBUG");
    size_t i;

    for (i = 0; s && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(s, names[i].name) == 0)
            return names[i].level;
    return PVN_LOG_NONE;
}

/* Reads NCCL_DEBUG_SUBSYS as NCCL does: a comma-separated list, which a leading '^' inverts. Unknown names are
 * ignored. */
static unsigned long flags_from_env(void)
{
    static const struct {
        const char *name;
        unsigned long flag;
    } names[] = {{"INIT", PVN_INIT}, {"NET", PVN_NET},        {"GRAPH", PVN_GRAPH},
                 {"ENV", PVN_ENV},   {"REG", PVN_REG},        {"PROFILE", PVN_PROFILE},
                 {"ALL", PVN_ALL},   {"DESTROY", PVN_DESTROY}};
    const char *s = getenv("NCCL_DEBUG_SUBSYS");
    unsigned long mask = 0;
    int invert;

    if (!s || !*s)
        return PVN_INIT | PVN_ENV | PVN_NET;
    invert = *s == '^';
    for (s += invert; *s; s += strcspn(s, ","), s += *s == ',') {
        size_t len = strcspn(s, ",");
        size_t i;

        for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strlen(names[i].name) == len && strncasecmp(s, names[i].name, len) == 0)
                mask |= names[i].flag;
    }
    return invert ? ~mask : mask;
}

/* Threads that race here compute the same values, so two ordered atomic stores are enough. */
static int level_now(void)
{
    int level = __atomic_load_n(&stderr_level, __ATOMIC_ACQUIRE);

    if (level >= 0)
        return level;
    __atomic_store_n(&stderr_flags, flags_from_env(), __ATOMIC_RELAXED);
    level = level_from_env();
    __atomic_store_n(&stderr_level, level, __ATOMIC_RELEASE);
    return level;
}

void pvn_log_set_logger(pvn_logger_fn fn)
{
    __atomic_store_n(&logger, fn, __ATOMIC_RELEASE);
    __atomic_store_n(&pvn_log_trace_on, level_now() >= PVN_LOG_TRACE, __ATOMIC_RELAXED);
}

void pvn_log_set_level(enum pvn_log_level level)
{
    __atomic_store_n(&stderr_flags, PVN_ALL, __ATOMIC_RELAXED);
    __atomic_store_n(&stderr_level, (int)level, __ATOMIC_RELEASE);
    __atomic_store_n(&pvn_log_trace_on, level >= PVN_LOG_TRACE, __ATOMIC_RELAXED);
}

int pvn_log_enabled(enum pvn_log_level level)
{
    if (__atomic_load_n(&capture, __ATOMIC_ACQUIRE))
        return 1;
    if (level == PVN_LOG_TRACE)
        return __atomic_load_n(&pvn_log_trace_on, __ATOMIC_RELAXED);
    return __atomic_load_n(&logger, __ATOMIC_ACQUIRE) || level_now() >= (int)level;
}

static const char *level_name(enum pvn_log_level level)
{
    switch (level) {
    case PVN_LOG_WARN:
        return "WARN";
    case PVN_LOG_TRACE:
        return "TRACE";
    default:
        return "INFO";
    }
}

static void emit(enum pvn_log_level level, unsigned long flags, const char *file, int line,
                 const char *text)
{
    pvn_log_capture_fn cap = __atomic_load_n(&capture, __ATOMIC_ACQUIRE);
    pvn_logger_fn log = __atomic_load_n(&logger, __ATOMIC_ACQUIRE);
    char host[64];

    if (cap) {
        cap(capture_arg, level, flags, file, line, text);
        return;
    }
    if (log) {
        log(level, flags, file, line, PREFIX "%s", text);
        return;
    }
    if (level_now() < (int)level || !(flags & __atomic_load_n(&stderr_flags, __ATOMIC_RELAXED)))
        return;
    if (gethostname(host, sizeof(host)))
        strcpy(host, "?");
    host[sizeof(host) - 1] = '\0';
    fprintf(stderr, "%s:%d:%ld " PREFIX "%s %s\n", host, (int)getpid(), (long)syscall(SYS_gettid),
            level_name(level), text);
}

/* FNV-1a, 64 bits: enough to distinguish the texts of one call site. */
static uint64_t hash_text(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

/* Computes next_due_ns. The caller holds the lock. */
static void set_next_due(void)
{
    uint64_t due = UINT64_MAX;
    int i;

    for (i = 0; i < FOLD_SITES; i++)
        if (sites[i].file && sites[i].held && sites[i].start_ns + PVN_LOG_FOLD_NS < due)
            due = sites[i].start_ns + PVN_LOG_FOLD_NS;
    __atomic_store_n(&next_due_ns, due, __ATOMIC_RELAXED);
}

/* True if the site's window is over. Written as a sum, because another thread may have opened the window after `now`
 * was read. */
static bool is_over(const struct fold_site *s, uint64_t now)
{
    return now >= s->start_ns + PVN_LOG_FOLD_NS;
}

/* Copies a site's summary, so that it can be printed without the lock, and frees the site. */
static int take_summary(struct fold_site *s, struct fold_site *out)
{
    *out = *s;
    s->held = 0;
    s->file = NULL;
    return out->held > 0;
}

static void print_summary(const struct fold_site *s, uint64_t now)
{
    char text[256];
    unsigned long long secs = (now - s->start_ns + PVN_NS_PER_S / 2) / PVN_NS_PER_S;

    snprintf(text, sizeof(text), "%u more in %llu s like: %s", s->held, secs, s->last);
    emit(PVN_LOG_WARN, s->flags, s->file, s->line, text);
}

/* The entry of the call site. A new call site takes a free entry, or the entry with the oldest window, whose summary
 * then goes to *evicted. The caller holds the lock. */
static struct fold_site *find_site(const char *file, int line, struct fold_site *evicted)
{
    struct fold_site *pick = &sites[0];
    int i;

    for (i = 0; i < FOLD_SITES; i++) {
        struct fold_site *s = &sites[i];

        if (s->file && s->line == line && strcmp(s->file, file) == 0)
            return s;
        if (pick->file && (!s->file || s->start_ns < pick->start_ns))
            pick = s;
    }
    take_summary(pick, evicted);
    memset(pick, 0, sizeof(*pick));
    return pick;
}

/* 1 if the warning has to be printed now; 0 if it was counted instead. */
static int fold_pass(unsigned long flags, const char *file, int line, const char *text)
{
    uint64_t now = now_ns(), hash = hash_text(text);
    struct fold_site summary = {0};
    struct fold_site *s;
    unsigned i;
    int pass;

    if (pthread_mutex_trylock(&lock))
        return 1;
    s = find_site(file, line, &summary);
    if (s->file && is_over(s, now)) {
        take_summary(s, &summary);
        memset(s, 0, sizeof(*s));
    }
    if (!s->file) {
        s->file = file;
        s->line = line;
        s->flags = flags;
        s->start_ns = now;
    }
    for (i = 0; i < s->ntexts && s->texts[i] != hash; i++)
        ;
    pass = i == s->ntexts && s->ntexts < PVN_LOG_FOLD_TEXTS;
    if (pass) {
        s->texts[s->ntexts++] = hash;
    } else {
        s->held++;
        snprintf(s->last, sizeof(s->last), "%s", text);
    }
    set_next_due();
    pthread_mutex_unlock(&lock);
    if (summary.held)
        print_summary(&summary, now);
    return pass;
}

void pvn_log_flush(int all)
{
    uint64_t now = now_ns();
    int i;

    for (i = 0; i < FOLD_SITES; i++) {
        struct fold_site summary = {0};
        struct fold_site *s = &sites[i];

        if (pthread_mutex_trylock(&lock))
            return;
        if (s->file && s->held && (all || is_over(s, now)))
            take_summary(s, &summary);
        set_next_due();
        pthread_mutex_unlock(&lock);
        if (summary.held)
            print_summary(&summary, now);
    }
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash ? slash + 1 : file;
}

static void write_text(enum pvn_log_level level, unsigned long flags, const char *file, int line,
                       const char *text)
{
    file = base_name(file);
    if (now_ns() >= __atomic_load_n(&next_due_ns, __ATOMIC_RELAXED))
        pvn_log_flush(0);
    if (level != PVN_LOG_WARN || fold_pass(flags, file, line, text))
        emit(level, flags, file, line, text);
}

void pvn_log_write(enum pvn_log_level level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
    char text[PVN_LOG_LINE];
    va_list ap;

    if (!pvn_log_enabled(level))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    write_text(level, flags, file, line, text);
}

void pvn_log_write_err(const struct pvn_err *err, const char *file, int line)
{
    const struct pvn_hint *hint = pvn_hint_get(err->hint);
    char text[PVN_ERR_TEXT_LEN];
    struct pvn_err bare;

    if (!pvn_log_enabled(PVN_LOG_WARN))
        return;
    if (pvn_err_format(err, text, sizeof(text)) <= PVN_LOG_NCCL_LINE || !hint) {
        write_text(PVN_LOG_WARN, PVN_ALL, file, line, text);
        return;
    }
    bare = *err;
    bare.hint = PVN_HINT_NONE;
    pvn_err_format(&bare, text, sizeof(text));
    write_text(PVN_LOG_WARN, PVN_ALL, file, line, text);
    snprintf(text, sizeof(text), "likely: %s; try: %s", hint->likely, hint->todo);
    write_text(PVN_LOG_WARN, PVN_ALL, file, line, text);
}

static void forget_folded(void)
{
    pthread_mutex_lock(&lock);
    memset(sites, 0, sizeof(sites));
    set_next_due();
    pthread_mutex_unlock(&lock);
}

void pvn_log_set_capture(pvn_log_capture_fn fn, void *arg)
{
    forget_folded();
    capture_arg = arg;
    __atomic_store_n(&capture, fn, __ATOMIC_RELEASE);
}

void pvn_log_set_clock(uint64_t (*now)(void))
{
    forget_folded();
    __atomic_store_n(&clock_now, now, __ATOMIC_RELEASE);
}

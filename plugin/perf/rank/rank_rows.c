/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A rank's reports to the parent process, which prints them. */
#include "config.h"

#include "perf/rank/rank.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void pvn_rank_row(struct pvn_rank *r, struct pvn_row *row)
{
    const char *p = (const char *)row;
    size_t left = sizeof(*row);

    if (r->row_fd < 0)
        return;
    row->plugin = r->plugin;
    row->repeat = r->repeat;
    row->abi = r->abi;
    while (left) {
        ssize_t n = write(r->row_fd, p, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the parent is gone, and this process ends soon */
        p += n;
        left -= (size_t)n;
    }
}

static void send_text(struct pvn_rank *r, int kind, const char *fmt, va_list ap)
{
    struct pvn_row row = {.kind = kind};

    vsnprintf(row.u.text, sizeof(row.u.text), fmt, ap);
    pvn_rank_row(r, &row);
}

/* Collects the transports of all ranks' comms, and this rank's lanes in words. */
static void gather_lanes(struct pvn_rank *r, struct pvn_row_result *res)
{
    struct pvn_own_stats own;
    uint32_t *all;

    if (r->nranks == 1)
        return;
    pvn_own_stats_read(&own);
    snprintf(res->lanes, sizeof(res->lanes), "%s", own.lanes);
    all = calloc((size_t)r->nranks, sizeof(*all));
    if (!all)
        pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
    else if (pvn_boot_allgather(&r->boot, &own.via, all, sizeof(*all)))
        pvn_rank_fail_boot(r);
    for (int i = 0; all && i < r->nranks; i++)
        res->via |= all[i];
    free(all);
}

void pvn_rank_last_result(struct pvn_rank *r, const struct pvn_row_result *res)
{
    struct pvn_row row = {.kind = PVN_ROW_RESULT};

    row.u.result = *res;
    row.u.result.memory = (int32_t)r->mem.kind;
    snprintf(row.u.result.memory_how, sizeof(row.u.result.memory_how), "%s", r->mem.how);
    pvn_rank_row(r, &row);
}

void pvn_rank_result(struct pvn_rank *r, const struct pvn_row_result *res)
{
    struct pvn_row_result all = *res;

    gather_lanes(r, &all);
    pvn_rank_last_result(r, &all);
}

void pvn_rank_hist(struct pvn_rank *r, const struct pvn_hist *h)
{
    const uint32_t nbins = PVN_HIST_BUCKETS / PVN_BIN_BUCKETS;
    struct pvn_row row = {.kind = PVN_ROW_BINS};
    struct pvn_row_bins *b = &row.u.bins;

    for (uint32_t i = 0; i < nbins; i++) {
        uint64_t count = i + 1 == nbins ? h->over : 0;

        for (uint32_t k = 0; k < PVN_BIN_BUCKETS; k++)
            count += h->bucket[i * PVN_BIN_BUCKETS + k];
        if (!count)
            continue;
        b->bin[b->n].bin = i;
        b->bin[b->n++].count = count;
        if (b->n == PVN_ROW_BINS_MAX) {
            pvn_rank_row(r, &row);
            b->n = 0;
        }
    }
    if (b->n)
        pvn_rank_row(r, &row);
}

void pvn_rank_say_sizes(const struct pvn_rank *r, int rc)
{
    if (!rc && r->sizes_missing)
        fprintf(stderr,
                "pvn-perf: rank %d: plugin %s does not report in test() how much was received\n",
                r->rank, r->o->plugin[r->plugin].name);
}

void pvn_rank_interval(struct pvn_rank *r, const struct pvn_row_interval *i)
{
    struct pvn_row row = {.kind = PVN_ROW_INTERVAL};

    row.u.interval = *i;
    pvn_rank_row(r, &row);
}

void pvn_rank_error(struct pvn_rank *r)
{
    struct pvn_row row = {.kind = PVN_ROW_ERROR};

    snprintf(row.u.text, sizeof(row.u.text), "%s", r->err);
    pvn_rank_row(r, &row);
}

void pvn_rank_note(struct pvn_rank *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    send_text(r, PVN_ROW_NOTE, fmt, ap);
    va_end(ap);
}

void pvn_rank_progress(struct pvn_rank *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    send_text(r, PVN_ROW_PROGRESS, fmt, ap);
    va_end(ap);
}

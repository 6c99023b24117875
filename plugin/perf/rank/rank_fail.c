/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The early ends of a rank: failures, refusals, interruptions, wrong data. */
#include "config.h"

#include "perf/rank/rank.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pvn_rank_fail(struct pvn_rank *r, const char *fmt, ...)
{
    char text[sizeof(r->err)];
    va_list ap;

    if (r->status == PVN_PERF_FAILED || r->status == PVN_PERF_INTERRUPTED)
        return -1;
    r->status = PVN_PERF_FAILED;
    va_start(ap, fmt);
    vsnprintf(r->err, sizeof(r->err) - 16, fmt, ap);
    va_end(ap);
    if (r->holding)
        return -1;
    if (r->o->nplugins > 1)
        snprintf(text, sizeof(text), "rank %d, plugin %.40s: %.430s", r->rank,
                 r->o->plugin[r->plugin].name, r->err);
    else
        snprintf(text, sizeof(text), "rank %d: %.480s", r->rank, r->err);
    snprintf(r->err, sizeof(r->err), "%s", text);
    fprintf(stderr, "pvn-perf: %s\n", text);
    pvn_boot_abort(&r->boot, text);
    return -1;
}

int pvn_rank_fail_call(struct pvn_rank *r, const char *call, ncclResult_t rc)
{
    const char *hint = "the plugin's own messages say why; --verbose shows more";

    /* The cause may be that another rank has just ended. */
    if (!r->holding) {
        usleep(100000);
        if (pvn_boot_check(&r->boot))
            return pvn_rank_fail_boot(r);
    }
    return pvn_rank_fail(r, "%s of plugin %s failed with %s (%s)", call,
                         r->o->plugin[r->plugin].name, pvn_netdrv_strerror(rc), hint);
}

int pvn_rank_fail_boot(struct pvn_rank *r)
{
    if (r->status == PVN_PERF_FAILED || r->status == PVN_PERF_INTERRUPTED)
        return -1;
    if (r->boot.stopped) {
        r->status = PVN_PERF_INTERRUPTED;
        return -1;
    }
    r->status = PVN_PERF_FAILED;
    r->lost = 1;
    snprintf(r->err, sizeof(r->err), "%s", r->boot.why);
    /* If the reason came with words, the rank that it concerns has printed it. */
    if (!r->boot.heard || r->o->verbose)
        fprintf(stderr, "pvn-perf: rank %d ends: %s\n", r->rank, r->err);
    if (r->rank == 0)
        pvn_boot_abort(&r->boot, r->err);
    return -1;
}

void pvn_rank_wrong(struct pvn_rank *r, const char *fmt, ...)
{
    va_list ap;

    r->wrong = 1;
    if (r->status == PVN_PERF_OK) {
        va_start(ap, fmt);
        vsnprintf(r->err, sizeof(r->err), fmt, ap);
        va_end(ap);
        fprintf(stderr, "pvn-perf: rank %d: WRONG DATA: %s\n", r->rank, r->err);
        r->status = PVN_PERF_WRONG;
    }
}

int pvn_rank_interrupted(struct pvn_rank *r)
{
    if (r->status != PVN_PERF_FAILED)
        r->status = PVN_PERF_INTERRUPTED;
    return 1;
}

void pvn_rank_hold(struct pvn_rank *r)
{
    r->holding = 1;
}

struct refusal {
    int32_t failed;
    char err[384];
};

/* Names the ranks with the same reason as rank `first`: "all 4 ranks: ", "ranks 0, 2: " or "rank 3:
 * ". */
static void name_ranks(const struct refusal *all, int n, int first, char *out, size_t cap)
{
    int same = 0, shown = 0, len;

    for (int i = 0; i < n; i++)
        same += all[i].failed && strcmp(all[i].err, all[first].err) == 0;
    if (same == n && n > 1) {
        snprintf(out, cap, "all %d ranks: ", n);
        return;
    }
    len = snprintf(out, cap, "rank%s", same > 1 ? "s" : "");
    for (int i = 0; i < n && shown < 8; i++)
        if (all[i].failed && strcmp(all[i].err, all[first].err) == 0)
            len += snprintf(out + len, cap - (size_t)len, "%s %d", shown++ ? "," : "", i);
    snprintf(out + len, cap - (size_t)len, "%s: ", shown < same ? " and more" : "");
}

/* Prints each different reason once. The first one becomes this rank's. */
static int print_refusals(struct pvn_rank *r, const struct refusal *all)
{
    int first = -1;

    for (int i = 0; i < r->nranks; i++) {
        char who[128];
        int seen = !all[i].failed;

        for (int k = 0; k < i && !seen; k++)
            seen = all[k].failed && strcmp(all[k].err, all[i].err) == 0;
        if (seen)
            continue;
        name_ranks(all, r->nranks, i, who, sizeof(who));
        if (r->rank == 0 || r->o->served) /* the other rank prints to another terminal */
            fprintf(stderr, "pvn-perf: %s%s\n", who, all[i].err);
        if (first < 0)
            snprintf(r->err, sizeof(r->err), "%s%s", who, all[i].err);
        first = first < 0 ? i : first;
    }
    if (first < 0)
        return 0;
    r->status = PVN_PERF_FAILED;
    r->orderly = 1;
    return -1;
}

int pvn_rank_agree(struct pvn_rank *r)
{
    struct refusal mine = {.failed = r->status == PVN_PERF_FAILED};
    struct refusal *all = calloc((size_t)r->nranks, sizeof(*all));
    int rc;

    r->holding = 0;
    snprintf(mine.err, sizeof(mine.err), "%.*s", (int)sizeof(mine.err) - 1,
             mine.failed ? r->err : "");
    /* From here on the exchange decides; another rank may be lost in it. */
    if (mine.failed)
        r->status = PVN_PERF_OK;
    if (!all)
        return pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
    pvn_rank_at(r, "waiting for the other ranks");
    rc = pvn_boot_allgather(&r->boot, &mine, all, sizeof(mine)) ? pvn_rank_fail_boot(r)
                                                                : print_refusals(r, all);
    free(all);
    return rc;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "perf/rank/own_stats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stats/stats_read.h"

static void add_row(struct pvn_own_stats *out, const struct pvn_stat_row *r)
{
    if (r->phase == PVN_STAT_LISTEN)
        return;
    out->failovers += r->n.failovers;
    out->failbacks += r->n.failbacks;
    if (r->n.known & PVN_STAT_KNOWS_DOORBELLS) {
        out->doorbells.comms++;
        out->doorbells.msgs += r->sender ? r->n.msgs : 0;
        out->doorbells.send += r->n.doorbells_send;
        out->doorbells.recv += r->n.doorbells_recv;
        out->doorbells.empty += r->n.doorbells_empty;
    }
    if (r->ended_ns || r->phase != PVN_STAT_UP)
        return;
    out->via |= pvn_via_of_lanes(r->lanes);
    if (r->sender && !out->lanes[0])
        snprintf(out->lanes, sizeof(out->lanes), "%.*s", PVN_LANES_TEXT - 1, r->lanes);
}

/* Adds the totals of closed comms whose rows are reused. */
static void add_total(struct pvn_own_stats *out, const struct pvn_stat_total *t)
{
    out->failovers += t->failovers;
    out->failbacks += t->failbacks;
    if (!(t->via & PVN_VIA_RDMA))
        return;
    out->doorbells.comms += t->comms;
    out->doorbells.msgs += t->sender ? t->msgs : 0;
    out->doorbells.send += t->doorbells_send;
    out->doorbells.recv += t->doorbells_recv;
    out->doorbells.empty += t->doorbells_empty;
}

static bool add_file(struct pvn_own_stats *out, const char *path)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_stats s;

    if (pvn_stats_read(path, &s, &err) != 0)
        return false;
    snprintf(out->version, sizeof(out->version), "%.*s", (int)sizeof(out->version) - 1,
             s.head.plugin);
    for (int i = 0; i < s.nrows; i++)
        add_row(out, &s.row[i]);
    for (int i = 0; i < PVN_STAT_TOTALS; i++)
        add_total(out, &s.head.total[i]);
    /* A sum of only some comms would look complete but be divided by their messages only. */
    if (s.head.untracked)
        out->doorbells.comms = 0;
    pvn_stats_free(&s);
    return true;
}

bool pvn_own_stats_read(struct pvn_own_stats *out)
{
    const char *param = getenv("NCCL_PVRDMA_STATS_DIR");
    char dir[PATH_MAX / 2], path[PATH_MAX], mine[64];
    struct pvn_stat_ident self;
    const struct dirent *e;
    bool found = false;
    DIR *d;

    memset(out, 0, sizeof(*out));
    if (pvn_stats_ident_self(&self) != 0)
        return false;
    pvn_stats_dir_name(param ? param : "", geteuid(), dir, sizeof(dir));
    snprintf(mine, sizeof(mine), "%llu-%llu-", (unsigned long long)self.pid,
             (unsigned long long)self.start);
    d = opendir(dir);
    while (d && (e = readdir(d))) {
        size_t len = strlen(e->d_name), suffix = strlen(PVN_STATS_SUFFIX);

        if (strncmp(e->d_name, mine, strlen(mine)) != 0 || len < suffix ||
            strcmp(e->d_name + len - suffix, PVN_STATS_SUFFIX) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        found |= add_file(out, path);
    }
    if (d)
        closedir(d);
    if (out->doorbells.comms == 0)
        memset(&out->doorbells, 0, sizeof(out->doorbells));
    return found;
}

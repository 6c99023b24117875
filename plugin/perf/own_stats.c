/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "perf/own_stats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stats/stats_read.h"

static const struct {
    uint32_t bit;
    const char *name;
} transports[] = {{PVN_VIA_RDMA, "rdma"}, {PVN_VIA_TCP, "tcp"}, {PVN_VIA_OTHER, "other"}};

enum { TRANSPORTS = sizeof(transports) / sizeof(transports[0]) };

uint32_t pvn_via_of_lanes(const char *lanes)
{
    uint32_t via = 0;

    /* Lanes are separated by "; ", and each begins with the name of its transport. */
    while (*lanes) {
        size_t len = strcspn(lanes, " ;"), i;

        for (i = 0; i + 1 < TRANSPORTS; i++) {
            if (strlen(transports[i].name) == len && strncmp(lanes, transports[i].name, len) == 0)
                break;
        }
        via |= transports[i].bit;
        lanes += strcspn(lanes, ";");
        lanes += strspn(lanes, "; ");
    }
    return via;
}

const char *pvn_via_text(uint32_t via, char *out, size_t cap)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < TRANSPORTS; i++) {
        if ((via & transports[i].bit) && at < cap)
            at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? "+" : "", transports[i].name);
    }
    return out;
}

static void add_row(struct pvn_own_stats *out, const struct pvn_stat_row *r)
{
    if (r->phase == PVN_STAT_LISTEN)
        return;
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

static bool add_file(struct pvn_own_stats *out, const char *path)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_stats s;

    if (pvn_stats_read(path, &s, &err) != 0)
        return false;
    for (int i = 0; i < s.nrows; i++)
        add_row(out, &s.row[i]);
    /* The sum of some comms only would be divided by the messages of those and look complete. */
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

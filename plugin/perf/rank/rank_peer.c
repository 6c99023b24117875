/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Exchanges the versions of plugin and pvn-perf between `pvn-perf serve` and its client, because
 * they may differ. */
#include "config.h"

#include "perf/rank/rank.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/version.h"

static void describe(struct pvn_rank *r, struct pvn_row_peer *p)
{
    struct pvn_own_stats own;

    pvn_own_stats_read(&own);
    gethostname(p->host, sizeof(p->host) - 1);
    snprintf(p->version, sizeof(p->version), "%s", pvn_version());
    snprintf(p->name, sizeof(p->name), "%s", pvn_netdrv_name(r->drv));
    snprintf(p->plugin_version, sizeof(p->plugin_version), "%s", own.version);
    snprintf(p->path, sizeof(p->path), "%s", pvn_netdrv_path(r->drv));
    pvn_sha256_file(p->path, p->sha256);
    p->abi = r->abi;
}

int pvn_rank_hear_peer(struct pvn_rank *r, struct pvn_row_peer *other, char *text, size_t len)
{
    struct pvn_row_peer mine = {0}, all[2];

    describe(r, &mine);
    if (pvn_boot_allgather(&r->boot, &mine, all, sizeof(mine)))
        return pvn_rank_fail_boot(r);
    *other = all[1 - r->rank];
    snprintf(text, len, "%s %.63s: pvn-perf %.31s, %.63s%s%.31s, interface v%d, %.200s (%s)",
             r->rank == 0 ? "server" : "client", other->host, other->version, other->name,
             other->plugin_version[0] ? " " : "", other->plugin_version, other->abi, other->path,
             strcmp(other->sha256, mine.sha256) == 0 ? "the same file as here"
                                                     : "another file than here");
    return 0;
}

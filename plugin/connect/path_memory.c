/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/path_memory.h"

#include <string.h>

#include "base/clock.h"
#include "base/param.h"
#include "connect/retry.h"

/* Lanes that delivered messages for at least this long prove that their path carries large packets. */
#define SOUND_NS (60 * PVN_NS_PER_S)

static void hold_home(struct pvn_path_memory *m, uint64_t now)
{
    m->home_wait_ns = pvn_retry_next_ns(PVN_RETRY_HOME, m->home_wait_ns);
    m->home_ns = now + m->home_wait_ns;
}

bool pvn_path_memory_lost(struct pvn_path_memory *m, unsigned path, bool fast, bool useless,
                          uint64_t lived_ns, uint64_t now)
{
    bool *lost = &m->lost[path][fast], before = *lost;

    if (!useless && lived_ns >= SOUND_NS) {
        *lost = false;
        if (path == 0)
            m->home_wait_ns = m->home_ns = 0;
        return false;
    }
    /* Small messages pass where large ones are lost, so a loss that was remembered stays. */
    *lost |= useless;
    if (path == 0 && *lost)
        hold_home(m, now);
    return *lost && !before;
}

bool pvn_path_memory_allows(const struct pvn_path_memory *m, unsigned path,
                            struct pvn_conn_cfg *cfg)
{
    bool has[2] = {false, false}, use[2]; /* by kind of lane, as in `lost` */

    for (int i = 0; i < cfg->nports; i++)
        for (int v = 0; v < cfg->port[i]->nvia; v++)
            has[!cfg->port[i]->via[v].ops->is_fallback] = true;
    /* NCCL_PVRDMA_STRICT: no fallback on a path that has the faster kind. */
    use[1] = has[1] && !m->lost[path][1];
    use[0] = has[0] && !m->lost[path][0] && !(has[1] && pvn_params_get()->strict);
    if (!use[0] && !use[1])
        return false;
    cfg->no_fallback |= !use[0];
    cfg->fallback_only |= !use[1];
    return true;
}

void pvn_path_memory_forget(struct pvn_path_memory *m)
{
    memset(m->lost, 0, sizeof(m->lost));
}

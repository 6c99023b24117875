/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Checks counters of lost, damaged and delayed packets. Only counters that grow now count as
 * trouble. Values from before may be old, so they are only mentioned. */
#include "topo/check/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void unreadable(struct pvn_topo_check_run *run, const struct pvn_topo_counted *c,
                       const char *subject)
{
    const struct pvn_topo *t = run->t;

    if (c->rdma >= 0 && t->rdmas[c->rdma].kind == PVN_TOPO_RDMA_PVRDMA) {
        pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_UNKNOWN, subject,
                           "on the ESXi host: esxcli rdma device stats get -d vmrdmaN, and esxcli "
                           "network nic stats get -n vmnicN of its uplink",
                           "vmw_pvrdma shows no counters in the guest: they are the host's");
    } else if (t->live) {
        pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                           "its driver shows no counters of faults");
    } else {
        pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                           "no counters in what was read");
    }
}

/* Writes "; since it was loaded: symbol_error 3, link_downed 1 and 2 more"; "" if all are zero. */
static void mention(const struct pvn_topo_counted *c, char *out, size_t cap)
{
    enum { NAMED = 4 };
    int n = 0;

    out[0] = '\0';
    for (int i = 0; i < c->n; i++) {
        size_t used = strlen(out);

        if (c->counters[i].value > 0 && n++ < NAMED) {
            snprintf(out + used, cap - used, "%s%s %" PRIu64,
                     n == 1 ? "; since it was loaded: " : ", ", c->counters[i].name,
                     c->counters[i].value);
        }
    }
    if (n > NAMED)
        snprintf(out + strlen(out), cap - strlen(out), " and %d more", n - NAMED);
}

/* Adds a row for each counter that grew or has stopped at its maximum. Returns the number of
 * rows. */
static int troubles(struct pvn_topo_check_run *run, const struct pvn_topo_look *first,
                    const struct pvn_topo_look *second, double seconds, int index,
                    const char *subject)
{
    const struct pvn_topo_counted *c = &second->list[index];
    int rows = 0;

    for (int i = 0; i < c->n; i++) {
        const struct pvn_topo_counter *counter = &c->counters[i];
        const struct pvn_topo_counter_info *info = counter->info;
        uint64_t grew = pvn_topo_look_growth(first, second, index, i);

        if (grew > 0) {
            pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_WARN, subject, info->remedy,
                               "%s (%s) grew by %" PRIu64 " in %.1f s, to %" PRIu64 ": %s",
                               counter->name, pvn_topo_counter_source_name(info->source), grew,
                               seconds, counter->value, info->meaning);
            rows++;
        } else if (info->stops_at > 0 && counter->value == info->stops_at) {
            pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_UNKNOWN, subject,
                               "set it to zero (perfquery -R) and look again",
                               "%s stands at %" PRIu64 ", where it stops: whether it would grow "
                               "cannot be seen (%s)",
                               counter->name, counter->value, info->meaning);
            rows++;
        }
    }
    return rows;
}

static void device_rows(struct pvn_topo_check_run *run, const struct pvn_topo_look *first,
                        const struct pvn_topo_look *second, double seconds, int index)
{
    const struct pvn_topo_counted *c = second ? &second->list[index] : &first->list[index];
    char subject[PVN_TOPO_NAME_MAX], before[224];
    int rows;

    pvn_topo_counted_name(run->t, c, subject, sizeof(subject));
    if (c->n == 0) {
        unreadable(run, c, subject);
        return;
    }
    mention(c, before, sizeof(before));
    if (!second) {
        pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_OK, subject, "",
                           "%d read once, so growth was not looked for%s", c->n, before);
        return;
    }
    rows = troubles(run, first, second, seconds, index, subject);
    if (rows < c->n) {
        pvn_topo_check_row(run, "counters", PVN_TOPO_LEVEL_OK, subject, "",
                           "%d of %d did not grow in %.1f s%s", c->n - rows, c->n, seconds, before);
    }
}

int pvn_topo_check_counters(const struct pvn_topo *topo, const struct pvn_topo_look *first,
                            const struct pvn_topo_look *second, double seconds,
                            struct pvn_topo_checks *out)
{
    struct pvn_topo_check_run run = {topo, out, 0};
    int n = second ? second->n : first->n;

    for (int i = 0; i < n; i++)
        device_rows(&run, first, second, seconds, i);
    return run.rc;
}

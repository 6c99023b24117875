/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The rows that the checks add. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "topo/check/check.h"

static struct pvn_topo_check *new_row(struct pvn_topo_checks *checks)
{
    /* Grown at every power of two, so that no capacity has to be stored. */
    if ((checks->n & (checks->n - 1)) == 0) {
        size_t cap = checks->n == 0 ? 1 : 2 * (size_t)checks->n;
        struct pvn_topo_check *bigger = realloc(checks->rows, cap * sizeof(*bigger));

        if (!bigger)
            return NULL;
        checks->rows = bigger;
    }
    return &checks->rows[checks->n++];
}

int pvn_topo_checks_add(struct pvn_topo_checks *checks, const char *id, enum pvn_topo_level level,
                        const char *subject, const char *text, const char *remedy)
{
    struct pvn_topo_check *row = new_row(checks);

    if (!row)
        return -ENOMEM;
    row->level = level;
    snprintf(row->id, sizeof(row->id), "%s", id);
    snprintf(row->subject, sizeof(row->subject), "%s", subject);
    snprintf(row->text, sizeof(row->text), "%s", text);
    snprintf(row->remedy, sizeof(row->remedy), "%s", remedy);
    return 0;
}

void pvn_topo_check_row(struct pvn_topo_check_run *run, const char *id, enum pvn_topo_level level,
                        const char *subject, const char *remedy, const char *format, ...)
{
    char text[sizeof(run->out->rows->text)];
    va_list args;
    int rc;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    rc = pvn_topo_checks_add(run->out, id, level, subject, text, remedy);
    if (run->rc == 0)
        run->rc = rc;
}

void pvn_topo_checks_free(struct pvn_topo_checks *checks)
{
    free(checks->rows);
    *checks = (struct pvn_topo_checks){0};
}

static const char *nic_name(const struct pvn_topo *t, int pci)
{
    int rdma = pvn_topo_rdma_of_pci(t, pci), net = pvn_topo_net_of_pci(t, pci);

    if (rdma >= 0)
        return t->rdmas[rdma].name;
    return net >= 0 ? t->nets[net].name : t->pci[pci].bdf;
}

void pvn_topo_check_pair_name(const struct pvn_topo *t, const struct pvn_topo_check_pair *pair,
                              char *out, size_t cap)
{
    snprintf(out, cap, "%s - %s", t->pci[pair->gpu].bdf, nic_name(t, pair->nic));
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The list of checks: their pairs and order. */
#include "topo/check/check.h"

#include <errno.h>
#include <stdlib.h>

/* Distance as a number; smaller is nearer. The class counts first, then switches, then links on the
 * path. */
static long far(const struct pvn_topo *t, int a, int b)
{
    struct pvn_topo_distance d;

    pvn_topo_find_distance(t, a, b, &d);
    return (long)d.seen * 1000000 + (long)d.switches * 1000 + d.hops;
}

/* Lists the functions that can carry the traffic, each once. */
static int list_nics(const struct pvn_topo *t, int *nics)
{
    int n = 0;

    for (int i = 0; i < t->nrdmas; i++)
        if (t->rdmas[i].pci >= 0)
            nics[n++] = t->rdmas[i].pci;
    if (n > 0)
        return n;
    /* If there is no RDMA device, the driver is not loaded, or a capture lacks the directory. */
    for (int i = 0; i < t->npci; i++)
        if (t->pci[i].class_code >> 16 == 0x02 && t->pci[i].physfn < 0)
            nics[n++] = i;
    return n;
}

static int nearest_pairs(const struct pvn_topo *t, struct pvn_topo_check_pair **pairs, int *npairs)
{
    int *nics = calloc((size_t)(t->nrdmas + t->npci) + 1, sizeof(*nics));
    int n, rc = 0;

    *pairs = NULL;
    *npairs = 0;
    if (!nics)
        return -ENOMEM;
    n = list_nics(t, nics);
    if (n > 0 && t->ngpus > 0) {
        *pairs = calloc((size_t)t->ngpus, sizeof(**pairs));
        rc = !*pairs ? -ENOMEM : 0;
    }
    for (int g = 0; *pairs && g < t->ngpus; g++) {
        int best = nics[0];

        for (int i = 1; i < n; i++)
            if (far(t, t->gpus[g].pci, nics[i]) < far(t, t->gpus[g].pci, best))
                best = nics[i];
        (*pairs)[(*npairs)++] = (struct pvn_topo_check_pair){t->gpus[g].pci, best};
    }
    free(nics);
    return rc;
}

static void check_pairs(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pairs,
                        int npairs)
{
    static void (*const checks[])(struct pvn_topo_check_run *,
                                  const struct pvn_topo_check_pair *) = {
        pvn_topo_check_acs,     pvn_topo_check_iommu,     pvn_topo_check_ats,
        pvn_topo_check_payload, pvn_topo_check_numa_pair,
    };

    for (size_t c = 0; c < sizeof(checks) / sizeof(checks[0]); c++) {
        for (int i = 0; i < npairs; i++)
            if (pairs[i].gpu >= 0 && pairs[i].gpu < run->t->npci && pairs[i].nic >= 0 &&
                pairs[i].nic < run->t->npci)
                checks[c](run, &pairs[i]);
    }
}

int pvn_topo_run_checks(const struct pvn_topo *topo, const struct pvn_topo_check_pair *pairs,
                        int npairs, struct pvn_topo_checks *out)
{
    static void (*const checks[])(struct pvn_topo_check_run *) = {
        pvn_topo_check_read,      pvn_topo_check_guest,
        pvn_topo_check_links,     pvn_topo_check_relaxed_ordering,
        pvn_topo_check_numa,      pvn_topo_check_ports,
        pvn_topo_check_gids,      pvn_topo_check_mtu,
        pvn_topo_check_pvrdma,    pvn_topo_check_memlock,
        pvn_topo_check_files,     pvn_topo_check_nvidia,
        pvn_topo_check_gpudirect,
    };
    struct pvn_topo_check_run run = {topo, out, 0};
    struct pvn_topo_check_pair *own = NULL;

    *out = (struct pvn_topo_checks){0};
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        checks[i](&run);
    if (!pairs) {
        int rc = nearest_pairs(topo, &own, &npairs);

        run.rc = run.rc != 0 ? run.rc : rc;
        pairs = own;
    }
    if (pairs)
        check_pairs(&run, pairs, npairs);
    free(own);
    if (run.rc != 0)
        pvn_topo_checks_free(out);
    return run.rc;
}

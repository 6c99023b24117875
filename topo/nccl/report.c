/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "topo/nccl/pair.h"

static double milliseconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) * 1e3 +
           (double)(now.tv_nsec - start->tv_nsec) / 1e6;
}

static int take_nics(struct pvn_topo_placement *out)
{
    out->n = out->nics->n;
    out->list = calloc((size_t)out->n + 1, sizeof(*out->list));
    for (int i = 0; out->list && i < out->n; i++) {
        const struct pvn_topo_nic *nic = &out->nics->list[i];
        out->list[i] = (struct pvn_topo_placed){.from = nic->from,
                                                .on_pci = nic->pci >= 0,
                                                .pci_path = nic->pci_path,
                                                .guid = nic->guid,
                                                .port = nic->port,
                                                .speed_mbps = nic->speed_mbps,
                                                .rail = nic->rail};
    }
    return out->list ? 0 : -ENOMEM;
}

static int set_rails(struct pvn_topo_placement *out, const char *rails, struct pvn_topo_err *err)
{
    int rc;
    if (out->topo)
        pvn_topo_nics_find_rails(out->topo, out->nics);
    if (rails[0] == '\0')
        return 0;
    rc = pvn_topo_nics_set_rails(out->nics, rails, err);
    if (rc != -ENOENT)
        return rc;
    /* A list for a whole cluster may name devices that this host lacks. */
    if (out->note[0] == '\0')
        snprintf(out->note, sizeof(out->note), "topology: %.500s here", err->text);
    return 0;
}

int pvn_topo_placement_make(const char *root, const char *sysfs,
                            const struct pvn_topo_nic_device *devices, int n, const char *rails,
                            struct pvn_topo_placement *out, char *why, int why_len)
{
    const struct pvn_topo_options quick = {.flags = PVN_TOPO_NO_CONFIG | PVN_TOPO_FIRST_GID,
                                           .sysfs = sysfs};
    struct pvn_topo_err err = {"out of memory"};
    struct timespec start;
    int rc = -ENOMEM;

    *out = (struct pvn_topo_placement){.nics = calloc(1, sizeof(*out->nics))};
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!out->nics)
        goto out;
    if (pvn_topo_load_dir(root, &quick, &out->topo, &err) < 0) {
        out->topo = NULL;
        snprintf(out->note, sizeof(out->note),
                 "topology: not known, %.400s; devices keep the order and the facts of the scan",
                 err.text);
    }
    rc = pvn_topo_nics_of_devices(out->topo, devices, n, out->nics);
    if (rc == 0)
        rc = set_rails(out, rails, &err);
    if (rc == 0)
        rc = take_nics(out);
out:
    if (rc < 0) {
        snprintf(why, (size_t)why_len, "%s", rc == -ENOMEM ? "out of memory" : err.text);
        pvn_topo_placement_free(out);
    }
    out->ms = milliseconds_since(&start);
    return rc;
}

void pvn_topo_placement_free(struct pvn_topo_placement *p)
{
    if (p->nics)
        pvn_topo_nics_free(p->nics);
    free(p->nics);
    free(p->list);
    pvn_topo_free(p->topo);
    *p = (struct pvn_topo_placement){0};
}

static void say_pairs(const struct pvn_topo_placement *p, const struct pvn_topo_pairs *pairs,
                      double ms, const char *(*get)(const char *name, void *user),
                      void (*line)(const char *text, void *user), void *user)
{
    char text[1024];
    const char *file = get("NCCL_TOPO_FILE", user);
    snprintf(text, sizeof(text),
             "topology: %d GPU%s and %d network device%s, read in %.1f ms, paired in %.1f ms%s%s",
             pairs->n, pairs->n == 1 ? "" : "s", pairs->tree->n_nets,
             pairs->tree->n_nets == 1 ? "" : "s", p->ms, ms, pairs->note[0] ? ". " : "",
             pairs->note);
    line(text, user);
    if (file && pairs->n > 0) {
        snprintf(
            text, sizeof(text),
            "topology: NCCL_TOPO_FILE=%.200s may change what follows; `pvn-topo pairs` reads it",
            file);
        line(text, user);
    }
    for (int g = 0; g < pairs->n && pairs->tree->n_nets > 0; g++) {
        pvn_topo_pairs_line(pairs, g, text, sizeof(text));
        line(text, user);
    }
}

void pvn_topo_placement_report(const struct pvn_topo_placement *p,
                               const char *(*get)(const char *name, void *user),
                               void (*line)(const char *text, void *user), void *user)
{
    struct pvn_topo_pairs *pairs = NULL;
    struct pvn_topo_nccl_env env;
    struct timespec start;
    char why[256] = "out of memory", text[640];

    if (p->note[0])
        line(p->note, user);
    if (!p->topo)
        return;
    for (int i = 0; i < p->nics->n; i++) {
        if (p->nics->list[i].path_note[0]) {
            snprintf(text, sizeof(text), "topology: %s", p->nics->list[i].path_note);
            line(text, user);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    pvn_topo_nccl_env_load(&env, get, user);
    if (pvn_topo_pairs_new(p->topo, p->nics, NULL, &env, &pairs, why, sizeof(why)) == 0) {
        say_pairs(p, pairs, milliseconds_since(&start), get, line, user);
    } else {
        snprintf(text, sizeof(text), "topology: not known: %s", why);
        line(text, user);
    }
    pvn_topo_pairs_free(pairs);
}

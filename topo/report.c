#include "topo/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "topo/pair.h"

int pvn_nics_of_devices(const struct pvn_topo *topo, const struct pvn_report_device *devices, int n,
                        struct pvn_nics *out)
{
    *out = (struct pvn_nics){0};
    out->list = calloc((size_t)n + 1, sizeof(*out->list));
    if (out->list == NULL)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        const struct pvn_report_device *d = &devices[i];
        const char *path = d->pci_path ? d->pci_path : "", *slash = strrchr(path, '/');
        struct pvn_nic *nic = &out->list[out->n++];
        *nic = (struct pvn_nic){
            .rdma = pvn_topo_find_rdma(topo, d->name),
            .port_index = -1,
            .net = pvn_topo_find_net(topo, d->name),
            .pci = pvn_topo_find_pci(topo, slash ? slash + 1 : path),
            .up = true,
            .port = d->port,
            .speed_mbps = d->speed_mbps > 0 ? d->speed_mbps : 0,
            .guid = d->guid,
            .rail = d->rail,
            .gdr = d->gpu_memory,
        };
        snprintf(nic->name, sizeof(nic->name), "%s", d->name);
        if (nic->rdma >= 0) {
            nic->port_index = topo->rdmas[nic->rdma].nports > 0 ? 0 : -1;
            nic->pvrdma = topo->rdmas[nic->rdma].kind == PVN_RDMA_PVRDMA;
        }
        if (nic->pci >= 0)
            nic->pci_path = topo->pci[nic->pci].path;
    }
    return 0;
}

static double milliseconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) * 1e3 +
           (double)(now.tv_nsec - start->tv_nsec) / 1e6;
}

static void say(const struct pvn_pairs *pairs, double ms,
                const char *(*get)(const char *name, void *user),
                void (*line)(const char *text, void *user), void *user)
{
    char text[1024];
    const char *file = get("NCCL_TOPO_FILE", user);
    snprintf(text, sizeof(text),
             "topology: %d GPU%s and %d network device%s, worked out in %.1f ms%s%s", pairs->n,
             pairs->n == 1 ? "" : "s", pairs->tree->n_nets, pairs->tree->n_nets == 1 ? "" : "s", ms,
             pairs->note[0] ? ". " : "", pairs->note);
    line(text, user);
    if (file != NULL && pairs->n > 0) {
        snprintf(
            text, sizeof(text),
            "topology: NCCL_TOPO_FILE=%.200s may change what follows; `pvn-topo pairs` reads it",
            file);
        line(text, user);
    }
    for (int g = 0; g < pairs->n && pairs->tree->n_nets > 0; g++) {
        pvn_pairs_line(pairs, g, text, sizeof(text));
        line(text, user);
    }
}

void pvn_topo_report(const char *root, const struct pvn_report_device *devices, int n,
                     const char *(*get)(const char *name, void *user),
                     void (*line)(const char *text, void *user), void *user)
{
    /* Nothing here needs config space or GID tables, which are the slow parts to read. */
    static const struct pvn_topo_options quick = {.flags = PVN_TOPO_NO_CONFIG | PVN_TOPO_NO_GIDS};
    struct pvn_topo_err err;
    struct pvn_topo *topo = NULL;
    struct pvn_nics nics = {0};
    struct pvn_pairs *pairs = NULL;
    struct pvn_nccl_env env;
    struct timespec start;
    char why[256] = "out of memory", text[640];

    clock_gettime(CLOCK_MONOTONIC, &start);
    if (pvn_topo_load(root, &quick, &topo, &err) < 0) {
        snprintf(text, sizeof(text), "topology: not known: %s", err.text);
        line(text, user);
        return;
    }
    pvn_nccl_env_load(&env, get, user);
    if (pvn_nics_of_devices(topo, devices, n, &nics) == 0 &&
        pvn_pairs_new(topo, &nics, NULL, &env, &pairs, why, sizeof(why)) == 0) {
        say(pairs, milliseconds_since(&start), get, line, user);
    } else {
        snprintf(text, sizeof(text), "topology: not known: %s", why);
        line(text, user);
    }
    pvn_pairs_free(pairs);
    pvn_nics_free(&nics);
    pvn_topo_free(topo);
}

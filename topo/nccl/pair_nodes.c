/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The GPUs and nets of a tree: found by name or number, with the machine's facts on them. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/nccl/nccl_graph.h"
#include "topo/nccl/pair_priv.h"

void pvn_topo_append(char *text, size_t len, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    if (used < len)
        vsnprintf(text + used, len - used, format, args);
    va_end(args);
}

/* The function of any bus id, also of one whose domain is too long for NCCL. */
static int pci_of_busid(const struct pvn_topo_pairs *p, const char *busid)
{
    return p->topo ? pvn_topo_find_pci(p->topo, busid) : -1;
}

int pvn_topo_pairs_gpu_pci(const struct pvn_topo_pairs *p, int gpu)
{
    return pci_of_busid(p, gpu_node(p, gpu)->busid);
}

const struct pvn_topo_nic *pvn_topo_pairs_nic(const struct pvn_topo_pairs *p, int net)
{
    int dev = net_node(p, net)->net.dev;
    return p->nics && dev >= 0 && dev < p->nics->n ? &p->nics->list[dev] : NULL;
}

int pvn_topo_pairs_net_pci(const struct pvn_topo_pairs *p, int net)
{
    const struct pvn_topo_nic *nic = pvn_topo_pairs_nic(p, net);
    if (nic)
        return nic->pci;
    return pci_of_busid(p, p->tree->nodes[net_node(p, net)->up].busid);
}

bool pvn_topo_pairs_hidden(const struct pvn_topo_pairs *p, int gpu, int net)
{
    struct pvn_topo_distance distance;
    int a = p->topo ? pvn_topo_pairs_gpu_pci(p, gpu) : -1,
        b = p->topo ? pvn_topo_pairs_net_pci(p, net) : -1;
    if (a < 0 || b < 0)
        return false;
    pvn_topo_find_distance(p->topo, a, b, &distance);
    return distance.trust == PVN_TOPO_TRUST_HIDDEN;
}

static bool same_busid(const char *a, const char *text)
{
    return pvn_topo_nbusid_number(a) == pvn_topo_nbusid_number(text);
}

/* A number with an optional prefix ("GPU3"), or -1. *nth selects one of those with that number: 1,
 * or the number after "#". */
static int number_after(const char *text, const char *prefix, int *nth)
{
    char *end;
    size_t len = strlen(prefix);
    if (strncasecmp(text, prefix, len) == 0)
        text += len;
    if (!isdigit((unsigned char)*text))
        return -1;
    long value = strtol(text, &end, 10), which = 1;
    if (*end == '#' && isdigit((unsigned char)end[1]))
        which = strtol(end + 1, &end, 10);
    *nth = which < 100000 ? (int)which : 0;
    return *end || value > 100000 ? -1 : (int)value;
}

int pvn_topo_pairs_gpu_repeat(const struct pvn_topo_pairs *p, int gpu)
{
    int before = 0;
    for (int g = 0; g < gpu; g++)
        before += gpu_node(p, g)->gpu.dev == gpu_node(p, gpu)->gpu.dev;
    return before;
}

int pvn_topo_pairs_net_repeat(const struct pvn_topo_pairs *p, int net)
{
    int before = 0;
    for (int n = 0; n < net; n++)
        before += net_node(p, n)->net.dev == net_node(p, net)->net.dev;
    return before;
}

int pvn_topo_pairs_find_gpu(const struct pvn_topo_pairs *p, const char *text)
{
    bool busid = strchr(text, ':');
    int nth = 1, dev = busid ? -1 : number_after(text, "GPU", &nth);
    char full[PVN_TOPO_BDF_MAX + 8];
    /* A bus id without a domain ("3b:00.0") is in domain 0. */
    snprintf(full, sizeof(full), "%s%.20s", strlen(text) == 7 ? "0000:" : "", text);
    for (int g = 0; g < p->tree->n_gpus; g++)
        if (busid ? same_busid(gpu_node(p, g)->busid, full)
                  : gpu_node(p, g)->gpu.dev == dev && --nth == 0)
            return g;
    return -1;
}

int pvn_topo_pairs_find_net(const struct pvn_topo_pairs *p, const char *text)
{
    char full[PVN_TOPO_BDF_MAX + 8];
    int dev, nth = 1;
    for (int n = 0; n < p->tree->n_nets; n++)
        if (strcmp(net_name(p, n), text) == 0)
            return n;
    snprintf(full, sizeof(full), "%s%.20s", strlen(text) == 7 ? "0000:" : "", text);
    dev = number_after(text, strncasecmp(text, "NIC", 3) == 0 ? "NIC" : "NET", &nth);
    for (int n = 0; n < p->tree->n_nets; n++) {
        const char *busid = p->tree->nodes[net_node(p, n)->up].busid;
        if (strchr(text, ':') ? busid[0] && same_busid(busid, full)
                              : dev >= 0 && net_node(p, n)->net.dev == dev && --nth == 0)
            return n;
        /* The machine's model may also know the function by its interface. */
        const struct pvn_topo_nic *nic = pvn_topo_pairs_nic(p, n);
        if (nic && nic->net >= 0 && strcmp(p->topo->nets[nic->net].name, text) == 0)
            return n;
    }
    return -1;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Release and lookups of the machine model. */
#include "topo/pvn_topo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pvn_topo_free(struct pvn_topo *topo)
{
    if (!topo)
        return;
    for (int i = 0; i < topo->npci; i++)
        free(topo->pci[i].path);
    for (int i = 0; i < topo->nrdmas; i++) {
        for (int p = 0; p < topo->rdmas[i].nports; p++)
            free(topo->rdmas[i].ports[p].gids);
        free(topo->rdmas[i].ports);
    }
    for (int i = 0; i < topo->nnumas; i++) {
        free(topo->numas[i].cpumap);
        free(topo->numas[i].cpulist);
        free(topo->numas[i].distance);
    }
    free(topo->source);
    free(topo->pci);
    free(topo->roots);
    free(topo->switch_links);
    free(topo->nets);
    free(topo->rdmas);
    free(topo->pvrdma);
    free(topo->gpus);
    free(topo->numas);
    free(topo->modules);
    free(topo->iommu_groups);
    free(topo->notes);
    free(topo);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Reads 1 to max_digits hex digits up to the character end. Returns the position after end, or
 * NULL. */
static const char *hex_field(const char *s, int max_digits, char end, uint32_t *value)
{
    uint32_t v = 0;
    int n = 0;

    while (hex_value(s[n]) >= 0 && n < max_digits) {
        v = v << 4 | (uint32_t)hex_value(s[n]);
        n++;
    }
    if (n == 0 || s[n] != end)
        return NULL;
    *value = v;
    return s + n + 1;
}

int pvn_topo_bdf_parse(const char *text, uint32_t *domain, uint8_t *bus, uint8_t *dev, uint8_t *fn)
{
    uint32_t dom = 0, b, d, f;
    const char *first = strchr(text, ':');
    const char *s = text;

    if (!first)
        return -EINVAL;
    if (strchr(first + 1, ':')) {
        s = hex_field(s, 8, ':', &dom);
        if (!s)
            return -EINVAL;
    }
    s = hex_field(s, 2, ':', &b);
    if (!s)
        return -EINVAL;
    s = hex_field(s, 2, '.', &d);
    if (!s || d > 31)
        return -EINVAL;
    s = hex_field(s, 1, '\0', &f);
    if (!s || f > 7)
        return -EINVAL;
    *domain = dom;
    *bus = (uint8_t)b;
    *dev = (uint8_t)d;
    *fn = (uint8_t)f;
    return 0;
}

void pvn_topo_bdf_format(char *out, uint32_t domain, unsigned bus, unsigned dev, unsigned fn)
{
    snprintf(out, PVN_TOPO_BDF_MAX, "%04x:%02x:%02x.%x", domain, bus & 0xff, dev & 0x1f, fn & 7);
}

int pvn_topo_find_pci_addr(const struct pvn_topo *topo, uint32_t domain, int bus, int dev, int fn)
{
    /* A linear search, because functions that a merge or hints add (capture/edit.c) are behind the
     * sorted ones. */
    for (int i = 0; i < topo->npci; i++) {
        const struct pvn_topo_pci *p = &topo->pci[i];

        if (p->domain == domain && p->bus == bus && p->dev == dev && p->fn == fn)
            return i;
    }
    return -1;
}

int pvn_topo_find_pci(const struct pvn_topo *topo, const char *bdf)
{
    uint32_t domain;
    uint8_t bus, dev, fn;

    if (pvn_topo_bdf_parse(bdf, &domain, &bus, &dev, &fn) != 0)
        return -1;
    return pvn_topo_find_pci_addr(topo, domain, bus, dev, fn);
}

int pvn_topo_find_net(const struct pvn_topo *topo, const char *name)
{
    for (int i = 0; i < topo->nnets; i++)
        if (strcmp(topo->nets[i].name, name) == 0)
            return i;
    return -1;
}

int pvn_topo_find_rdma(const struct pvn_topo *topo, const char *name)
{
    for (int i = 0; i < topo->nrdmas; i++)
        if (strcmp(topo->rdmas[i].name, name) == 0)
            return i;
    return -1;
}

int pvn_topo_find_numa(const struct pvn_topo *topo, int id)
{
    for (int i = 0; i < topo->nnumas; i++)
        if (topo->numas[i].id == id)
            return i;
    return -1;
}

int pvn_topo_gpu_of_pci(const struct pvn_topo *topo, int pci)
{
    for (int i = 0; i < topo->ngpus; i++)
        if (topo->gpus[i].pci == pci)
            return i;
    return -1;
}

int pvn_topo_rdma_of_pci(const struct pvn_topo *topo, int pci)
{
    for (int i = 0; pci >= 0 && i < topo->nrdmas; i++)
        if (topo->rdmas[i].pci == pci)
            return i;
    return -1;
}

int pvn_topo_net_of_pci(const struct pvn_topo *topo, int pci)
{
    for (int i = 0; pci >= 0 && i < topo->nnets; i++)
        if (topo->nets[i].pci == pci)
            return i;
    return -1;
}

static char fold_dash(char c)
{
    return c == '-' ? '_' : c;
}

static bool module_name_equal(const char *a, const char *b)
{
    while (*a != '\0' && fold_dash(*a) == fold_dash(*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

int pvn_topo_find_module(const struct pvn_topo *topo, const char *name)
{
    for (int i = 0; i < topo->nmodules; i++)
        if (module_name_equal(topo->modules[i].name, name))
            return i;
    return -1;
}

bool pvn_topo_is_guest(const struct pvn_topo *topo)
{
    return topo->guest.hypervisor != PVN_TOPO_HV_UNKNOWN &&
           topo->guest.hypervisor != PVN_TOPO_HV_NONE;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Numbers in a topology file: those that NCCL reads as another number than was meant, and equal
 * ones that must differ. NCCL parses each with strtol, base 0, and keeps 32 bits (NCCL 2.30
 * src/graph/xml.h xmlGetAttrInt). */
#include "topo/nccl/nccl_xml.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The range of a number. Bounds are those of the interface that the number comes from, or of NCCL's
 * capacity (256 of a kind). */
static const struct {
    const char *element, *key;
    long min, max;
    const char *remedy;
} ranges[] = {
    {"cpu", "numaid", -1, 1023, "write the number of the NUMA node, 0 to 1023, or -1"},
    {"cpu", "familyid", 0, 4095, "write CPUID's family, or leave it out"},
    {"cpu", "modelid", 0, 255, "write CPUID's model, or leave it out"},
    {"pci", "link_width", 0, 32, "write the number of lanes, 1 to 32"},
    {"gpu", "dev", 0, 255, "write the GPU's number, 0 to 255"},
    {"gpu", "rank", 0, INT_MAX, "write the rank that uses this GPU, from 0"},
    {"gpu", "sm", 0, 999,
     "write the compute capability times ten (90 for 9.0), for AMD's GPUs the compute units"},
    {"gpu", "gdr", 0, 1, "write 0 (no GPUDirect RDMA) or 1"},
    {"net", "dev", 0, 255, "write the device's number in the plugin's list, 0 to 255"},
    {"net", "port", 0, 255, "write the port's number, or leave it out"},
    {"net", "maxconn", 0, INT_MAX, "write how many connections the device takes, or leave it out"},
    {"net", "gdr", 0, 1, "write 0 (no GPUDirect RDMA) or 1"},
    {"nvlink", "count", 1, 255, "write how many links lead there, from 1"},
    {"xgmi", "count", 1, 255, "write how many links lead there, from 1"},
    {"c2c", "count", 1, 255, "write how many links lead to the CPU, from 1"},
    {"c2c", "bw", 1, INT_MAX, "write the MB/s of one link"},
};

static int place_of(const struct pvn_topo_ndoc_node *node)
{
    return node->parent ? node->parent->line : 0;
}

static int check_range(struct pvn_topo_lint *lint, const struct pvn_topo_ndoc_node *node,
                       size_t row, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 0);
    if (end == text || *end)
        /* "16 lanes" is 16 to NCCL. A text without a number is 0, which some keys allow by a rule
         * of their own. */
        return end != text || strcmp(node->name, "pci") == 0 || strcmp(node->name, "cpu") == 0
                   ? 0
                   : pvn_topo_lint_add(lint, PVN_TOPO_LINT_WARN, "not-a-number", node->line,
                                       place_of(node), ranges[row].remedy,
                                       "%s=\"%.40s\" of <%s> is not a number: %s "
                                       "takes 0",
                                       ranges[row].key, text, node->name, lint->reader->name);
    if (errno == 0 && value >= ranges[row].min && value <= ranges[row].max)
        return 0;
    if (errno != 0 || (int)value != value)
        return pvn_topo_lint_add(lint, PVN_TOPO_LINT_WARN, "out-of-range", node->line,
                                 place_of(node), ranges[row].remedy,
                                 "%s=\"%.40s\" of <%s> does not fit 32 bits: %s takes %d",
                                 ranges[row].key, text, node->name, lint->reader->name, (int)value);
    return pvn_topo_lint_add(lint, PVN_TOPO_LINT_WARN, "out-of-range", node->line, place_of(node),
                             ranges[row].remedy, "%s=\"%.40s\" of <%s> is outside %ld to %ld",
                             ranges[row].key, text, node->name, ranges[row].min, ranges[row].max);
}

const char *pvn_topo_lint_host(const struct pvn_topo_ndoc_node *node)
{
    while (node && !pvn_topo_ndoc_is(node, "cpu"))
        node = node->parent;
    const char *hash = node ? pvn_topo_ndoc_get(node, "host_hash") : NULL;
    return hash ? hash : "";
}

/* Numbers by which NCCL finds a device. Ranks are unique across all hosts of a fused file, the
 * others within each host. Several ranks on one GPU are several <gpu> in one <pci>, and share its
 * number. */
static const struct {
    const char *element, *key, *rule;
    bool per_host;
    const char *remedy;
} unique[] = {
    {"gpu", "rank", "rank-repeated", false,
     "give every <gpu> the rank that uses it; only the first with a rank is found"},
    {"gpu", "dev", "gpu-dev-repeated", true,
     "number the GPUs as nvidia-smi does; the numbers decide which NIC each takes"},
    {"net", "dev", "net-dev-repeated", true,
     "number the networks as the plugin lists them, or leave dev out: it is then set"},
};

static int check_unique(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint,
                        const struct pvn_topo_ndoc_node *node, size_t row)
{
    const char *text = pvn_topo_ndoc_get(node, unique[row].key);
    if (!text)
        return 0;
    long value = pvn_topo_ndoc_get_int(node, unique[row].key, 0);
    for (int i = 0; doc->nodes[i] != node; i++) {
        const struct pvn_topo_ndoc_node *other = doc->nodes[i];
        if (!pvn_topo_ndoc_is(other, unique[row].element) ||
            !pvn_topo_ndoc_get(other, unique[row].key) ||
            pvn_topo_ndoc_get_int(other, unique[row].key, 0) != value)
            continue;
        if (unique[row].per_host &&
            ((pvn_topo_ndoc_is(node, "gpu") && other->parent == node->parent) ||
             strcmp(pvn_topo_lint_host(other), pvn_topo_lint_host(node)) != 0))
            continue;
        return pvn_topo_lint_add(lint, PVN_TOPO_LINT_WARN, unique[row].rule, node->line,
                                 place_of(node), unique[row].remedy,
                                 "%s=\"%.20s\" of <%s> is also used in line %d", unique[row].key,
                                 text, node->name, other->line);
    }
    return 0;
}

int pvn_topo_lint_numbers(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint)
{
    int err = 0;
    for (int i = 0; i < doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *node = doc->nodes[i];
        for (size_t r = 0; r < sizeof(ranges) / sizeof(ranges[0]); r++) {
            const char *text = pvn_topo_ndoc_is(node, ranges[r].element)
                                   ? pvn_topo_ndoc_get(node, ranges[r].key)
                                   : NULL;
            if (text)
                err |= check_range(lint, node, r, text);
        }
        for (size_t u = 0; u < sizeof(unique) / sizeof(unique[0]); u++)
            if (pvn_topo_ndoc_is(node, unique[u].element))
                err |= check_unique(doc, lint, node, u);
    }
    return err ? -ENOMEM : 0;
}

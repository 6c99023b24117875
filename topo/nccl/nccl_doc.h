/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The document that NCCL builds before it makes a graph of a machine: the elements of an
 * NCCL_TOPO_FILE, in memory.
 *
 * NCCL keeps every attribute as text and parses it at each use (src/graph/xml.h, NCCL 2.30). So
 * does this library, because the exact spelling of a value such as "16.0 GT/s" or "" matters to
 * NCCL. A document comes from a file (nccl_xml.h), from the machine (nccl_detect.h), or from
 * both. Not thread safe; one document belongs to one thread at a time. */
#ifndef PVN_TOPO_NCCL_NCCL_DOC_H
#define PVN_TOPO_NCCL_NCCL_DOC_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limit of a document's nesting. NCCL itself recurses without a limit; no known machine has more
 * than ten PCIe levels. */
#define PVN_TOPO_NDOC_MAX_DEPTH 64

struct pvn_topo_ndoc_attr {
    char *key;
    char *value;
};

struct pvn_topo_ndoc_node {
    char *name; /* element name as written: "cpu", "pci", ... */
    int line;   /* 1-based line of the start tag in the file; 0 if the node came from elsewhere */
    bool added; /* not written in the file: a gpu or nic that NCCL would add by itself */
    struct pvn_topo_ndoc_attr *attrs;
    int n_attrs;
    struct pvn_topo_ndoc_node *parent;
    struct pvn_topo_ndoc_node **subs;
    int n_subs;
};

/* All nodes in order of creation, which for a file is document order. NCCL's look-ups ("the first
 * cpu", "the pci with this bus id") return the first in this order. */
struct pvn_topo_ndoc {
    struct pvn_topo_ndoc_node **nodes;
    int n_nodes;
    bool rccl; /* AMD's dialect: version 2, <xgmi> for <nvlink> */
    struct {
        int line;
        char name[32], parent[16];
    } ignored[8];  /* the first few elements of the file that NCCL skips */
    int n_ignored; /* all of them */
};

struct pvn_topo_ndoc *pvn_topo_ndoc_new(void);
void pvn_topo_ndoc_free(struct pvn_topo_ndoc *doc);

/* Adds a node as the last child of parent, or unattached if parent is NULL. The document owns it.
 * NULL if memory is short. */
struct pvn_topo_ndoc_node *pvn_topo_ndoc_add(struct pvn_topo_ndoc *doc,
                                             struct pvn_topo_ndoc_node *parent, const char *name);

/* Makes node the child of parent at position at (0..n_subs). 0 or -ENOMEM. */
int pvn_topo_ndoc_attach(struct pvn_topo_ndoc_node *parent, struct pvn_topo_ndoc_node *node,
                         int at);

/* Attribute text, or NULL when the node does not have it. */
const char *pvn_topo_ndoc_get(const struct pvn_topo_ndoc_node *node, const char *key);

/* The attribute as NCCL reads numbers: strtol with base 0, so "0x10", "010" and "16 lanes" all mean
 * something; fallback when the attribute is absent. */
long pvn_topo_ndoc_get_int(const struct pvn_topo_ndoc_node *node, const char *key, long fallback);

/* Sets or replaces. 0 or -ENOMEM. */
int pvn_topo_ndoc_set(struct pvn_topo_ndoc_node *node, const char *key, const char *value);
int pvn_topo_ndoc_set_int(struct pvn_topo_ndoc_node *node, const char *key, long value);
int pvn_topo_ndoc_set_if_unset(struct pvn_topo_ndoc_node *node, const char *key, const char *value);
/* Removes all attributes but this one. */
void pvn_topo_ndoc_keep_only(struct pvn_topo_ndoc_node *node, const char *key);

bool pvn_topo_ndoc_is(const struct pvn_topo_ndoc_node *node, const char *name);

/* First child of that name, or NULL; pvn_topo_ndoc_sub_kv also compares key="value". */
struct pvn_topo_ndoc_node *pvn_topo_ndoc_sub(const struct pvn_topo_ndoc_node *node,
                                             const char *name);
struct pvn_topo_ndoc_node *pvn_topo_ndoc_sub_kv(const struct pvn_topo_ndoc_node *node,
                                                const char *name, const char *key,
                                                const char *value);

/* First node of the document with that name, and with key="value" when key is not NULL. */
struct pvn_topo_ndoc_node *pvn_topo_ndoc_find(const struct pvn_topo_ndoc *doc, const char *name,
                                              const char *key, const char *value);

/* True if the document's reader takes a pci of this class (NULL: not stated) for a GPU: display
 * devices, and for RCCL also processing accelerators. */
bool pvn_topo_ndoc_gpu_class(const struct pvn_topo_ndoc *doc, const char *class_text);
bool pvn_topo_ndoc_nic_class(const char *class_text);

/* A deep copy (creation order kept). NULL when out of memory. */
struct pvn_topo_ndoc *pvn_topo_ndoc_clone(const struct pvn_topo_ndoc *doc);

/* Completes a file that names only bus ids, as NCCL does from the running machine: a <gpu> for each
 * leaf pci of a display class, a <nic> with one <net> for each leaf pci of a network class or of
 * InfiniBand's, and missing dev and rank numbers in bus-id order. Such nodes are marked `added`. 0
 * or -ENOMEM. */
int pvn_topo_ndoc_complete(struct pvn_topo_ndoc *doc);

/* Writes the document as NCCL_TOPO_FILE text (two spaces per level), without attributes that only a
 * dump has (keep) and without `added` nodes. Refuses attribute values that NCCL's reader could not
 * parse (a quote, a control character). 0, -EINVAL with the node's line in *bad, or -EIO. */
int pvn_topo_ndoc_write(const struct pvn_topo_ndoc *doc, FILE *out,
                        const struct pvn_topo_ndoc_node **bad);

#ifdef __cplusplus
}
#endif

#endif

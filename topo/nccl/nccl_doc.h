/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The document that NCCL builds before it makes a graph of a machine: the elements of an
 * NCCL_TOPO_FILE, in memory.
 *
 * NCCL keeps every attribute as text and reads it again each time (src/graph/xml.h, NCCL 2.30); so
 * do we, because a value such as "16.0 GT/s" or "" means something to it exactly as it is spelled.
 * A document comes from a file (nccl_xml_read.h), from the machine (nccl_detect.h), or from both.
 * Not thread safe; one document belongs to one thread at a time. */
#ifndef PVN_TOPO_NCCL_NCCL_DOC_H
#define PVN_TOPO_NCCL_NCCL_DOC_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Deepest nesting a document may have. NCCL itself recurses without a limit; ten PCIe levels are
 * the most that any known machine has. */
#define PVN_TOPO_NDOC_MAX_DEPTH 64

struct pvn_topo_ndoc_attr {
    char *key;
    char *value;
};

struct pvn_topo_ndoc_node {
    char *name; /* element name as written: "cpu", "pci", ... */
    int line;   /* 1-based line of the start tag in the file; 0 when the node came from elsewhere */
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
    } ignored[8];  /* elements of the file that NCCL skips, the first few */
    int n_ignored; /* all of them */
};

struct pvn_topo_ndoc *pvn_topo_ndoc_new(void);
void pvn_topo_ndoc_free(struct pvn_topo_ndoc *doc);

/* A new node, last child of parent, or unattached when parent is NULL. NULL when out of memory.
 * The document owns it. */
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
/* Takes all attributes but this one away. */
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

/* True where a pci of this class (NULL: not stated) is a GPU to the document's reader: display devices, and to
 * RCCL processing accelerators, too. */
bool pvn_topo_ndoc_gpu_class(const struct pvn_topo_ndoc *doc, const char *class_text);
bool pvn_topo_ndoc_nic_class(const char *class_text);

/* A deep copy (creation order kept). NULL when out of memory. */
struct pvn_topo_ndoc *pvn_topo_ndoc_clone(const struct pvn_topo_ndoc *doc);

/* Adds what NCCL adds from the running machine to a file that names only bus ids: a <gpu>
 * to each leaf pci of a display class, a <nic> with one <net> to each leaf pci of a
 * network class or of InfiniBand's, dev and rank numbers in bus-id order where they are missing. Such nodes
 * are marked `added`. 0 or -ENOMEM. */
int pvn_topo_ndoc_complete(struct pvn_topo_ndoc *doc);

/* The document as NCCL_TOPO_FILE text (two spaces per level), without attributes that only a dump
 * has (keep) and with `added` nodes left out. Attribute values that NCCL's reader could not take (a
 * quote, a control character) are refused. 0, -EINVAL with the node's line in *bad, or -EIO. */
int pvn_topo_ndoc_write(const struct pvn_topo_ndoc *doc, FILE *out,
                        const struct pvn_topo_ndoc_node **bad);

#ifdef __cplusplus
}
#endif

#endif

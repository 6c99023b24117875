/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: declarations that its commands share. */
#ifndef PVN_TOPO_TOOL_H
#define PVN_TOPO_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "topo/counters/counters.h"
#include "topo/input/input.h"
#include "topo/nccl/gdr.h"
#include "topo/nccl/nccl_detect.h"
#include "topo/nccl/nccl_xml.h"
#include "topo/nccl/pair.h"

/* Exit statuses, documented in the manual page. */
enum tool_exit {
    TOOL_OK = 0,
    TOOL_FOUND = 1, /* check failed, lint found an error, diff found a difference */
    TOOL_USAGE = 2,
    TOOL_INPUT = 3, /* something could not be read or written */
};

struct tool {
    FILE *out;
    /* Escape sequences; "" unless the output is a terminal. */
    const char *bold, *dim, *red, *green, *yellow, *blue, *off;
    bool utf8, terminal; /* of the output */
    int width;           /* columns at which sentences are wrapped */

    /* Options. */
    const char *root;      /* --root, default "/" */
    const char *topo_file; /* --topo-file, or NCCL_TOPO_FILE for this machine, or NULL */
    const char *hints, *host, *rails;
    enum pvn_topo_nic_choice nics_choice;
    bool json, all, names, nccl_tree;
    enum { TOOL_TEXT, TOOL_XML, TOOL_XML_FULL, TOOL_DOT, TOOL_SVG } format;
    enum { TOOL_COLOR_AUTO, TOOL_COLOR_ALWAYS, TOOL_COLOR_NEVER } color;
    const char *output; /* -o, or NULL */
    /* diff: this is one of two inputs; options for a machine apply if one is a machine */
    bool compares;
    /* another rank of the job prints: out stays empty and is not written to the file */
    bool elsewhere;
    int write_errno; /* why out could not be written, if a command ended because of it; else 0 */
    int wait_s;      /* --timeout: limit of a pipe's silence */
    bool ignore_env, keep_addresses;
    bool prom, per_comm, clean;       /* stat */
    const char *hosts, *ssh, *remote; /* --hosts of stat and check; NULL: the default */
    int parallel;                     /* hosts at a time */
    double watch_s;                   /* stat --watch: seconds between looks; 0: one look */
    int count;                        /* looks of --watch; 0: no limit */
    double interval_s;                /* --interval: between the looks of check; 0: one look */
    bool with_counters;               /* tool_load reads the counters' first snapshot */

    /* The model that was loaded. topo is NULL when the root is an XML file. */
    struct pvn_topo *topo;
    struct pvn_topo_nics nics;
    char not_chosen[512];       /* NICs that NCCL's variables exclude, with the variable; "" none */
    struct pvn_topo_ndoc *file; /* the topology file, if any */
    const char *file_missing;   /* NCCL_TOPO_FILE if it cannot be opened, else NULL */
    int file_errno;             /* why not */
    struct pvn_topo_ndoc *doc;  /* the document of an XML root */
    struct pvn_topo_ntree *tree;
    struct pvn_topo_pairs *pairs;
    struct pvn_topo_look look, look_again; /* snapshots of the adapters' counters */
    double looked_s;                       /* time of the first, on the monotonic clock */
    bool may_change, looked_twice; /* the input is no capture; a second snapshot was taken */
    int *gpu_order;                /* indices of the tree's GPUs by their number */
    int *net_order;                /* indices of the tree's nets by the plugin's number */
    struct pvn_topo_nccl_env env;
};

/* Prints the reader's notes on input that it could not read as expected: above an answer in text,
 * or on standard error if the output is for a program. */
void tool_print_notes(const struct tool *t);
void tool_report_notes(const char *root, const struct pvn_topo *topo);
/* Exit status of an answer that depends on all devices: TOOL_INPUT if functions, interfaces or RDMA
 * devices could not be listed, else TOOL_OK. */
int tool_devices_status(const struct tool *t);

/* Prints a sentence for each NIC that is down and would be the nearest of a GPU. */
void tool_print_down(const struct tool *t);
/* Adds these NICs as rows of checks. 0 or negative errno. */
int tool_check_down(const struct tool *t, struct pvn_topo_checks *checks);
/* Lists the NICs that are down and that NCCL would take if they were up; free with
 * pvn_topo_nics_free. 0, or -1 if memory is short. */
int tool_list_down(const struct tool *t, struct pvn_topo_nics *out);
/* A NIC that is down, as one GPU sees it. */
struct tool_down {
    char name[64];
    enum pvn_topo_smi_class distance, best_up; /* best_up: of the nearest NIC that is up */
    int best_up_net;                           /* that NIC, -1: none */
    bool nearest;                              /* nearer than any that is up */
};
/* True if `name` is such a NIC: its own name, its address, or its interface's name. */
bool tool_find_down(const struct tool *t, int gpu, const char *name, struct tool_down *out);
void tool_why_down(const struct tool *t, int gpu, const struct tool_down *nic);

/* Makes text safe for a person: characters that a terminal would interpret become \xNN. Text that
 * does not fit into size bytes (at least 8) is cut with dots. Fills buf and returns it. */
const char *tool_escape(const char *text, char *buf, size_t size);
/* Applies tool_escape in place to every value of a document, or to every name of a machine. Returns
 * an exit status. */
int tool_escape_doc(const struct tool *t, struct pvn_topo_ndoc *doc);
void tool_escape_machine(const struct tool *t, struct pvn_topo *topo);

/* Prints "pvn-topo: ..." on standard error, escaped by tool_escape. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints text wrapped to the width; the first line starts at column `at` (already printed), the
 * others are indented by `indent`. Ends the line. */
void tool_wrap(const struct tool *t, int at, int indent, const char *text);

/* Short name of a GPU or net for tables: "GPU0", "NIC2"; buf holds 16. If numbers repeat, as when
 * several ranks share a GPU, the second is "GPU0#2", so that each name is unique. */
const char *tool_gpu_label(const struct tool *t, int gpu, char *buf);
const char *tool_net_label(const struct tool *t, int net, char *buf);
const struct pvn_topo_nnode *tool_gpu(const struct tool *t, int gpu);
const struct pvn_topo_nnode *tool_net(const struct tool *t, int net);
/* Bus id of a net's NIC, "" if it has none. */
const char *tool_net_busid(const struct tool *t, int net);
/* A description of the device, "H100 80GB HBM3", "ConnectX-7 mlx5_0". Fills buf and returns it. */
const char *tool_gpu_what(const struct tool *t, int gpu, char *buf, size_t len);
const char *tool_pci_what(const struct tool *t, int pci, char *buf, size_t len);
/* Speed of a net in Mb/s as the machine or file states it, else 0; NCCL then uses 10000. */
int tool_net_mbps(const struct tool *t, int net);
/* A net's speed in words; if it is not stated, with the value that NCCL uses instead. buf holds
 * 48. */
const char *tool_net_speed(const struct tool *t, int net, char *buf, size_t len);
/* "100 Gb/s", "10 Gb/s", "speed unknown". */
const char *tool_speed(int mbps, char *buf, size_t len);
/* nvidia-smi's class of a pair if a model is loaded; else UNKNOWN. */
enum pvn_topo_smi_class tool_smi(const struct tool *t, int pci_a, int pci_b,
                                 struct pvn_topo_distance *d);

/* NUMA node of a function as the machine reports it, or PVN_TOPO_UNKNOWN. Without a machine, that
 * of a node of NCCL's tree. */
int tool_numa(const struct tool *t, int pci, int node);
/* True if the machine or file states the class of a node of NCCL's tree, or the capability of its
 * link upwards. An NCCL file may leave both to the machine that it is for. */
bool tool_class_stated(const struct tool *t, int node);
bool tool_link_stated(const struct tool *t, int node);

/* The link that joins the GPUs: "NVLink", or AMD's "XGMI". */
const char *tool_gpu_link(const struct tool *t);
/* Prints that the output lacks NVLink, if the machine may have some. */
void tool_print_nvlink_remark(const struct tool *t);

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: what its commands share. */
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
    int width;           /* columns that sentences are wrapped to */

    /* Options. */
    const char *root;      /* --root, default "/" */
    const char *topo_file; /* --topo-file, or NCCL_TOPO_FILE for this machine, or NULL */
    const char *hints, *host, *rails;
    enum pvn_topo_nic_choice nics_choice;
    bool json, all, names, nccl_tree;
    enum { TOOL_TEXT, TOOL_XML, TOOL_XML_FULL, TOOL_DOT, TOOL_SVG } format;
    enum { TOOL_COLOR_AUTO, TOOL_COLOR_ALWAYS, TOOL_COLOR_NEVER } color;
    const char *output; /* -o, or NULL */
    bool compares;      /* diff: one of two inputs, whose options are for a machine, if one is */
    bool elsewhere;  /* another rank of the job prints: out has nothing, and is not for the file */
    int write_errno; /* why out could not be written, where a command ended for that; else 0 */
    int wait_s;      /* --timeout: how long a pipe may be silent */
    bool ignore_env, keep_addresses;
    bool prom, per_comm, clean;       /* stat */
    const char *hosts, *ssh, *remote; /* --hosts of stat and check; NULL: the default */
    int parallel;                     /* hosts at a time */
    double watch_s;                   /* stat --watch: seconds between looks; 0: one look */
    int count;                        /* looks of --watch; 0: no limit */
    double interval_s;                /* --interval: between the looks of check; 0: one look */
    bool with_counters;               /* tool_load takes the first look */

    /* The model that was loaded. topo is NULL when the root is an XML file. */
    struct pvn_topo *topo;
    struct pvn_topo_nics nics;
    char not_chosen[512]; /* NICs that NCCL's variables leave out, with the variable; "" none */
    struct pvn_topo_ndoc *file; /* the topology file, if any */
    const char *file_missing;   /* NCCL_TOPO_FILE where it cannot be opened, else NULL */
    int file_errno;             /* why not */
    struct pvn_topo_ndoc *doc;  /* of an XML root */
    struct pvn_topo_ntree *tree;
    struct pvn_topo_pairs *pairs;
    struct pvn_topo_look look, look_again; /* at the adapters' counters */
    double looked_s;                       /* when the first was, on the monotonic clock */
    bool may_change, looked_twice; /* what was read is no capture; there was a second look */
    int *gpu_order;                /* indices of the tree's GPUs by their number */
    int *net_order;                /* indices of the tree's nets by the plugin's number */
    struct pvn_topo_nccl_env env;
};

/* Prints what the reader could not read as it should be: above an answer in text, or on standard error where
 * the output is for a program. */
void tool_print_notes(const struct tool *t);
void tool_report_notes(const char *root, const struct pvn_topo *topo);
/* TOOL_INPUT where functions, interfaces or RDMA devices could not be listed, else TOOL_OK: the exit
 * status of an answer that rests on all of them. */
int tool_devices_status(const struct tool *t);

/* NICs that are down and would be the nearest of a GPU: a sentence each. */
void tool_print_down(const struct tool *t);
/* Adds them as rows of checks. 0 or negative errno. */
int tool_check_down(const struct tool *t, struct pvn_topo_checks *checks);
/* All that are down and that NCCL would take if they were up; free with pvn_topo_nics_free. 0, or
 * -1 without memory. */
int tool_list_down(const struct tool *t, struct pvn_topo_nics *out);
/* A NIC that is down, as one GPU sees it. */
struct tool_down {
    char name[64];
    enum pvn_topo_smi_class distance, best_up; /* best_up: of the nearest NIC that is up */
    int best_up_net;                           /* that NIC, -1: none */
    bool nearest;                              /* nearer than any that is up */
};
/* True if `name` is one: its own name, its address, or that of its interface. */
bool tool_find_down(const struct tool *t, int gpu, const char *name, struct tool_down *out);
void tool_why_down(const struct tool *t, int gpu, const struct tool_down *nic);

/* Text for a person: characters that a terminal would obey become \xNN, and what does not fit into
 * size bytes (at least 8) is cut with dots. Fills buf and returns it. */
const char *tool_escape(const char *text, char *buf, size_t size);
/* True if names are shown to a person, and not handed on to a program. */
bool tool_shows_names(const struct tool *t);
/* Replaces, where they are, every value of a document, or name of a machine, by what tool_escape
 * makes of it. An exit status. */
int tool_escape_doc(const struct tool *t, struct pvn_topo_ndoc *doc);
void tool_escape_machine(const struct tool *t, struct pvn_topo *topo);

/* "pvn-topo: ..." on standard error, as tool_escape shows it. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints text wrapped to the width; the first line starts at column `at` (already printed), the
 * others are indented by `indent`. Ends the line. */
void tool_wrap(const struct tool *t, int at, int indent, const char *text);

/* Short name of a GPU or net for tables: "GPU0", "NIC2"; buf holds 16. Where
 * numbers repeat, as they do when several ranks share a GPU, the second is
 * "GPU0#2", so that a name means one thing. */
const char *tool_gpu_label(const struct tool *t, int gpu, char *buf);
const char *tool_net_label(const struct tool *t, int net, char *buf);
const struct pvn_topo_nnode *tool_gpu(const struct tool *t, int gpu);
const struct pvn_topo_nnode *tool_net(const struct tool *t, int net);
/* Bus id of the NIC a net belongs to, "" when it has none. */
const char *tool_net_busid(const struct tool *t, int net);
/* "H100 80GB HBM3", "ConnectX-7 mlx5_0": what is known of the
 * device; buf is filled and returned. */
const char *tool_gpu_what(const struct tool *t, int gpu, char *buf, size_t len);
const char *tool_pci_what(const struct tool *t, int pci, char *buf, size_t len);
/* Speed of a net in Mb/s as stated by the machine or file, 0 where it
 * is not: NCCL then counts 10000. */
int tool_net_mbps(const struct tool *t, int net);
/* A net's speed in words; where it is not stated, with what NCCL counts instead. buf holds 48. */
const char *tool_net_speed(const struct tool *t, int net, char *buf, size_t len);
/* "100 Gb/s", "10 Gb/s", "speed unknown". */
const char *tool_speed(int mbps, char *buf, size_t len);
/* nvidia-smi's class of a pair where a model is loaded; UNKNOWN otherwise. */
enum pvn_topo_smi_class tool_smi(const struct tool *t, int pci_a, int pci_b,
                                 struct pvn_topo_distance *d);

/* NUMA node of a function as the machine reports it, PVN_TOPO_UNKNOWN where it does not; without a
 * machine that of a node of NCCL's tree. */
int tool_numa(const struct tool *t, int pci, int node);
/* True if the machine or file says what a node of NCCL's tree is, and what its link upwards can do:
 * an NCCL file may leave both to the machine that it is for. */
bool tool_class_stated(const struct tool *t, int node);
bool tool_link_stated(const struct tool *t, int node);

/* The link that joins the GPUs: "NVLink", or AMD's "XGMI". */
const char *tool_gpu_link(const struct tool *t);
/* That NVLink is missing in what is shown, where there may be some. */
void tool_print_nvlink_remark(const struct tool *t);

#endif

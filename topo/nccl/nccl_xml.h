/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reading an NCCL topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), and judging one that a user
 * wrote. Needs expat, so only the tools link it. */
#ifndef PVN_TOPO_NCCL_NCCL_XML_H
#define PVN_TOPO_NCCL_NCCL_XML_H

#include <stdbool.h>
#include <stddef.h>

#include "topo/nccl/nccl_doc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of NCCL 2.19 to 2.30 (src/graph/xml.h, xml.cc, topo.h), and of RCCL. 255 bytes hold a value,
 * its closing quote and a NUL. */
#define PVN_TOPO_NCCL_XML_ATTRS 16
#define PVN_TOPO_NCCL_XML_VALUE 253

/* Whose reader a file is meant for, and what differs between the two. */
struct pvn_topo_nreader {
    const char *name;     /* "NCCL" */
    const char *judged;   /* the words behind "judged by the rules of" */
    int nodes;            /* elements; the reader needs a free one when it meets the last end tag */
    int old_nodes;        /* of versions that are in use */
    int subs, old_subs;   /* children of an element */
    int kind;             /* GPUs, switches, ... of one kind that its graph holds */
    const char *old_text; /* what older versions take */
    const char *old_remedy;
    const char *nodes_remedy;
};

/* NCCL's, or RCCL's (AMD's GPUs). */
const struct pvn_topo_nreader *pvn_topo_nreader_of(bool rccl);

/* Our own limits, far above any real machine, so that a hostile file ends in an error. */
#define PVN_TOPO_XML_MAX_BYTES (4u << 20)
#define PVN_TOPO_XML_MAX_NODES 8192

enum pvn_topo_xml_kind {
    PVN_TOPO_XML_TOPOLOGY, /* <system>: what this reader is for */
    PVN_TOPO_XML_GRAPHS,   /* <graphs>: a file for NCCL_GRAPH_FILE */
    PVN_TOPO_XML_OTHER,
};

struct pvn_topo_xml_error {
    enum pvn_topo_xml_kind kind;
    bool rccl;        /* <system version="2">, as far as it was read */
    int line, column; /* 1-based; 0 when the error is not about a place in the file */
    char text[320];   /* one sentence, names the value and the remedy */
};

/* Reads a file, or len bytes. On success *doc is the caller's to free and the result is 0. On error
 * -EINVAL (what the file says), -ENOENT, -EACCES, -EFBIG, -ENOMEM, -EIO, with err filled in.
 *
 * Strict in what would make NCCL fail or silently build another machine: it must be well-formed XML
 * with one <system version="1"> (version 2 is AMD's RCCL and accepted as such), every cpu needs
 * numaid, every pci busid, every nvlink and pcilink target, every net name. Elements where NCCL
 * ignores them are skipped, as NCCL does. */
int pvn_topo_nccl_xml_read(const char *path, struct pvn_topo_ndoc **doc,
                           struct pvn_topo_xml_error *err);
int pvn_topo_nccl_xml_parse(const char *text, size_t len, struct pvn_topo_ndoc **doc,
                            struct pvn_topo_xml_error *err);

enum pvn_topo_lint_level {
    PVN_TOPO_LINT_NOTE,  /* legal, worth knowing */
    PVN_TOPO_LINT_WARN,  /* its reader takes it but will build something else than meant */
    PVN_TOPO_LINT_ERROR, /* its reader refuses the file, or ignores it altogether */
};

struct pvn_topo_lint_finding {
    enum pvn_topo_lint_level level;
    const char *rule; /* stable short name, e.g. "bus-id-repeated" */
    int line;         /* 1-based, 0 for the whole file; the first, where count is more than 1 */
    int place;        /* line of the element around it, 0 none */
    int count;        /* findings of this kind in this place that this one stands for, itself too */
    int own;          /* length of its own text in what, before the lines of the others */
    bool others;      /* it stands for findings about other things, too */
    char what[320];   /* what was seen, with its value */
    const char *remedy; /* what to write instead; static text */
};

struct pvn_topo_lint {
    const struct pvn_topo_nreader *reader;  /* whose rules the file is judged by */
    struct pvn_topo_lint_finding *findings; /* in order of line */
    int n;
};

/* Everything there is to say about a file meant for NCCL_TOPO_FILE, of NCCL or (version 2) of AMD's RCCL,
 * which has its own rules and limits. 0, or -ENOMEM. A file that
 * cannot be parsed is a finding, not an error. What one mistake repeats in one place (a rule broken
 * by many children of one element) is one finding, which names the other lines. */
int pvn_topo_nccl_lint(const char *text, size_t len, struct pvn_topo_lint *lint);
void pvn_topo_lint_free(struct pvn_topo_lint *lint);
const char *pvn_topo_lint_level_name(enum pvn_topo_lint_level level);

/* The whole file as text with a NUL behind it (caller frees), at most PVN_TOPO_XML_MAX_BYTES; "-"
 * is standard input. NULL with errno set. */
char *pvn_topo_xml_slurp(const char *path, size_t *len);

/* Adds a finding; what is a printf format. 0 or -ENOMEM. For the files of the linter only, as are
 * those below. */
int pvn_topo_lint_add(struct pvn_topo_lint *lint, enum pvn_topo_lint_level level, const char *rule,
                      int line, int place, const char *remedy, const char *what, ...)
    __attribute__((format(printf, 7, 8)));

/* Makes one of the findings of a kind in a place, and at most a few of a kind. One that names another
 * line says which, so those of other things stay by themselves. */
void pvn_topo_lint_fold(struct pvn_topo_lint *lint);

/* Numbers out of range, and ranks and devs that repeat. 0 or -ENOMEM. */
int pvn_topo_lint_numbers(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint);

/* host_hash of the <cpu> above, "" where there is none. */
const char *pvn_topo_lint_host(const struct pvn_topo_ndoc_node *node);
/* A dump of several hosts, and the GPU whose links differ from those of its equals. 0 or -ENOMEM. */
int pvn_topo_lint_whole(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint);

/* Reads the bytes exactly as NCCL's own scanner would and reports the first place where it would
 * stop (rule "scanner"). Returns true when NCCL would read to the end. */
bool pvn_topo_lint_scan(const char *text, size_t len, struct pvn_topo_lint *lint);

#ifdef __cplusplus
}
#endif

#endif

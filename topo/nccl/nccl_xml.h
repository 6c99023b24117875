/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reader and linter of NCCL topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). It needs expat,
 * so only the tools link it. */
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

/* The reader that a file is meant for (NCCL or RCCL), and the differences between the two. */
struct pvn_topo_nreader {
    const char *name;     /* "NCCL" */
    const char *judged;   /* the words after "judged by the rules of" */
    int nodes;            /* elements; the reader needs a free one when it meets the last end tag */
    int old_nodes;        /* limit of older versions that are still in use */
    int subs, old_subs;   /* children of an element */
    int kind;             /* limit of nodes of one kind (GPUs, switches, ...) in its graph */
    const char *old_text; /* the limit of older versions, as text */
    const char *old_remedy;
    const char *nodes_remedy;
};

/* NCCL's, or RCCL's (AMD's GPUs). */
const struct pvn_topo_nreader *pvn_topo_nreader_of(bool rccl);

/* Our own limits, far above any real machine, so that a hostile file ends in an error. */
#define PVN_TOPO_XML_MAX_BYTES (4u << 20)
#define PVN_TOPO_XML_MAX_NODES 8192

enum pvn_topo_xml_kind {
    PVN_TOPO_XML_TOPOLOGY, /* <system>: a file for this reader */
    PVN_TOPO_XML_GRAPHS,   /* <graphs>: a file for NCCL_GRAPH_FILE */
    PVN_TOPO_XML_OTHER,
};

struct pvn_topo_xml_error {
    enum pvn_topo_xml_kind kind;
    bool rccl;        /* <system version="2">, as far as it was read */
    int line, column; /* 1-based; 0 if the error has no position in the file */
    char text[320];   /* one sentence, names the value and the remedy */
};

/* Reads a file's len bytes. Returns 0 and *doc, which the caller frees, or with err filled -EINVAL
 * (bad content), -EFBIG or -ENOMEM.
 *
 * The reader is strict about mistakes that would make NCCL fail or silently build another machine.
 * The file must be well-formed XML with one <system version="1"> (version 2 is AMD's RCCL and
 * accepted as such); every cpu needs numaid, every pci busid, every nvlink and pcilink target,
 * every net name. Elements in places where NCCL ignores them are skipped, as by NCCL. */
int pvn_topo_nccl_xml_parse(const char *text, size_t len, struct pvn_topo_ndoc **doc,
                            struct pvn_topo_xml_error *err);

enum pvn_topo_lint_level {
    PVN_TOPO_LINT_NOTE,  /* legal, worth knowing */
    PVN_TOPO_LINT_WARN,  /* its reader accepts it but builds something other than meant */
    PVN_TOPO_LINT_ERROR, /* its reader refuses or ignores the file */
};

struct pvn_topo_lint_finding {
    enum pvn_topo_lint_level level;
    const char *rule; /* stable short name, e.g. "bus-id-repeated" */
    int line;         /* 1-based, 0 for the whole file; the first line if count is more than 1 */
    int place;        /* line of the element around it, 0 none */
    int count;   /* findings of this kind in this place that this one represents, itself included */
    int own;     /* length of its own text in `what`, before the lines of the others */
    bool others; /* it also represents findings about other things */
    char what[320];     /* the mistake, with its value */
    const char *remedy; /* the correct form; static text */
};

struct pvn_topo_lint {
    const struct pvn_topo_nreader *reader;  /* the reader whose rules are applied */
    struct pvn_topo_lint_finding *findings; /* in order of line */
    int n;
};

/* Finds all mistakes in a file meant for NCCL_TOPO_FILE, of NCCL or (version 2) of AMD's RCCL,
 * which has its own rules and limits. 0, or -ENOMEM. A file that cannot be parsed is a finding, not
 * an error. Repetitions of one mistake in one place (many children of one element break a rule) are
 * one finding, which names the other lines. */
int pvn_topo_nccl_lint(const char *text, size_t len, struct pvn_topo_lint *lint);
void pvn_topo_lint_free(struct pvn_topo_lint *lint);
const char *pvn_topo_lint_level_name(enum pvn_topo_lint_level level);

/* Adds a finding; `what` is a printf format. 0 or -ENOMEM. This and the functions below are for the
 * files of the linter only. */
int pvn_topo_lint_add(struct pvn_topo_lint *lint, enum pvn_topo_lint_level level, const char *rule,
                      int line, int place, const char *remedy, const char *what, ...)
    __attribute__((format(printf, 7, 8)));

/* Merges the findings of one kind in one place, and keeps at most a few of a kind. A finding that
 * names another line is specific to one id, so findings about other ids are not merged into it. */
void pvn_topo_lint_fold(struct pvn_topo_lint *lint);

/* Finds numbers out of range, and ranks and devs that repeat. 0 or -ENOMEM. */
int pvn_topo_lint_numbers(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint);

/* host_hash of the <cpu> above, "" if there is none. */
const char *pvn_topo_lint_host(const struct pvn_topo_ndoc_node *node);
/* Finds a dump of several hosts, and a GPU whose links differ from those of equal GPUs. 0 or
 * -ENOMEM. */
int pvn_topo_lint_whole(const struct pvn_topo_ndoc *doc, struct pvn_topo_lint *lint);

/* Scans the bytes exactly as NCCL's own scanner would and reports the first place where it would
 * stop (rule "scanner"). True if NCCL would read to the end. */
bool pvn_topo_lint_scan(const char *text, size_t len, struct pvn_topo_lint *lint);

#ifdef __cplusplus
}
#endif

#endif

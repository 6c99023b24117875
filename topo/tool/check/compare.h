/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check of many hosts: the differences between them. */
#ifndef PVN_TOPO_TOOL_COMPARE_H
#define PVN_TOPO_TOOL_COMPARE_H

#include "topo/tool/load/query.h"

struct compare_fact {
    const char *fact, *subject; /* subject "": a fact of the whole host */
    const char *value;          /* NULL: the host could not read it */
    int host;                   /* index of its answer */
};

/* The facts of one name and subject, one per host that has it, sorted so that equal values are
 * adjacent. */
struct compare_key {
    const struct compare_fact *at;
    int n;
    int known; /* number of values that could be read, which come first */
};

/* A difference: one fact, the subjects in which the hosts differ in the same pattern, and each
 * host's value. */
struct compare_odd {
    struct compare_key key; /* of the first subject */
    int subjects;
    char names[400]; /* names of the first few subjects */
    bool majority;   /* more than half have one value */
    char text[1600]; /* "c7: 1500; the 15 others: 9000" */
};

struct compare {
    const struct tool_answer *answer;
    int answers, hosts; /* hosts: those with a document */
    struct compare_fact *fact;
    int facts;
    struct compare_odd *odd;
    int odds, alike; /* alike: facts that are equal on all hosts */
    char **missing;  /* sentences on facts that could not be compared */
    int n_missing;
};

/* Compares the answers, which must outlive c. 0 or -ENOMEM. */
int compare_make(const struct tool_answer *answer, int n, struct compare *c);
void compare_free(struct compare *c);
/* The remedy for a fact that differs. */
const char *compare_remedy(const char *fact);
const char *compare_label(const char *fact);

#endif

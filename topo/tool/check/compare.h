/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check of many hosts: what differs between them. */
#ifndef PVN_TOPO_TOOL_COMPARE_H
#define PVN_TOPO_TOOL_COMPARE_H

#include "topo/tool/load/query.h"

struct compare_fact {
    const char *fact, *subject; /* subject "": of the host as a whole */
    const char *value;          /* NULL: not readable there */
    int host;                   /* index of its answer */
};

/* Facts of one name and subject, one for each host that has it, with equal values side by side. */
struct compare_key {
    const struct compare_fact *at;
    int n;
    int known; /* of these: values that could be read; they come first */
};

/* A difference: one fact, the subjects in which the hosts differ alike, and which host has what. */
struct compare_odd {
    struct compare_key key; /* of the first subject */
    int subjects;
    char names[400]; /* of the subjects, the first few */
    bool majority;   /* more than half have one value */
    char text[1600]; /* "c7: 1500; the 15 others: 9000" */
};

struct compare {
    const struct tool_answer *answer;
    int answers, hosts; /* hosts: those with a document */
    struct compare_fact *fact;
    int facts;
    struct compare_odd *odd;
    int odds, alike; /* alike: facts that all hosts have in common */
    char **missing;  /* what could not be compared, in sentences */
    int n_missing;
};

/* 0 or -ENOMEM. The answers outlive it. */
int compare_make(const struct tool_answer *answer, int n, struct compare *c);
void compare_free(struct compare *c);
/* The remedy for a fact that differs. */
const char *compare_remedy(const char *fact);
const char *compare_label(const char *fact);

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The meaning of NCCL's network variables in this plugin. Variables that are aliases of a parameter have a row in
 * param_table.c instead. The log at load, `pvn-topo params` and `check`, and a section of nccl-net-pvrdma(7) come
 * from this table. tests/docs/nccl_variables.py compares it with tests/docs/nccl-variables.txt, which lists the
 * variables that NCCL's sources read. */
#ifndef PVN_BASE_NCCL_VARS_H
#define PVN_BASE_NCCL_VARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PVN_NCCL_VAR_LEN 64 /* bytes of a name with its final NUL */

enum pvn_nccl_use {
    PVN_NCCL_OWN,  /* NCCL itself uses it, with any network plugin */
    PVN_NCCL_LOST, /* no effect in this plugin; logged if it is set and its effect is missing */
    PVN_NCCL_NONE  /* has no meaning for this plugin */
};

struct pvn_nccl_var {
    const char *names; /* one or several names, separated by blanks */
    enum pvn_nccl_use use;
    /* PVN_NCCL_LOST: values with which nothing is missing, separated by blanks; or NULL */
    const char *fits;
    const char *text; /* the meaning, in whole sentences */
};

const struct pvn_nccl_var *pvn_nccl_var_table(size_t *count);

/* Steps through a row's names, starting with *at = names. False at the end. */
bool pvn_nccl_var_next(const char **at, char name[PVN_NCCL_VAR_LEN]);

/* The row of a name, or NULL. */
const struct pvn_nccl_var *pvn_nccl_var_find(const char *name);

/* True if the effect of this value is missing in the plugin. False for an empty value and for -1 and -2, by which NCCL
 * means unset. */
bool pvn_nccl_var_is_missed(const struct pvn_nccl_var *var, const char *value);

/* The row, the name and the value of an entry of the environment ("NAME=value"); NULL if the table does not have it. */
const struct pvn_nccl_var *pvn_nccl_var_of_entry(const char *entry, char name[PVN_NCCL_VAR_LEN],
                                                 const char **value);

/* The name of a use: "no effect", "NCCL's own", "no meaning here". */
const char *pvn_nccl_use_name(enum pvn_nccl_use use);

/* Prints the second part of `--params`: the variables that are set in `envp`, with their meaning. */
void pvn_nccl_vars_print(FILE *out, char *const *envp);

/* Prints the body of a man page section (roff): the aliases of parameters, then this table. */
void pvn_nccl_vars_print_roff(FILE *out);

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's variables that concern the network and are no other name of a parameter (those have a row
 * in param_table.c): what each one means here. The log's lines at load, `pvn-topo params` and
 * `check`, and a section of nccl-net-pvrdma(7) come from the table. tests/docs/nccl_variables.py
 * compares it with tests/docs/nccl-variables.txt, which lists what NCCL's sources read. */
#ifndef PVN_BASE_NCCL_VARS_H
#define PVN_BASE_NCCL_VARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PVN_NCCL_VAR_LEN 64 /* bytes of a name with its end */

enum pvn_nccl_use {
    PVN_NCCL_OWN,  /* NCCL itself obeys it, whatever the network */
    PVN_NCCL_LOST, /* without effect here; said when it is set to anything that is missed */
    PVN_NCCL_NONE  /* there is nothing here that it could concern */
};

struct pvn_nccl_var {
    const char *names; /* one or several, a blank between them */
    enum pvn_nccl_use use;
    const char
        *fits; /* of PVN_NCCL_LOST: values that miss nothing, a blank between them; or NULL */
    const char *text; /* whole sentences */
};

const struct pvn_nccl_var *pvn_nccl_var_table(size_t *count);

/* Steps through a row's names, starting with *at = names. False at the end. */
bool pvn_nccl_var_next(const char **at, char name[PVN_NCCL_VAR_LEN]);

/* The row of a name, or NULL. */
const struct pvn_nccl_var *pvn_nccl_var_find(const char *name);

/* True if a user who sets this value would miss its effect. NCCL's own marks for unset, -1 and -2, and an
 * empty value are none. */
bool pvn_nccl_var_is_missed(const struct pvn_nccl_var *var, const char *value);

/* The environment's entry ("NAME=value") as a row and its value, NULL where it is none of these. */
const struct pvn_nccl_var *pvn_nccl_var_of_entry(const char *entry, char name[PVN_NCCL_VAR_LEN],
                                                 const char **value);

/* "no effect", "NCCL's own", "no meaning here". */
const char *pvn_nccl_use_name(enum pvn_nccl_use use);

/* The second part of `--params`: what is set in `envp`, with what it means. */
void pvn_nccl_vars_print(FILE *out, char *const *envp);

/* All of them and the other names of parameters as the body of a man page section (roff). */
void pvn_nccl_vars_print_roff(FILE *out);

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": finds the known name that is most similar to a misspelt one. May be called from any thread. */
#ifndef PVN_BASE_SUGGEST_H
#define PVN_BASE_SUGGEST_H

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_suggest {
    const char *name; /* the misspelt name; borrowed */
    const char *best; /* the most similar candidate so far; NULL: none is similar enough */
    int distance;     /* distance of best, or the largest distance that counts as similar */
};

/* Begins a search. The caller then offers all candidates. Upper and lower case count as equal. */
void pvn_suggest_start(struct pvn_suggest *s, const char *name);
/* The candidate is borrowed and must outlive s. */
void pvn_suggest_offer(struct pvn_suggest *s, const char *candidate);

#ifdef __cplusplus
}
#endif

#endif

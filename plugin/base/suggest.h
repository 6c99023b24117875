/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": the known name that is nearest to a misspelt one. Any thread. */
#ifndef PVN_BASE_SUGGEST_H
#define PVN_BASE_SUGGEST_H

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_suggest {
    const char *name; /* what was written; the caller's */
    const char *best; /* the nearest candidate so far; NULL: none is near enough */
    int distance;     /* of best, or the largest that counts as near */
};

/* Candidates are then offered one by one; upper and lower case are the same letter. */
void pvn_suggest_start(struct pvn_suggest *s, const char *name);
/* candidate stays the caller's and must outlive s. */
void pvn_suggest_offer(struct pvn_suggest *s, const char *candidate);

#ifdef __cplusplus
}
#endif

#endif

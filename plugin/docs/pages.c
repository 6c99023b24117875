/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Parts of the pages for users that come from the plugin's tables. It runs while the plugin is built, so it
 * is compiled for the machine that builds (CC_FOR_BUILD), from the tables' own sources.
 * usage: pages parameters    roff, for nccl-net-pvrdma.7
 *        pages variables     the same, of NCCL's variables
 *        pages hints         a Markdown table, for messages.md */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hints.h"
#include "base/nccl_vars.h"
#include "base/param.h"

/* The names of what hints.c calls WC_...: libibverbs' ibv_wc_status without its prefix. */
static const char *wc_name(int status)
{
    static const char *const names[] = {
        [1] = "LOC_LEN_ERR",     [4] = "LOC_PROT_ERR",       [5] = "WR_FLUSH_ERR",
        [9] = "REM_INV_REQ_ERR", [10] = "REM_ACCESS_ERR",    [11] = "REM_OP_ERR",
        [12] = "RETRY_EXC_ERR",  [13] = "RNR_RETRY_EXC_ERR", [19] = "FATAL_ERR",
    };
    size_t count = sizeof(names) / sizeof(names[0]);

    return status >= 0 && (size_t)status < count ? names[status] : NULL;
}

static int print_hints(FILE *out)
{
    static const char *const past[PVN_PAST_COUNT] = {
        [PVN_PAST_NEVER_WORKED] = "never worked before",
        [PVN_PAST_WORKED] = "had worked",
        [PVN_PAST_IDLE] = "had worked, then idle",
        [PVN_PAST_ANSWERS] = "the peer's machine answers",
        [PVN_PAST_STALLED] = "the limit of NCCL_PVRDMA_STALL_ABORT",
        [PVN_PAST_ELSEWHERE] = "the peer's address is loopback's, and this end's is not",
    };
    size_t count, i;
    const struct pvn_hint *table = pvn_hint_table(&count);

    fputs("| error | likely | try |\n|---|---|---|\n", out);
    for (i = 0; i < count; i++) {
        const struct pvn_hint *h = &table[i];
        const char *wc = h->space == PVN_HINT_WC ? wc_name(h->code) : NULL;

        if (h->space == PVN_HINT_WC && !wc) {
            fprintf(stderr, "pages: completion status %d has no name in pages.c\n", h->code);
            return 1;
        }
        if (wc)
            fprintf(out, "| completion %d, %s", h->code, wc);
        else
            fprintf(out, "| %s (errno %d)", strerror(h->code), h->code);
        if (h->phase != PVN_PHASE_ANY)
            fprintf(out, ", while: %s", pvn_phase_name(h->phase));
        if (h->past != PVN_PAST_ANY)
            fprintf(out, "; %s", past[h->past]);
        fprintf(out, " | %s | %s |\n", h->likely, h->todo);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    int rc = 0;

    if (strcmp(what, "parameters") == 0) {
        pvn_params_print_roff(stdout);
    } else if (strcmp(what, "variables") == 0) {
        pvn_nccl_vars_print_roff(stdout);
    } else if (strcmp(what, "hints") == 0) {
        rc = print_hints(stdout);
    } else {
        fprintf(stderr, "usage: pages parameters | variables | hints\n");
        return 2;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "pages: standard output: %s\n", strerror(errno));
        return 1;
    }
    return rc;
}

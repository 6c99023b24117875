/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define NAME_MAX_LEN 48 /* longer names are not compared */

static bool same_letter(char a, char b)
{
    return toupper((unsigned char)a) == toupper((unsigned char)b);
}

/* Optimal string alignment distance: counts insertions, deletions, replacements and swapped neighbours. */
static int distance_of(const char *a, const char *b)
{
    int d[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];
    int la = (int)strlen(a), lb = (int)strlen(b);
    int i, j;

    for (i = 0; i <= la; i++)
        d[i][0] = i;
    for (j = 0; j <= lb; j++)
        d[0][j] = j;
    for (i = 1; i <= la; i++) {
        for (j = 1; j <= lb; j++) {
            int best = d[i - 1][j - 1] + !same_letter(a[i - 1], b[j - 1]);

            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]) && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[la][lb];
}

void pvn_suggest_start(struct pvn_suggest *s, const char *name)
{
    size_t len = strlen(name);

    s->name = name;
    s->best = NULL;
    /* Similar enough are up to two typos, or a third of a longer name. */
    s->distance = len < 6 ? 2 : (int)len / 3;
}

void pvn_suggest_offer(struct pvn_suggest *s, const char *candidate)
{
    int d;

    if (strlen(s->name) > NAME_MAX_LEN || strlen(candidate) > NAME_MAX_LEN)
        return;
    d = distance_of(s->name, candidate);
    if (d < s->distance || (d == s->distance && !s->best)) {
        s->best = candidate;
        s->distance = d;
    }
}

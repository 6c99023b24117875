/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: an environment, one "NAME=value" per line, parsed as parameters. Besides not
 * crashing: an accepted number is in its range, or a word of the row stands for it, and parses as it
 * was printed. A refusal names the variable. */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/param_value.h"
#include "fuzz/fuzz.h"

enum { MAX_ENTRIES = 64 };

static int64_t number_of(const struct pvn_param_def *def, const struct pvn_params *params)
{
    const void *field = (const char *)params + def->offset;

    if (def->type == PVN_PARAM_INT)
        return *(const int *)field;
    return (int64_t) * (const uint64_t *)field;
}

static bool is_word(const struct pvn_param_def *def, int64_t value)
{
    for (const struct pvn_param_word *w = def->words; w && w->word; w++)
        if (w->value == value)
            return true;
    return false;
}

static void check_row(const struct pvn_param_def *def, const struct pvn_params *params)
{
    char text[PVN_PARAM_STR_LEN], again[PVN_PARAM_STR_LEN], why[96];
    struct pvn_params other;

    pvn_param_format(def, params, text, sizeof(text));
    fuzz_require(pvn_param_parse(def, text, &other, why, sizeof(why)) == 0,
                 "what is printed is read");
    pvn_param_format(def, &other, again, sizeof(again));
    fuzz_require(strcmp(text, again) == 0, "and means the same");
    if (def->type == PVN_PARAM_INT || def->type == PVN_PARAM_SIZE ||
        def->type == PVN_PARAM_DURATION) {
        int64_t value = number_of(def, params);

        fuzz_require((value >= def->min && value <= def->max) || is_word(def, value),
                     "numbers are in range");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *envp[MAX_ENTRIES + 1];
    size_t count, i, n = 0;
    const struct pvn_param_def *table = pvn_param_table(&count);
    char *copy = malloc(size + 1), *line, *rest;
    struct pvn_params params;
    struct pvn_err err = PVN_ERR_INIT;
    int rc;

    memcpy(copy, data, size);
    copy[size] = '\0';
    for (line = strtok_r(copy, "\n", &rest); line && n < MAX_ENTRIES;
         line = strtok_r(NULL, "\n", &rest))
        envp[n++] = line;
    envp[n] = NULL;

    rc = pvn_params_read(&params, envp, &err);
    fuzz_require(rc == 0 || rc == -EINVAL, "no other result");
    fuzz_require((rc != 0) == (err.code != 0), "an error has its reason");
    if (rc)
        fuzz_require(strncmp(err.reason[0], PVN_PARAM_PREFIX, strlen(PVN_PARAM_PREFIX)) == 0 &&
                         strstr(err.reason[0], "it takes"),
                     "the reason names the variable and what it takes");
    for (i = 0; i < count; i++)
        check_row(&table[i], &params);
    free(copy);
    return 0;
}

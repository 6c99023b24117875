/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/param.h"

#include <string.h>

#define TEXT_WIDTH 92

static const char *type_name(enum pvn_param_type type)
{
    static const char *const names[] = {"boolean", "number", "size", "time",
                                        "choice",  "text",   "list"};

    return names[type];
}

/* Words wrapped at TEXT_WIDTH behind an indent of four. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t len = strcspn(text, " ");

        if (column && column + 1 + len > TEXT_WIDTH - 4) {
            fputc('\n', out);
            column = 0;
        }
        fprintf(out, "%s%.*s", column ? " " : "    ", (int)len, text);
        column += len + (column ? 1 : 0);
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void describe(const struct pvn_param_def *def, char *buf, size_t size)
{
    char range[256];

    buf[0] = '\0';
    pvn_str_append(buf, size, "Type: %s, %s.", type_name(def->type),
                   pvn_param_range(def, range, sizeof(range)));
    if (def->type == PVN_PARAM_DURATION)
        pvn_str_append(buf, size, " A number without a unit is in %s.", def->unit);
    pvn_str_append(buf, size, " Default: %s.", *def->def ? def->def : "empty");
    if (def->alias)
        pvn_str_append(buf, size, " %s sets it too.", def->alias);
}

void pvn_params_print(FILE *out, const struct pvn_params *params)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);
    char value[PVN_PARAM_STR_LEN], text[768];

    for (i = 0; i < count; i++) {
        const struct pvn_param_def *def = &table[i];
        const char *source = "default";

        if (params->source[i] == PVN_PARAM_FROM_ENV)
            source = "environment";
        else if (params->source[i] == PVN_PARAM_FROM_ALIAS)
            source = def->alias;
        pvn_param_format(def, params, value, sizeof(value));
        fprintf(out, "%s" PVN_PARAM_PREFIX "%s=%s    [%s]\n", i ? "\n" : "", def->name, value,
                source);
        print_wrapped(out, def->help);
        describe(def, text, sizeof(text));
        print_wrapped(out, text);
    }
}

/* Roff takes a backslash, and a dot or an apostrophe at a line's start, for its own; `-` would
 * become a hyphen that cannot be pasted into a shell. */
static void print_roff_text(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
    fputc('\n', out);
}

void pvn_params_print_roff(FILE *out)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);
    char text[768];

    for (i = 0; i < count; i++) {
        fprintf(out, ".TP\n.B " PVN_PARAM_PREFIX "%s\n", table[i].name);
        print_roff_text(out, table[i].help);
        describe(&table[i], text, sizeof(text));
        print_roff_text(out, text);
    }
}

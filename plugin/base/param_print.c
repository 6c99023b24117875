/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/param.h"

#include <ctype.h>
#include <string.h>

#include "base/nccl_vars.h"

#define TEXT_WIDTH 92

static const char *type_name(enum pvn_param_type type)
{
    static const char *const names[] = {"boolean", "number", "size", "time",
                                        "choice",  "text",   "list", "network"};

    return names[type];
}

/* Prints text with an indent of four, wrapped at TEXT_WIDTH. */
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
    if (def->alias && def->alias_on)
        pvn_str_append(buf, size, " %s=1 sets it to %s.", def->alias, def->alias_on);
    if (def->alias && def->alias_off)
        pvn_str_append(buf, size, " %s=0 sets it to %s.", def->alias, def->alias_off);
    if (def->alias && !def->alias_on && !def->alias_off)
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

/* Escapes a backslash, and a dot or an apostrophe at the start of a line, which roff would interpret. Escapes `-`, too,
 * which would become a hyphen that cannot be pasted into a shell. */
static void print_roff_text(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++)
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
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

/* Replaces control characters, because the output may go to a terminal. */
static void print_value(FILE *out, const char *value)
{
    for (; *value; value++)
        fputc(iscntrl((unsigned char)*value) ? '?' : *value, out);
}

void pvn_nccl_vars_print(FILE *out, char *const *envp)
{
    char name[PVN_NCCL_VAR_LEN];
    const char *value;
    bool any = false;

    for (; envp && *envp; envp++) {
        const struct pvn_nccl_var *var = pvn_nccl_var_of_entry(*envp, name, &value);

        if (!var || !*value)
            continue;
        fprintf(out, "%s\n%s=", any ? "" : "\nNCCL's other variables that are set here:\n", name);
        any = true;
        print_value(out, value);
        fprintf(out, "    [%s]\n",
                var->use == PVN_NCCL_LOST && !pvn_nccl_var_is_missed(var, value)
                    ? "as here anyway"
                    : pvn_nccl_use_name(var->use));
        print_wrapped(out, var->text);
    }
}

/* Prints the names as the tag of a .TP. */
static void print_names(FILE *out, const char *names)
{
    char name[PVN_NCCL_VAR_LEN];
    bool first = true;

    fputs(".TP\n.BR", out);
    while (pvn_nccl_var_next(&names, name)) {
        fprintf(out, "%s \\%%%s", first ? "" : " \", \"", name); /* \%: never hyphenated */
        first = false;
    }
    fputc('\n', out);
}

static void print_rows(FILE *out, enum pvn_nccl_use use)
{
    size_t count, i;
    const struct pvn_nccl_var *table = pvn_nccl_var_table(&count);

    for (i = 0; i < count; i++) {
        if (table[i].use != use)
            continue;
        print_names(out, table[i].names);
        print_roff_text(out, table[i].text);
    }
}

/* Prints the alias of each parameter. For a switch, also the value with which it sets the parameter. */
static void print_aliases(FILE *out)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);

    for (i = 0; i < count; i++) {
        const struct pvn_param_def *def = &table[i];

        if (!def->alias)
            continue;
        fprintf(out, ".TP\n.B \\%%%s", def->alias);
        if (def->alias_on || def->alias_off)
            fprintf(out, "=%c", def->alias_on ? '1' : '0');
        fprintf(out, "\n" PVN_PARAM_PREFIX "%s", def->name);
        if (def->alias_on || def->alias_off)
            fprintf(out, "=%s", def->alias_on ? def->alias_on : def->alias_off);
        fputc('\n', out);
    }
}

void pvn_nccl_vars_print_roff(FILE *out)
{
    fputs(
        ".ad l\n" /* a line may hold a single long name */
        ".SS Another name of a parameter\n"
        "The parameter overrides it, and its entry above says what it means. A value that it does\n"
        "not take is reported at WARN, and the default taken.\n",
        out);
    print_aliases(out);
    fputs(".SS Without effect\n"
          "A user may miss what they do elsewhere. One that is set to such a value is named with\n"
          ".B NCCL_DEBUG=INFO\n"
          "when the plugin is loaded, and by\n"
          ".BR \"pvn\\-topo params\" \" and \" \"pvn\\-topo check\" .\n",
          out);
    print_rows(out, PVN_NCCL_LOST);
    fputs(".SS Obeyed by NCCL\n"
          "They are NCCL's, whatever the network, and mean with the plugin what they mean without "
          "it.\n",
          out);
    print_rows(out, PVN_NCCL_OWN);
    fputs(".SS Without meaning\n"
          "There is nothing in the plugin that they could change, and nothing is missed.\n",
          out);
    print_rows(out, PVN_NCCL_NONE);
    fputs(".ad b\n", out);
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/suggest.h"
#include "base/version.h"

#define LONG 256 /* getopt_long's value for the first row, above all letters */

/* Columns of --help=all. */
enum { TEXT_AT = 25, WIDTH = 96 };

struct parse {
    const struct pvn_options *all;
    void *to;
    pvn_option_take *take;
    uint64_t given;
};

int pvn_options_bad(const struct pvn_options *all, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", all->program);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (see %s --help)\n", all->program);
    return PVN_OPTIONS_BAD;
}

const struct pvn_option *pvn_options_row(const struct pvn_options *all, size_t at)
{
    const struct pvn_option *row = all->rows;

    while (row->name && !(row->size && row->at == at))
        row++;
    return row;
}

bool pvn_options_given(const struct pvn_options *all, uint64_t given, size_t at)
{
    for (int i = 0; all->rows[i].name; i++)
        if ((given & UINT64_C(1) << i) && all->rows[i].size && all->rows[i].at == at)
            return true;
    return false;
}

/* Adds a word to a list: "a, b or c". */
static void join(char *buf, size_t size, const char *word, const char *between)
{
    pvn_str_append(buf, size, "%s%s", *buf ? between : "", word);
}

/* True if two words have the same letters: all_gather and all-gather equal allgather. */
static bool same_word(const char *given, const char *word)
{
    for (; *given; given++)
        if (*given != '-' && *given != '_' && *given != *word++)
            return false;
    return !*word;
}

static int take_word(struct parse *p, const struct pvn_option *row, const char *arg, int *to)
{
    const struct pvn_option_word *w, *next;
    char expected[256] = "";

    for (w = row->words; w->word; w++) {
        if (!same_word(arg, w->word))
            continue;
        *to = w->value;
        return PVN_OPTIONS_OK;
    }
    for (w = row->words; w->word; w = next) {
        for (next = w + 1; next->word && next->value == w->value;)
            next++;
        join(expected, sizeof(expected), w->word, next->word ? ", " : " or ");
    }
    return pvn_options_bad(p->all, "--%s %s: expected %s", row->name, arg, expected);
}

static int take_int(struct parse *p, const struct pvn_option *row, const char *arg, int *to)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(arg, &end, 10);
    if (errno || end == arg || *end || (double)v < row->min || (double)v > row->max)
        return pvn_options_bad(p->all, "--%s %s: expected a number from %.15g to %.15g", row->name,
                               arg, row->min, row->max);
    *to = (int)v;
    return PVN_OPTIONS_OK;
}

/* A bound in the largest unit that divides it: "0.1s", "10m", "30d". */
static const char *time_text(double seconds, char *buf, size_t size)
{
    static const struct {
        double seconds;
        char name;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    int i = 0;

    while (units[i].name != 's' &&
           (seconds < units[i].seconds ||
            (double)(long)(seconds / units[i].seconds) * units[i].seconds != seconds))
        i++;
    snprintf(buf, size, "%.15g%c", seconds / units[i].seconds, units[i].name);
    return buf;
}

static int take_seconds(struct parse *p, const struct pvn_option *row, const char *arg, double *to)
{
    char *end;
    double v = strtod(arg, &end);
    char min[32], max[32];
    bool number = end != arg;

    v *= *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 1;
    if (number && *end && strchr("smhd", *end))
        end++;
    /* Written so that a nan from strtod is refused, too. */
    if (!number || *end || !(v >= row->min && v <= row->max))
        return pvn_options_bad(
            p->all, "--%s %s: expected a time from %s to %s, as 90 (seconds), 10m, 8h or 2d",
            row->name, arg, time_text(row->min, min, sizeof(min)),
            time_text(row->max, max, sizeof(max)));
    *to = v;
    return PVN_OPTIONS_OK;
}

static int take_text(struct parse *p, const struct pvn_option *row, const char *arg, char *to)
{
    if (!*arg || strlen(arg) >= row->size)
        return pvn_options_bad(p->all, "--%s: '%s' is %s", row->name, arg,
                               *arg ? "too long" : "empty");
    memcpy(to, arg, strlen(arg) + 1);
    return PVN_OPTIONS_OK;
}

/* Sets a flag. Two rows of one field, for example two forms of output, are refused, because the
 * last would win silently. */
static int set(struct parse *p, const struct pvn_option *row, void *to)
{
    for (int i = 0; p->all->rows[i].name; i++) {
        const struct pvn_option *other = &p->all->rows[i];

        if ((p->given & UINT64_C(1) << i) && other->size && other->at == row->at && other != row)
            return pvn_options_bad(p->all, "--%s and --%s exclude each other", other->name,
                                   row->name);
    }
    if (row->size == sizeof(bool))
        *(bool *)to = row->min != 0;
    else
        *(int *)to = (int)row->min;
    return PVN_OPTIONS_OK;
}

static int help(const struct parse *p, const char *arg)
{
    if (arg && strcmp(arg, "all") != 0)
        return pvn_options_bad(p->all, "--help=%s: expected --help or --help=all", arg);
    if (arg)
        pvn_options_print(p->all, stdout);
    else
        fputs(p->all->help, stdout);
    return PVN_OPTIONS_DONE;
}

static int take_value(struct parse *p, const struct pvn_option *row, const char *arg)
{
    void *to = (char *)p->to + row->at;

    if (!arg && row->kind != PVN_OPTION_HELP)
        arg = row->def;
    switch (row->kind) {
    case PVN_OPTION_SET:
        return set(p, row, to);
    case PVN_OPTION_INT:
        return take_int(p, row, arg, to);
    case PVN_OPTION_SECONDS:
        return take_seconds(p, row, arg, to);
    case PVN_OPTION_WORD:
        return take_word(p, row, arg, to);
    case PVN_OPTION_TEXT:
        return take_text(p, row, arg, to);
    case PVN_OPTION_STRING:
        *(const char **)to = arg;
        return PVN_OPTIONS_OK;
    case PVN_OPTION_OTHER:
        return p->take(p->to, row, arg);
    case PVN_OPTION_HELP:
        return help(p, arg);
    case PVN_OPTION_VERSION:
        break;
    }
    printf("%s %s\n", p->all->program, pvn_version());
    return PVN_OPTIONS_DONE;
}

/* Reports an option that getopt_long refused: an unknown one, a known one with or without its
 * value, or the beginning of several. */
static int not_taken(const struct pvn_options *all, const char *arg)
{
    bool is_long = strncmp(arg, "--", 2) == 0;
    char name[64], begin[256] = "";
    struct pvn_suggest near;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(arg, "="), arg);
    pvn_suggest_start(&near, name + 2 * is_long);
    for (const struct pvn_option *row = all->rows; row->name; row++) {
        if (is_long ? strcmp(row->name, name + 2) == 0
                    : row->letter && row->arg && name[1] == row->letter)
            return pvn_options_bad(all, "%s %s", name,
                                   row->arg ? "needs a value" : "takes no value");
        if (is_long && strncmp(row->name, name + 2, strlen(name + 2)) == 0)
            pvn_str_append(begin, sizeof(begin), "%s--%s", *begin ? ", " : "", row->name);
        pvn_suggest_offer(&near, row->name);
    }
    if (*begin)
        return pvn_options_bad(all, "%s is the beginning of %s", name, begin);
    return is_long && near.best
               ? pvn_options_bad(all, "%s is not an option; did you mean --%s?", name, near.best)
               : pvn_options_bad(all, "%s is not an option", name);
}

int pvn_options_parse(const struct pvn_options *all, int argc, char **argv, void *to,
                      pvn_option_take *take_other, uint64_t *given)
{
    struct option longs[PVN_OPTIONS_MAX + 1] = {{0}};
    struct parse p = {all, to, take_other, 0};
    char letters[3 * PVN_OPTIONS_MAX + 1] = "";
    int c, rc = PVN_OPTIONS_OK;

    for (int i = 0; all->rows[i].name; i++) {
        const struct pvn_option *row = &all->rows[i];
        const int has = !row->arg                  ? no_argument
                        : pvn_option_optional(row) ? optional_argument
                                                   : required_argument;

        longs[i] = (struct option){row->name, has, NULL, LONG + i};
        if (row->letter)
            pvn_str_append(letters, sizeof(letters), "%c%s", row->letter,
                           has == required_argument ? ":" : "");
        if (row->def && has != optional_argument && (rc = take_value(&p, row, row->def)))
            return rc;
    }
    optind = 0; /* the tests parse several command lines in one process */
    opterr = 0;
    while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        int i = c - LONG;

        if (c == '?')
            return not_taken(all, argv[optind - 1]);
        for (int k = 0; c < LONG && all->rows[k].name; k++)
            if (all->rows[k].letter == c)
                i = k;
        if ((rc = take_value(&p, &all->rows[i], optarg)))
            return rc;
        p.given |= UINT64_C(1) << i;
    }
    *given = p.given;
    return PVN_OPTIONS_OK;
}

int pvn_options_mode(const struct pvn_options *all, const char *name)
{
    struct pvn_suggest near;
    char names[256] = "";
    int i;

    pvn_suggest_start(&near, name);
    for (i = 0; all->modes[i].name; i++) {
        if (strcmp(name, all->modes[i].name) == 0)
            return i;
        pvn_suggest_offer(&near, all->modes[i].name);
        join(names, sizeof(names), all->modes[i].name, all->modes[i + 1].name ? ", " : " and ");
    }
    if (near.best)
        pvn_options_bad(all, "'%s' is not a %s; did you mean %s?", name, all->mode, near.best);
    else
        pvn_options_bad(all, "'%s' is not a %s; the %ss are %s", name, all->mode, all->mode, names);
    return -1;
}

const struct pvn_option *pvn_options_misfit(const struct pvn_options *all, uint64_t given, int mode)
{
    for (int i = 0; all->rows[i].name; i++)
        if ((given & UINT64_C(1) << i) && all->rows[i].modes && !(all->rows[i].modes & 1u << mode))
            return &all->rows[i];
    return NULL;
}

int pvn_options_fit(const struct pvn_options *all, uint64_t given, int mode, const char *in)
{
    const struct pvn_option *row = pvn_options_misfit(all, given, mode);
    const char *last = NULL;
    char names[256] = "";

    for (int k = 0; row && all->modes[k].name; k++) {
        if (!(row->modes & 1u << k))
            continue;
        if (last)
            join(names, sizeof(names), last, ", ");
        last = all->modes[k].name;
    }
    if (!row)
        return PVN_OPTIONS_OK;
    join(names, sizeof(names), last, " and ");
    return pvn_options_bad(all, "--%s has no effect in %s: it is for %s", row->name, in, names);
}

/* Prints words from column TEXT_AT on, wrapped, in a line that is at column `at`. */
static void print_text(FILE *out, int at, const char *text)
{
    bool fresh = at < TEXT_AT;

    if (fresh)
        at += fprintf(out, "%*s", TEXT_AT - at, "");
    for (int len; *text; text += len, text += strspn(text, " ")) {
        len = (int)strcspn(text, " ");
        if (!fresh && at + 1 + len > WIDTH)
            at = fprintf(out, "\n%*s", TEXT_AT, "") - 1;
        else if (!fresh)
            at += fprintf(out, " ");
        at += fprintf(out, "%.*s", len, text);
        fresh = false;
    }
    fputc('\n', out);
}

void pvn_options_print(const struct pvn_options *all, FILE *out)
{
    char text[512];
    int at;

    fprintf(out, "%s\n\n", all->usage);
    for (const struct pvn_option_mode *m = all->modes; m->name; m++) {
        at = fprintf(out, "  %-6s %s", m->name, m->arguments);
        print_text(out, at, m->help);
    }
    for (const struct pvn_option *row = all->rows; row->name; row++) {
        if (row->group)
            fprintf(out, "\n%s\n", row->group);
        at = row->letter ? fprintf(out, "  -%c, --%s", row->letter, row->name)
                         : fprintf(out, "  --%s", row->name);
        if (pvn_option_optional(row))
            at += fprintf(out, "[=%s", row->arg + 1);
        else if (row->arg)
            at += fprintf(out, " %s", row->arg);
        print_text(out, at, pvn_option_text(row, text, sizeof(text)));
    }
    fprintf(out, "\n%s", all->status);
}

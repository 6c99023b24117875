/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The man pages and bash completion of the tools, as far as they come from the tables of options. It runs while the
 * tools are built, so it is compiled for the machine that builds, as pages.c is.
 * usage: tool_pages TOOL completion        a script for bash
 *        tool_pages TOOL man <PAGE.in      the page: `@OPTION name@` becomes the beginning of that option's entry */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "perf/options/opts_table.h"
#include "topo/tool/options.h"

static void print_modes(const struct pvn_options *all, const char *between)
{
    for (int i = 0; all->modes[i].name; i++)
        printf("%s%s", i ? between : "", all->modes[i].name);
}

/* The names of the options that have an effect in the mode; -1: of all. */
static void print_names(const struct pvn_option *rows, int mode)
{
    for (const struct pvn_option *row = rows; row->name; row++) {
        if (mode >= 0 && row->modes && !(row->modes & 1u << mode))
            continue;
        printf(" --%s", row->name);
        if (row->kind == PVN_OPTION_HELP)
            printf(" --%s=all", row->name);
    }
}

/* Another name of a word is taken, but not shown. */
static void print_words(const struct pvn_option *row)
{
    if (row->complete)
        printf("%s", row->complete);
    for (const struct pvn_option_word *w = row->words; w && w->word; w++)
        if (w == row->words || w->value != w[-1].value)
            printf(" %s", w->word);
}

static int print_completion(const struct pvn_options *all)
{
    printf(
        "# bash completion for %s, made from its table of options\n"
        "_pvn_%s()\n{\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word mode='' words=''\n"
        "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
        "        case $word in\n        ",
        all->program, strchr(all->program, '-') + 1);
    print_modes(all, " | ");
    printf(") mode=$word && break ;;\n"
           "        esac\n"
           "    done\n"
           "    case $mode:$cur in\n"
           "    :-*) words=\"");
    print_names(all->rows, -1);
    printf("\" ;;\n    :*) words=\"");
    print_modes(all, " ");
    printf("\" ;;\n");
    for (int i = 0; all->modes[i].name; i++) {
        printf("    %s:-*) words=\"", all->modes[i].name);
        print_names(all->rows, i);
        printf("\" ;;\n    %s:*) words=\"%s\" ;;\n", all->modes[i].name, all->modes[i].complete);
    }
    printf("    esac\n"
           "    case $prev in\n");
    for (const struct pvn_option *row = all->rows; row->name; row++) {
        if (!row->arg || pvn_option_optional(row))
            continue;
        printf("    ");
        if (row->letter)
            printf("-%c | ", row->letter);
        printf("--%s) words=\"", row->name);
        print_words(row);
        printf("\" ;;\n");
    }
    printf("    esac\n"
           "    if [[ $words == " PVN_OPTION_FILE " ]]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "    else\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "    fi\n}\n"
           "complete -o filenames -F _pvn_%s %s\n",
           strchr(all->program, '-') + 1, all->program);
    return 0;
}

/* Roff takes a backslash for its own; `-` would become a hyphen that cannot be pasted into a shell. */
static void put_roff(char c)
{
    if (c == '-' || c == '\\')
        putchar('\\');
    putchar(c == '\\' ? 'e' : c);
}

/* A text whose options are bold. */
static void print_text(const char *text)
{
    while (*text) {
        size_t bold = strncmp(text, "--", 2) ? 0 : strspn(text, "-abcdefghijklmnopqrstuvwxyz");

        fputs(bold ? "\\fB" : "", stdout);
        for (size_t i = 0; i < bold; i++)
            put_roff(*text++);
        fputs(bold ? "\\fR" : "", stdout);
        if (!bold)
            put_roff(*text++);
    }
}

/* [NAME=]PATH with its names, which stand for something, in italics. */
static void print_arg(const char *arg)
{
    bool name = false;

    for (; *arg; arg++) {
        if (name != (isupper((unsigned char)*arg) != 0))
            fputs((name = !name) ? "\\fI" : "\\fR", stdout);
        putchar(*arg);
    }
    fputs(name ? "\\fR" : "", stdout);
}

/* The tag and the first sentence of an entry. */
static void print_entry(const struct pvn_option *row)
{
    size_t word = strcspn(row->help, " ");
    char text[512];

    fputs(".TP\n.BR ", stdout);
    if (row->letter)
        printf("\\-%c \", \" ", row->letter);
    for (const char *c = "--"; *c; c++)
        put_roff(*c);
    for (const char *c = row->name; *c; c++)
        put_roff(*c);
    if (row->arg) {
        fputs(pvn_option_optional(row) ? " \"[=" : " \" ", stdout);
        print_arg(row->arg + pvn_option_optional(row));
        putchar('"');
    }
    putchar('\n');
    pvn_option_text(row, text, sizeof(text));
    /* "p2p, mesh: ..." begins with names. */
    if (!strchr(":,;", text[word - 1]))
        text[0] = (char)toupper((unsigned char)text[0]);
    print_text(text);
    fputs(".\n", stdout);
}

/* Each option has its line in the page, and each such line is of an option. */
static int print_man(const struct pvn_options *all, FILE *in)
{
    char line[4096], name[64];
    uint64_t seen = 0;
    int rc = 0, i;

    while (fgets(line, sizeof(line), in)) {
        if (sscanf(line, "@OPTION %63[a-z-]@", name) != 1) {
            fputs(line, stdout);
            continue;
        }
        for (i = 0; all->rows[i].name && strcmp(all->rows[i].name, name) != 0;)
            i++;
        if (all->rows[i].name) {
            print_entry(&all->rows[i]);
            seen |= UINT64_C(1) << i;
        } else {
            rc = 1;
            fprintf(stderr, "%s has no option --%s, of which its man page speaks\n", all->program,
                    name);
        }
    }
    for (i = 0; all->rows[i].name; i++) {
        if (seen & UINT64_C(1) << i)
            continue;
        rc = 1;
        fprintf(stderr, "the man page of %s has no line @OPTION %s@\n", all->program,
                all->rows[i].name);
    }
    return rc;
}

int main(int argc, char **argv)
{
    static const struct pvn_options *const tools[] = {&pvn_perf_options, &pvn_topo_options};
    int rc = 2;

    for (size_t i = 0; argc == 3 && i < sizeof(tools) / sizeof(tools[0]); i++) {
        if (strcmp(tools[i]->program, argv[1]) != 0)
            continue;
        rc = strcmp(argv[2], "man") ? print_completion(tools[i]) : print_man(tools[i], stdin);
    }
    if (rc == 2)
        fprintf(stderr, "usage: tool_pages TOOL completion | TOOL man <PAGE.in\n");
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "tool_pages: standard output: %s\n", strerror(errno));
        return 1;
    }
    return rc;
}

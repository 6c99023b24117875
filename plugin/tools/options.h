/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The options of a tool in one table. It provides parsing, ranges, "did you mean", the check for
 * options without effect in a mode, --help=all and, when the tool is built
 * (plugin/docs/tool_pages.c), the list in its man page and bash completion.
 *
 * To add an option, add a field in the struct that the tool's options fill, a row, and a line
 * `@OPTION name@` in the man page, with the text below it for which the help has no room. */
#ifndef PVN_TOOLS_OPTIONS_H
#define PVN_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pvn_option_kind {
    PVN_OPTION_SET,     /* int or bool: set to min; rows of one field exclude each other */
    PVN_OPTION_INT,     /* int, min to max */
    PVN_OPTION_SECONDS, /* double, min to max: 90, 0.5, 10m, 8h, 2d */
    PVN_OPTION_WORD,    /* int or enum: the value of one of the words */
    PVN_OPTION_TEXT,    /* char[]: anything but "" */
    PVN_OPTION_STRING,  /* const char *: the argument itself */
    PVN_OPTION_OTHER,   /* the tool parses it */
    PVN_OPTION_HELP,
    PVN_OPTION_VERSION
};

/* A word with the value of the previous one is an alias, which is accepted but not shown. */
struct pvn_option_word {
    const char *word; /* NULL: the end */
    int value;
};

struct pvn_option {
    const char *name; /* without its dashes; NULL: the end */
    const char *arg;  /* name of its value in the help; [in brackets]: optional; NULL: no value */
    const char *help;
    unsigned modes; /* bits of the modes in which it has an effect; 0: all */
    enum pvn_option_kind kind;
    size_t at, size; /* the field; further rows of the same field are aliases */
    double min, max;
    const struct pvn_option_word *words;
    /* the value without the option, or without its optional value; NULL: set by the tool */
    const char *def;
    /* PVN_OPTION_FILE, or words for bash to expand; NULL: the words, if any */
    const char *complete;
    const char *group; /* heading above it; NULL: the previous row's */
    char letter;       /* 'o' adds -o */
};

#define PVN_OPTION_FILE "FILE"
#define PVN_OPTIONS_MAX 64 /* each has a bit in `given` */

/* Kind and field of a row. The table's file defines PVN_OPTIONS_OF, the struct whose fields the
 * rows fill. */
#define PVN_OPT(k, f, low, high)                                                                   \
    .kind = PVN_OPTION_##k, .min = low, .max = high, .at = offsetof(PVN_OPTIONS_OF, f),            \
    .size = sizeof(((PVN_OPTIONS_OF *)0)->f)
#define PVN_OPT_FLAG(f)     PVN_OPT(SET, f, 1, 1)
#define PVN_OPT_WORD(f, of) PVN_OPT(WORD, f, 0, 0), .words = of
#define PVN_OPT_TEXT(f)     PVN_OPT(TEXT, f, 0, 0)
#define PVN_OPT_STRING(f)   PVN_OPT(STRING, f, 0, 0)
#define PVN_OPT_OTHER(f)    PVN_OPT(OTHER, f, 0, 0)

/* The last rows of each table. */
#define PVN_OPTIONS_END                                                                            \
    {"help", "[all]", "the commands that help most, by task, or all options", .letter = 'h',       \
     .kind = PVN_OPTION_HELP},                                                                     \
        {"version", .help = "the version", .letter = 'V', .kind = PVN_OPTION_VERSION},             \
    {                                                                                              \
        NULL                                                                                       \
    }

/* True if the option's value is optional. */
static inline bool pvn_option_optional(const struct pvn_option *row)
{
    return row->arg && row->arg[0] == '[' && row->arg[strlen(row->arg) - 1] == ']';
}

/* The option's help with the default, in buf. */
static inline const char *pvn_option_text(const struct pvn_option *row, char *buf, size_t size)
{
    snprintf(buf, size, row->def ? "%s (default: %s)" : "%s", row->help, row->def);
    return buf;
}

/* A mode or command, by the number of its row. */
struct pvn_option_mode {
    const char *name; /* NULL: the end */
    const char *arguments, *help;
    const char *complete; /* completion of its arguments, as for an option */
};

struct pvn_options {
    const char *program;
    const char *mode; /* the tool's word for a mode: "mode", "command" */
    const struct pvn_option_mode *modes;
    const struct pvn_option *rows; /* at most PVN_OPTIONS_MAX */
    const char *help;              /* one screen, for --help */
    const char *usage, *status;    /* the first line of --help=all, and its end */
};

enum { PVN_OPTIONS_OK = 0, PVN_OPTIONS_BAD = 2, PVN_OPTIONS_DONE = -1 /* the help was printed */ };

/* Parses the value of a row of kind OTHER: OK, or BAD after a message. */
typedef int pvn_option_take(void *to, const struct pvn_option *row, const char *arg);

/* Sets the defaults, then the values on the command line; *given gets the rows that were on it. The
 * remaining arguments begin at optind, as after getopt_long. `take` may be NULL if no row is of
 * kind OTHER. */
int pvn_options_parse(const struct pvn_options *all, int argc, char **argv, void *to,
                      pvn_option_take *take, uint64_t *given);

/* Prints a message and a pointer to the help. Always BAD. */
int pvn_options_bad(const struct pvn_options *all, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The row of the field at that offset, and whether any row of it was given. */
const struct pvn_option *pvn_options_row(const struct pvn_options *all, size_t at);
bool pvn_options_given(const struct pvn_options *all, uint64_t given, size_t at);

/* The mode of that name, or -1 after a message. */
int pvn_options_mode(const struct pvn_options *all, const char *name);

/* The first option that was given and has no effect in the mode, or NULL. */
const struct pvn_option *pvn_options_misfit(const struct pvn_options *all, uint64_t given,
                                            int mode);
/* BAD after a message if there is such an option; `in` is the mode's name in the message. */
int pvn_options_fit(const struct pvn_options *all, uint64_t given, int mode, const char *in);

/* The output of --help=all. */
void pvn_options_print(const struct pvn_options *all, FILE *out);

#ifdef __cplusplus
}
#endif

#endif

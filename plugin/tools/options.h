/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The options of a tool: one table, from which come parsing, ranges, "did you mean", what has no effect in a mode,
 * --help=all, and, when the tool is built (plugin/docs/tool_pages.c), the list in its man page and bash completion.
 *
 * To add one: a field in the struct that the tool's options fill, a row, and a line `@OPTION name@` in the man page,
 * below which stands what the help has no room for. */
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
    PVN_OPTION_SET,     /* int or bool: becomes min; rows of one field exclude each other */
    PVN_OPTION_INT,     /* int, min to max */
    PVN_OPTION_SECONDS, /* double, min to max: 90, 0.5, 10m, 8h, 2d */
    PVN_OPTION_WORD,    /* int or enum: the value of one of the words */
    PVN_OPTION_TEXT,    /* char[]: anything but "" */
    PVN_OPTION_STRING,  /* const char *: as it stands on the command line */
    PVN_OPTION_OTHER,   /* the tool takes it */
    PVN_OPTION_HELP,
    PVN_OPTION_VERSION
};

/* A word whose value is that of the one before it is another name, which is taken but not shown. */
struct pvn_option_word {
    const char *word; /* NULL: the end */
    int value;
};

struct pvn_option {
    const char *name; /* without its dashes; NULL: the end */
    const char
        *arg; /* what the help calls its value; [in brackets]: may be left out; NULL: takes none */
    const char *help;
    unsigned modes; /* bits of those in which it has an effect; 0: all */
    enum pvn_option_kind kind;
    size_t at, size; /* the field; another row of the same one is another name */
    double min, max;
    const struct pvn_option_word *words;
    const char
        *def; /* the value without it, or without its optional value; NULL: the tool's to say */
    const char
        *complete;     /* PVN_OPTION_FILE, or words for bash to expand; NULL: the words, if any */
    const char *group; /* heading above it; NULL: that of the row before */
    char letter;       /* 'o': -o as well */
};

#define PVN_OPTION_FILE "FILE"
#define PVN_OPTIONS_MAX 64 /* a bit each in what was given */

/* Kind and field of a row; the table's file defines PVN_OPTIONS_OF, the struct whose fields the rows fill. */
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

/* True if its value may be left out. */
static inline bool pvn_option_optional(const struct pvn_option *row)
{
    return row->arg && row->arg[0] == '[' && row->arg[strlen(row->arg) - 1] == ']';
}

/* Its help with the default, in buf. */
static inline const char *pvn_option_text(const struct pvn_option *row, char *buf, size_t size)
{
    snprintf(buf, size, row->def ? "%s (default: %s)" : "%s", row->help, row->def);
    return buf;
}

/* A mode or command, by the number of its row. */
struct pvn_option_mode {
    const char *name; /* NULL: the end */
    const char *arguments, *help;
    const char *complete; /* of its arguments, as for an option */
};

struct pvn_options {
    const char *program;
    const char *mode; /* what the tool calls one: "mode", "command" */
    const struct pvn_option_mode *modes;
    const struct pvn_option *rows; /* at most PVN_OPTIONS_MAX */
    const char *help;              /* one screen, for --help */
    const char *usage, *status;    /* the first line of --help=all, and its end */
};

enum { PVN_OPTIONS_OK = 0, PVN_OPTIONS_BAD = 2, PVN_OPTIONS_DONE = -1 /* the help was printed */ };

/* A row of kind OTHER with its value: OK, or BAD after a message. */
typedef int pvn_option_take(void *to, const struct pvn_option *row, const char *arg);

/* Sets the defaults, then what the command line has; *given gets the rows that were on it. What is left begins at
 * optind, as after getopt_long. `take` may be NULL where no row is of kind OTHER. */
int pvn_options_parse(const struct pvn_options *all, int argc, char **argv, void *to,
                      pvn_option_take *take, uint64_t *given);

/* Prints a message and where more is found. Always BAD. */
int pvn_options_bad(const struct pvn_options *all, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The row of the field at that offset, and whether one of its rows was given. */
const struct pvn_option *pvn_options_row(const struct pvn_options *all, size_t at);
bool pvn_options_given(const struct pvn_options *all, uint64_t given, size_t at);

/* The mode of that name, or -1 after a message. */
int pvn_options_mode(const struct pvn_options *all, const char *name);

/* The first option that was given and has no effect in the mode, or NULL. */
const struct pvn_option *pvn_options_misfit(const struct pvn_options *all, uint64_t given,
                                            int mode);
/* BAD after a message if there is one; `in` is how the message calls the mode. */
int pvn_options_fit(const struct pvn_options *all, uint64_t given, int mode, const char *in);

/* The output of --help=all. */
void pvn_options_print(const struct pvn_options *all, FILE *out);

#ifdef __cplusplus
}
#endif

#endif

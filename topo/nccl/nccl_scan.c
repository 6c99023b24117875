/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL and RCCL read XML with a scanner of their own (src/graph/xml.cc xmlGetNode and others),
 * which supports less than XML: no declaration, no tabs, no line break inside a tag, no entities.
 * This file scans the bytes by the same rules and reports where NCCL would stop. */
#include "topo/nccl/nccl_xml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    const char *text;
    size_t len, at;
    int line;
    struct pvn_topo_lint *lint;
    bool failed;
};

const char *pvn_topo_lint_level_name(enum pvn_topo_lint_level level)
{
    static const char *const names[] = {"NOTE", "WARN", "ERROR"};
    return names[level];
}

void pvn_topo_lint_free(struct pvn_topo_lint *lint)
{
    free(lint->findings);
    *lint = (struct pvn_topo_lint){0};
}

int pvn_topo_lint_add(struct pvn_topo_lint *lint, enum pvn_topo_lint_level level, const char *rule,
                      int line, int place, const char *remedy, const char *what, ...)
{
    if ((lint->n & (lint->n - 1)) == 0) {
        size_t room = lint->n ? 2 * (size_t)lint->n : 1;
        struct pvn_topo_lint_finding *more = realloc(lint->findings, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        lint->findings = more;
    }
    /* Findings are sorted by line; on equal lines they keep the order of discovery. */
    int at = lint->n++;
    for (; at > 0 && lint->findings[at - 1].line > line; at--)
        lint->findings[at] = lint->findings[at - 1];
    struct pvn_topo_lint_finding *f = &lint->findings[at];
    *f = (struct pvn_topo_lint_finding){
        .level = level, .rule = rule, .line = line, .place = place, .count = 1, .remedy = remedy};
    va_list args;
    va_start(args, what);
    vsnprintf(f->what, sizeof(f->what), what, args);
    va_end(args);
    f->own = (int)strlen(f->what);
    return 0;
}

/* Limit of findings of a kind; more do not help, wherever they are. */
#define MOST_OF_A_KIND 8

static bool same_words(const struct pvn_topo_lint_finding *a, const struct pvn_topo_lint_finding *b)
{
    return a->own == b->own && strncmp(a->what, b->what, (size_t)a->own) == 0;
}

/* True for a finding like "... is also used in line 3". It is about one id, so the line of another
 * id must not be added. */
static bool names_line(const struct pvn_topo_lint_finding *f)
{
    size_t n = strlen(f->rule), end = sizeof("-repeated") - 1;
    return n > end && strcmp(f->rule + n - end, "-repeated") == 0;
}

/* The finding among the first n that already reports this, or -1. */
static int find_like(const struct pvn_topo_lint *lint, int n, const struct pvn_topo_lint_finding *f)
{
    int alike = 0, last = -1;
    for (int i = 0; i < n; i++) {
        const struct pvn_topo_lint_finding *other = &lint->findings[i];
        if (other->level != f->level || strcmp(other->rule, f->rule) != 0 ||
            strcmp(other->remedy, f->remedy) != 0)
            continue;
        if (other->place == f->place && (!names_line(f) || same_words(other, f)))
            return i;
        alike++;
        last = i;
    }
    return alike >= MOST_OF_A_KIND ? last : -1;
}

void pvn_topo_lint_fold(struct pvn_topo_lint *lint)
{
    int kept = 0;
    for (int i = 0; i < lint->n; i++) {
        int like = find_like(lint, kept, &lint->findings[i]);
        if (like < 0) {
            lint->findings[kept++] = lint->findings[i];
            continue;
        }
        struct pvn_topo_lint_finding *f = &lint->findings[like];
        size_t used = strlen(f->what);
        bool others = !same_words(f, &lint->findings[i]);
        /* Only a few line numbers fit; the count has the total. */
        if (f->count == 1 || (others && !f->others && f->count < 8))
            snprintf(f->what + used, sizeof(f->what) - used, "; %s in line %d",
                     others ? "others of this kind" : "also", lint->findings[i].line);
        else if (f->count < 8)
            snprintf(f->what + used, sizeof(f->what) - used, ", %d", lint->findings[i].line);
        else if (f->count == 8)
            snprintf(f->what + used, sizeof(f->what) - used, " and more");
        f->others |= others;
        f->count++;
    }
    lint->n = kept;
}

static bool stop(struct scan *s, const char *what, const char *remedy)
{
    if (!s->failed)
        pvn_topo_lint_add(s->lint, PVN_TOPO_LINT_ERROR, "scanner", s->line, 0, remedy,
                          "%s's reader stops here: %s", s->lint->reader->name, what);
    s->failed = true;
    return false;
}

/* Next byte, or -1 at the end. */
static int next_byte(struct scan *s)
{
    if (s->at == s->len)
        return -1;
    char c = s->text[s->at++];
    if (c == '\n')
        s->line++;
    return (unsigned char)c;
}

static bool value(struct scan *s, int *last)
{
    int quote = next_byte(s), c;
    size_t n = 0;
    if (quote != '"' && quote != '\'')
        return stop(s, "an attribute value is not quoted",
                    "write name=\"value\" with no space around =");
    do {
        if ((c = next_byte(s)) < 0)
            return stop(s, "the file ends inside a value", "close the quote");
        if (n++ > PVN_TOPO_NCCL_XML_VALUE)
            return stop(s, "a value is longer than 253 characters", "shorten it");
    } while (c != quote);
    if ((*last = next_byte(s)) < 0)
        return stop(s, "the file ends inside a tag", "close the tag with >");
    return true;
}

/* Reads a name, and its value if one follows. *last is the byte after it. */
static bool token(struct scan *s, char *name, size_t size, bool with_value, int *last)
{
    size_t n = 0;
    int c;
    do {
        if ((c = next_byte(s)) < 0)
            return stop(s, "the file ends inside a tag", "close the tag with >");
        if (c == '=') {
            name[n < size ? n : size - 1] = '\0';
            if (!with_value)
                return stop(s, "a '=' in the first word of a comment or tag",
                            "begin comments with a space: <!-- text -->");
            return value(s, last);
        }
        if (n < size)
            name[n] = (char)c;
        if (n++ > PVN_TOPO_NCCL_XML_VALUE)
            return stop(s, "a name is longer than 253 characters", "shorten it");
    } while (c != ' ' && c != '>' && c != '/' && c != '\n' && c != '\r');
    name[n - 1 < size ? n - 1 : size - 1] = '\0';
    *last = c;
    return true;
}

/* Skips a comment after "<!--". The name that was already read and its last byte may contain the
 * end. */
static bool skip_comment(struct scan *s, const char *name, int last)
{
    char end[4] = "...";
    for (const char *p = name + 3; *p; p++) {
        memmove(end, end + 1, 2);
        end[2] = *p;
    }
    memmove(end, end + 1, 2);
    end[2] = (char)last;
    while (strcmp(end, "-->") != 0) {
        int c = next_byte(s);
        if (c < 0)
            return stop(s, "a comment has no end", "close it with -->");
        memmove(end, end + 1, 2);
        end[2] = (char)c;
    }
    return true;
}

enum { NONE, OPEN, CLOSE, SINGLE };

static bool tag(struct scan *s, char *name, size_t size, int *type)
{
    int c = ' ';
    char attr[8];
again:
    *type = NONE;
    do {
        if ((c = next_byte(s)) < 0)
            return true;
    } while (c == ' ' || c == '\n' || c == '\r');
    if (c == '\t')
        return stop(s, "a tab between the tags", "indent with spaces");
    if (c == 0xef)
        return stop(s, "a byte order mark or text before <",
                    "save the file without a byte order mark");
    if (c != '<')
        return stop(s, "text where a tag was expected", "remove it; a topology has only tags");
    if (!token(s, name, size, false, &c))
        return false;
    if (strncmp(name, "!--", 3) == 0) {
        if (!skip_comment(s, name, c))
            return false;
        goto again;
    }
    if (name[0] == '\0' && c == '/') {
        *type = CLOSE;
        if (!token(s, name, size, false, &c))
            return false;
        return c == '>' || stop(s, "something follows the name in an end tag", "write </name>");
    }
    *type = OPEN;
    while (c == ' ')
        if (!token(s, attr, sizeof(attr), true, &c))
            return false;
    if (c == '/') {
        *type = SINGLE;
        if (!token(s, attr, sizeof(attr), false, &c))
            return false;
    }
    if (c == '>')
        return true;
    if (name[0] == '?')
        return stop(s, "an XML declaration (<?xml ...?>)",
                    "remove that line: the first tag is <system>");
    if (name[0] == '!')
        return stop(s, "a document type or similar (<!...>)", "remove it");
    if (c == '\n' || c == '\r' || c == '\t')
        return stop(s, "a line break or tab inside a tag",
                    "put every tag on one line, with spaces");
    return stop(s, "a tag does not end with >", "check the quotes and the end of the tag");
}

bool pvn_topo_lint_scan(const char *text, size_t len, struct pvn_topo_lint *lint)
{
    struct scan s = {.text = text, .len = len, .line = 1, .lint = lint};
    char open[PVN_TOPO_NDOC_MAX_DEPTH][64], name[64];
    int depth = 0, type;
    while (tag(&s, name, sizeof(name), &type)) {
        if (type == NONE) {
            if (depth > 0)
                stop(&s, "the file ends inside an element", "close it");
            break;
        }
        if (type == CLOSE) {
            if (depth > 0 && strcmp(open[depth - 1], name) != 0) {
                stop(&s, "an end tag does not match", "close the innermost element first");
                break;
            }
            depth -= depth > 0;
        }
        if (type == OPEN) {
            if (depth == PVN_TOPO_NDOC_MAX_DEPTH)
                break; /* the reader reports it */
            snprintf(open[depth++], sizeof(open[0]), "%s", name);
        }
    }
    return !s.failed;
}

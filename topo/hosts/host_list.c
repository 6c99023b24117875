/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/hosts/host_list.h"
#include "topo/hosts/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MAX_LEN = 255 };

/* ---- reading ---- */

struct reader {
    struct pvn_topo_host_list *list;
    const char *term; /* for messages */
    char *why;
    size_t why_len;
};

static int refuse_term(const struct reader *r, int err, const char *what)
{
    snprintf(r->why, r->why_len, "\"%.100s\" %s", r->term, what);
    return err;
}

/* A name becomes an argument of ssh, where a leading - would make it an option. */
static int add_name(const struct reader *r, const char *name)
{
    struct pvn_topo_host_list *l = r->list;
    if (!name[0] || name[0] == '-' ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:%@")])
        return refuse_term(
            r, -EINVAL,
            "is not a host: letters, digits and . _ - are, user@host, and ranges such as "
            "node[01-04,7]");
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->name[i], name) == 0)
            return 0;
    if (l->n == PVN_TOPO_HOSTS_MAX)
        return refuse_term(r, -E2BIG, "makes more than 4096 hosts: give fewer at a time");
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 64;
        char **more = realloc(l->name, (size_t)cap * sizeof(*more));
        if (!more)
            return refuse_term(r, -ENOMEM, "does not fit in memory");
        l->name = more;
        l->cap = cap;
    }
    l->name[l->n] = strdup(name);
    return l->name[l->n] ? (l->n++, 0) : refuse_term(r, -ENOMEM, "does not fit in memory");
}

static int expand(const struct reader *r, const char *done, const char *rest);

/* Adds every number from low to high, padded to the width of low. */
static int expand_range(const struct reader *r, const char *done, const char *low, size_t low_len,
                        unsigned long high, const char *rest)
{
    char name[NAME_MAX_LEN + 1];
    unsigned long first = strtoul(low, NULL, 10);
    if (high < first)
        return refuse_term(r, -EINVAL, "has a range that ends before it begins");
    if (high - first >= PVN_TOPO_HOSTS_MAX)
        return refuse_term(r, -E2BIG, "makes more than 4096 hosts: give fewer at a time");
    for (unsigned long v = first; v <= high; v++) {
        int n = snprintf(name, sizeof(name), "%s%0*lu", done, (int)low_len, v);
        int rc = n < (int)sizeof(name)
                     ? expand(r, name, rest)
                     : refuse_term(r, -EINVAL, "is longer than a host's name can be");
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Expands a term. done: the name so far; rest: the part that may have brackets. */
static int expand(const struct reader *r, const char *done, const char *rest)
{
    char name[NAME_MAX_LEN + 1];
    const char *open = strchr(rest, '['), *close = open ? strchr(open, ']') : NULL;
    size_t plain = open ? (size_t)(open - rest) : strlen(rest);
    int n = snprintf(name, sizeof(name), "%s%.*s", done, (int)plain, rest), rc = 0;
    if (n >= (int)sizeof(name))
        return refuse_term(r, -EINVAL, "is longer than a host's name can be");
    if (!open)
        return add_name(r, name);
    if (!close)
        return refuse_term(r, -EINVAL, "has a [ without its ]");
    for (const char *s = open + 1; rc == 0 && s < close; s++) {
        size_t low = strspn(s, "0123456789"), high = 0;
        if (low > 0 && s[low] == '-')
            high = strspn(s + low + 1, "0123456789");
        const char *end = s + low + (high ? high + 1 : 0);
        if (low == 0 || low > 9 || high > 9 || (*end != ',' && end != close))
            return refuse_term(r, -EINVAL, "has a range that is not like [01-04,7]");
        rc = expand_range(r, name, s, low, strtoul(high ? s + low + 1 : s, NULL, 10), close + 1);
        s = end;
    }
    return rc;
}

/* Drops the slots of "host:8". A term with more than one colon is an IPv6 address. */
static int add_term(struct reader *r, char *term)
{
    char *colon = strchr(term, ':');
    if (colon && colon == strrchr(term, ':') && colon[1] &&
        !colon[1 + strspn(colon + 1, "0123456789")])
        *colon = '\0';
    r->term = term;
    return expand(r, "", term);
}

/* Commas inside brackets belong to a range. */
static int add_list(struct reader *r, char *text)
{
    int depth = 0, rc = 0;
    char *term = text;
    for (char *s = text;; s++) {
        bool end = *s == '\0';
        depth += *s == '[' ? 1 : *s == ']' ? -1 : 0;
        if (!end && (*s != ',' || depth > 0))
            continue;
        *s = '\0';
        rc = *term ? add_term(r, term) : 0;
        if (rc < 0 || end)
            return rc;
        term = s + 1;
    }
}

static int add_file(struct reader *r, FILE *f, const char *path)
{
    char *line = NULL, text[200];
    size_t cap = 0;
    int rc = 0;
    for (int number = 1; rc == 0 && getline(&line, &cap, f) > 0; number++) {
        line[strcspn(line, "#\r\n")] = '\0';
        char *word = line + strspn(line, " \t");
        word[strcspn(word, " \t")] = '\0'; /* slots=8 and the like */
        rc = add_list(r, word);
        if (rc < 0) {
            snprintf(text, sizeof(text), "%s", r->why);
            snprintf(r->why, r->why_len, "%.200s:%d: %s", path, number, text);
        }
    }
    free(line);
    return rc;
}

int pvn_topo_host_list_read(struct pvn_topo_host_list *list, const char *file_or_list, char *why,
                            size_t why_len)
{
    struct reader r = {list, file_or_list, why, why_len};
    bool is_stdin = strcmp(file_or_list, "-") == 0;
    int rc;
    if (is_stdin || strchr(file_or_list, '/') || access(file_or_list, F_OK) == 0) {
        FILE *f = is_stdin ? stdin : fopen(file_or_list, "re");
        if (!f) {
            snprintf(why, why_len, "%.200s: cannot be read: %s", file_or_list, strerror(errno));
            return -ENOENT;
        }
        rc = add_file(&r, f, file_or_list);
        if (!is_stdin)
            fclose(f);
    } else {
        char *text = strdup(file_or_list);
        rc = text ? add_list(&r, text) : refuse_term(&r, -ENOMEM, "does not fit in memory");
        free(text);
    }
    r.term = file_or_list;
    return rc == 0 && list->n == 0 ? refuse_term(&r, -EINVAL, "names no host") : rc;
}

void pvn_topo_host_list_free(struct pvn_topo_host_list *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->name[i]);
    free(list->name);
    memset(list, 0, sizeof(*list));
}

/* ---- folding ---- */

/* A name, split at its last digits. */
struct parts {
    const char *name;
    int before, digits; /* lengths */
    unsigned long value;
};

static struct parts split(const char *name)
{
    struct parts p = {name, (int)strlen(name), 0, 0};
    int end = p.before;
    while (end > 0 && !isdigit((unsigned char)name[end - 1]))
        end--;
    int first = end;
    while (first > 0 && end - first < 9 && isdigit((unsigned char)name[first - 1]))
        first--;
    if (end > 0) {
        p.before = first;
        p.digits = end - first;
        p.value = strtoul(name + first, NULL, 10);
    }
    return p;
}

/* True if both names can share a pair of brackets. */
static bool alike(const struct parts *a, const struct parts *b)
{
    bool padded = a->name[a->before] == '0' || b->name[b->before] == '0';
    return a->digits && b->digits && a->before == b->before &&
           strncmp(a->name, b->name, (size_t)a->before) == 0 &&
           strcmp(a->name + a->before + a->digits, b->name + b->before + b->digits) == 0 &&
           (a->digits == b->digits || !padded);
}

static int by_name(const void *a, const void *b)
{
    const struct parts *x = a, *y = b;
    return strverscmp(x->name, y->name);
}

/* Writes a group: p[0] to p[n - 1] are alike. */
static void put_group(struct pvn_topo_text *t, const struct parts *p, int n)
{
    if (n == 1) {
        pvn_topo_text_put(t, "%s", p->name);
        return;
    }
    pvn_topo_text_put(t, "%.*s[", p->before, p->name);
    for (int i = 0, last; i < n; i = last + 1) {
        for (last = i; last + 1 < n && p[last + 1].value == p[last].value + 1; last++)
            continue;
        pvn_topo_text_put(t, "%s%.*s", i ? "," : "", p[i].digits, p[i].name + p[i].before);
        if (last > i)
            pvn_topo_text_put(t, "-%.*s", p[last].digits, p[last].name + p[last].before);
    }
    pvn_topo_text_put(t, "]%s", p->name + p->before + p->digits);
}

const char *pvn_topo_hosts_fold(const char *const *names, int n, char *out, size_t cap)
{
    struct pvn_topo_text t = {out, 0, cap};
    struct parts *p = calloc((size_t)n + 1, sizeof(*p));
    out[0] = '\0';
    for (int i = 0; p && i < n; i++)
        p[i] = split(names[i]);
    if (p)
        qsort(p, (size_t)n, sizeof(*p), by_name);
    else
        pvn_topo_text_put(&t, "%d hosts", n);
    for (int i = 0, end; p && i < n; i = end) {
        for (end = i + 1; end < n && alike(&p[i], &p[end]); end++)
            continue;
        pvn_topo_text_put(&t, "%s", i ? ", " : "");
        put_group(&t, p + i, end - i);
    }
    free(p);
    return out;
}

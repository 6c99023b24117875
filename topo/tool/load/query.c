/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/tool/load/query.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/version.h"
#include "topo/hosts/fetch.h"

int tool_hosts_read(const struct tool *t, struct tool_answers *a)
{
    char why[512];
    int rc = pvn_topo_host_list_read(&a->hosts, t->hosts, why, sizeof(why));
    if (rc == 0) {
        a->n = a->hosts.n;
        a->list = calloc((size_t)a->n, sizeof(*a->list));
    }
    if (rc == 0 && a->list)
        return TOOL_OK;
    tool_error("--hosts: %s", rc < 0 ? why : "out of memory");
    return rc < 0 ? TOOL_USAGE : TOOL_INPUT;
}

void tool_answers_free(struct tool_answers *a)
{
    for (int i = 0; i < a->n && a->list; i++)
        json_decref(a->list[i].doc);
    free(a->list);
    pvn_topo_host_list_free(&a->hosts);
    memset(a, 0, sizeof(*a));
}

/* The last line that is not empty, because programs end with the reason. */
static const char *last_line(const char *text, char *buf, size_t cap)
{
    size_t end = strlen(text), begin;
    while (end > 0 && strchr("\r\n \t", text[end - 1]))
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n'; begin--)
        continue;
    snprintf(buf, cap, "%.*s", (int)(end - begin), text + begin);
    return buf;
}

#define REASON(a, ...) snprintf((a)->reason, sizeof((a)->reason), __VA_ARGS__)
#define REMEDY(a, ...) snprintf((a)->remedy, sizeof((a)->remedy), __VA_ARGS__)

/* Recognises ssh's own failures by OpenSSH's messages. */
static void not_reached(const char *err, struct tool_answer *a)
{
    char line[300];
    last_line(err, line, sizeof(line));
    REASON(a, "not reached: %s", line[0] ? line : "ssh says nothing");
    if (strstr(err, "Permission denied"))
        REMEDY(a,
               "make ssh work there without a password: ssh-copy-id %.100s, ssh-add, or -i by "
               "--ssh",
               a->host);
    else if (strstr(err, "Host key verification failed"))
        REMEDY(a, "its key is not known here or has changed: ssh %.100s once by hand", a->host);
    else if (strstr(err, "resolve"))
        REMEDY(a, "correct the name in --hosts; getent hosts %.100s has to find it", a->host);
    else if (strstr(err, "No such file or directory"))
        REMEDY(a, "install ssh on this machine, or correct --ssh");
    else
        REMEDY(a, "look whether it is up and lets you in: ssh %.100s true", a->host);
}

static int version_of(const json_t *doc)
{
    const json_t *v = json_object_get(doc, "format_version");
    return json_is_integer(v) ? (int)json_integer_value(v) : 1;
}

struct json_t *tool_parse_document(const char *text, size_t len, const char *kind,
                                   struct tool_answer *a)
{
    json_error_t error = {0};
    const char *begin = text, *k;
    while (begin && begin < text + len && *begin != '{') {
        begin = memchr(begin, '\n', len - (size_t)(begin - text));
        begin += begin != NULL;
    }
    len -= begin ? (size_t)(begin - text) : len;
    if (!begin || len == 0) {
        REASON(a, "no JSON came");
        REMEDY(a, "look at what pvn-topo --json %s prints there, run by hand", kind);
        return NULL;
    }
    json_t *doc = json_loadb(begin, len, 0, &error);
    if (!doc) {
        REASON(a, "only a part of the document came: %zu bytes, line %d: %.200s", len, error.line,
               error.text);
        REMEDY(a, "it was cut (a full disk, a connection that ended): once more");
        return NULL;
    }
    k = json_string_value(json_object_get(doc, "kind"));
    if (!k || strcmp(k, kind) != 0) {
        REASON(a, "JSON, but not of pvn-topo --json %s", kind);
        REMEDY(a, "save it with: pvn-topo --json %s", kind);
    } else if (version_of(doc) != 1) {
        const char *v = json_string_value(json_object_get(doc, "tool_version"));
        REASON(a, "format %d of pvn-topo %.40s, which this pvn-topo %s cannot read",
               version_of(doc), v ? v : "of an unknown version", pvn_version());
        REMEDY(a, "install the same version everywhere");
    } else {
        return doc;
    }
    json_decref(doc);
    return NULL;
}

/* Takes the document from a host's output, or sets the reason why there is none. */
static void judge(const struct pvn_topo_fetch *f, const struct tool *t, const char *kind,
                  struct tool_answer *a)
{
    char line[300];
    last_line(f->err, line, sizeof(line));
    if (f->end == PVN_TOPO_FETCH_LATE) {
        REASON(a, "no answer within %d s%s%.200s", t->wait_s, line[0] ? ": " : "", line);
        REMEDY(a, "look whether ssh %.60s hangs, as on a dead file server; else --timeout",
               a->host);
    } else if (f->end == PVN_TOPO_FETCH_LONG) {
        REASON(a, "more than 64 MiB came");
        REMEDY(a, "look at what its login shell prints");
    } else if (f->end == PVN_TOPO_FETCH_FAILED) {
        REASON(a, "ssh was not started: %s", strerror(f->status));
        REMEDY(a, "raise the limits on processes and open files here, or lower --parallel");
    } else if (f->end == PVN_TOPO_FETCH_KILLED) {
        REASON(a, "ssh was ended by signal %d", f->status);
        REMEDY(a, "once more");
    } else if (f->status == 255) {
        not_reached(f->err, a);
    } else if (f->status == 127 || f->status == 126) {
        REASON(a, "pvn-topo cannot be run there: %s", line[0] ? line : "command not found");
        REMEDY(a, "install it there, or give its path by --remote PATH");
    } else if (f->len == 0 && f->status == TOOL_USAGE) {
        REASON(a, "its pvn-topo is of another version: %s", line);
        REMEDY(a, "install the same version everywhere");
    } else if (f->len == 0) {
        REASON(a, "nothing came, exit status %d: %s", f->status, line);
        REMEDY(a, "run it there by hand: pvn-topo --json %s", kind);
    } else {
        a->doc = tool_parse_document(f->out, f->len, kind, a);
        /* The host has reported what it could not read; the rest is shown. */
        if (a->doc && f->status == TOOL_INPUT) {
            REASON(a, "a part is missing: %s", line);
            REMEDY(a, "run it there by hand: pvn-topo %s", kind);
        }
    }
}

static const char *ssh_command(const struct tool *t)
{
    const char *env = getenv("PVN_TOPO_SSH");
    return t->ssh ? t->ssh : env && env[0] ? env : "ssh";
}

int tool_query(const struct tool *t, const char *arguments, const char *kind,
               struct tool_answers *a)
{
    struct pvn_topo_fetch *all = calloc((size_t)a->n, sizeof(*all));
    char command[1024];
    int rc = -1;
    snprintf(command, sizeof(command), "%s %s", t->remote ? t->remote : "pvn-topo", arguments);
    for (int i = 0; all && i < a->n; i++) {
        json_decref(a->list[i].doc);
        a->list[i] = (struct tool_answer){.host = a->hosts.name[i]};
        all[i].host = a->hosts.name[i];
    }
    if (all)
        rc = pvn_topo_fetch_run(ssh_command(t), command, all, a->n,
                                t->parallel < a->n ? t->parallel : a->n, t->wait_s);
    for (int i = 0; rc == 0 && i < a->n; i++)
        judge(&all[i], t, kind, &a->list[i]);
    if (all)
        pvn_topo_fetch_free(all, a->n);
    if (rc == 0)
        return TOOL_OK;
    tool_error("out of memory for the answers of %d hosts", a->n);
    return TOOL_INPUT;
}

/* True if two answers differ only in the host's own name. */
static bool same_trouble(const struct tool_answer *a, const struct tool_answer *b)
{
    const char *x = a->reason, *y = b->reason;
    size_t na = strlen(a->host), nb = strlen(b->host);
    if (!a->doc != !b->doc)
        return false;
    while (*x && *y) {
        if (strncmp(x, a->host, na) == 0 && strncmp(y, b->host, nb) == 0) {
            x += na;
            y += nb;
        } else if (*x++ != *y++) {
            return false;
        }
    }
    return *x == *y;
}

int tool_print_unanswered(const struct tool *t, FILE *out, const struct tool_answer *list, int n)
{
    const char **names = calloc((size_t)n + 1, sizeof(*names));
    struct tool to = *t;
    int count = 0;
    to.out = out;
    for (int i = 0; names && i < n; i++) {
        char hosts[600], text[1300];
        int same = 0;
        bool first = list[i].reason[0] != '\0';
        count += first;
        for (int j = 0; first && j < n; j++) {
            if (!list[j].reason[0] || !same_trouble(&list[i], &list[j]))
                continue;
            first = j >= i;
            names[same++] = list[j].host;
        }
        if (!first)
            continue;
        pvn_topo_hosts_fold(names, same, hosts, sizeof(hosts));
        snprintf(text, sizeof(text), "%s: %s", hosts, list[i].reason);
        tool_wrap(&to, 0, 4, tool_escape(text, (char[1400]){0}, 1400));
        fprintf(out, "    %s-> ", t->bold);
        tool_wrap(&to, 7, 7, list[i].remedy);
        fputs(t->off, out);
    }
    free(names);
    return count;
}

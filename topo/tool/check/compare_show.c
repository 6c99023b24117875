/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check --hosts: the hosts that differ from the others, and each host's own findings. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/json_text.h"
#include "topo/tool/base/json.h"
#include "topo/tool/check/check.h"
#include "topo/tool/check/compare.h"
#include "topo/tool/check/facts.h"
#include "topo/tool/load/load.h"

/* ---- the hosts' own findings ---- */

static bool same_row(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"check", "level", "subject", "text"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(pvn_json_text(a, keys[i]), pvn_json_text(b, keys[i])) != 0)
            return false;
    return true;
}

/* Collects FAIL and WARN of all hosts, each once with the list of "hosts" that have it. */
static json_t *sum_up(const struct compare *c)
{
    json_t *all = json_array(), *row, *there;
    for (int h = 0; h < c->answers; h++) {
        const json_t *rows = json_object_get(c->answer[h].doc, "checks");
        size_t i, k;
        json_array_foreach(rows, i, row)
        {
            json_t *found = NULL;
            if (strcmp(pvn_json_text(row, "level"), "FAIL") != 0 &&
                strcmp(pvn_json_text(row, "level"), "WARN") != 0)
                continue;
            json_array_foreach(all, k, there) if (same_row(row, there)) found = there;
            if (!found) {
                found = json_deep_copy(row);
                json_object_set_new(found, "hosts", json_array());
                json_array_append_new(all, found);
            }
            json_array_append_new(json_object_get(found, "hosts"), json_text(c->answer[h].host));
        }
    }
    return all;
}

static int count_level(const json_t *rows, const char *level)
{
    const json_t *row;
    size_t i;
    int n = 0;
    json_array_foreach(rows, i, row) n += strcmp(pvn_json_text(row, "level"), level) == 0;
    return n;
}

static void print_rows(const struct tool *t, const json_t *rows, const char *level)
{
    const json_t *row;
    size_t i, k;
    json_array_foreach(rows, i, row)
    {
        const json_t *hosts = json_object_get(row, "hosts"), *host;
        const char *names[4096];
        char list[500], text[1600], shown[1700];
        int n = 0;
        if (strcmp(pvn_json_text(row, "level"), level) != 0)
            continue;
        json_array_foreach(hosts, k, host) if (n < 4096) names[n++] = json_string_value(host);
        snprintf(text, sizeof(text), "%s: %s: %s",
                 pvn_topo_hosts_fold(names, n, list, sizeof(list)), pvn_json_text(row, "subject"),
                 pvn_json_text(row, "text"));
        fprintf(t->out, "%s%-7s%s %-16s ", strcmp(level, "FAIL") == 0 ? t->red : t->yellow, level,
                t->off, pvn_json_text(row, "check"));
        tool_wrap(t, 25, 25, tool_escape(text, shown, sizeof(shown)));
        fprintf(t->out, "%25s%s-> ", "", t->bold);
        tool_wrap(t, 28, 28, tool_escape(pvn_json_text(row, "remedy"), shown, sizeof(shown)));
        fputs(t->off, t->out);
    }
}

/* ---- for people ---- */

static void print_head(const struct tool *t, const struct compare *c)
{
    fprintf(t->out, "%s", t->bold);
    if (c->hosts < 2)
        fprintf(t->out, "%s: there is nothing to compare",
                c->hosts ? "only one host gave its facts" : "no host gave its facts");
    else if (c->odds == 0)
        fprintf(t->out, "%d hosts are alike in all %d facts", c->hosts, c->alike);
    else
        fprintf(t->out, "%d hosts differ in %d fact%s and are alike in %d", c->hosts, c->odds,
                c->odds == 1 ? "" : "s", c->alike);
    fprintf(t->out, "%s\n", t->off);
}

static void print_odd(const struct tool *t, const struct compare_odd *o)
{
    const char *fact = o->key.at->fact;
    char text[2400], shown[2500];
    snprintf(text, sizeof(text), "%s%s%s%s%s: %s%s", compare_label(fact), o->names[0] ? " of " : "",
             o->names, o->subjects > 4 ? " and others" : "", "",
             o->majority ? "" : "no majority: ", o->text);
    fprintf(t->out, "%sODD%s     ", t->red, t->off);
    tool_wrap(t, 8, 8, tool_escape(text, shown, sizeof(shown)));
    fprintf(t->out, "        %s-> ", t->bold);
    tool_wrap(t, 11, 11, compare_remedy(fact));
    fputs(t->off, t->out);
}

/* Prints the last line: the number of all problems, including differences and hosts without
 * facts. */
static void print_sum(const struct tool *t, const struct compare *c, const json_t *rows)
{
    int fails = count_level(rows, "FAIL"), without = c->answers - c->hosts;
    fputc('\n', t->out);
    if (without > 0)
        fprintf(t->out, "%d of %d hosts gave no facts; ", without, c->answers);
    if (c->odds > 0)
        fprintf(t->out, "%d fact%s; ", c->odds, c->odds == 1 ? " differs" : "s differ");
    fprintf(t->out, "%d kind%s of failures, %d to look at\n", fails, fails == 1 ? "" : "s",
            count_level(rows, "WARN"));
}

static void print_all(const struct tool *t, const struct compare *c, const json_t *rows)
{
    char shown[1000];
    print_head(t, c);
    tool_print_unanswered(t, t->out, c->answer, c->answers);
    for (int i = 0; i < c->odds; i++)
        print_odd(t, &c->odd[i]);
    if (c->n_missing)
        fputs("\nnot compared:\n", t->out);
    for (int i = 0; i < c->n_missing; i++) {
        fputs("  ", t->out);
        tool_wrap(t, 2, 4, tool_escape(c->missing[i], shown, sizeof(shown)));
    }
    if (json_array_size(rows))
        fputs("\nfound by the hosts themselves:\n", t->out);
    print_rows(t, rows, "FAIL");
    print_rows(t, rows, "WARN");
    print_sum(t, c, rows);
}

/* ---- for programs ---- */

static json_t *odd_json(const struct compare *c, const struct compare_odd *o)
{
    json_t *out = json_object(), *groups = json_array(), *hosts = NULL;
    json_object_set_new(out, "fact", json_text(o->key.at->fact));
    json_object_set_new(out, "subjects", json_text(o->names));
    json_object_set_new(out, "majority", json_boolean(o->majority));
    json_object_set_new(out, "text", json_text(o->text));
    json_object_set_new(out, "remedy", json_text(compare_remedy(o->key.at->fact)));
    for (int i = 0; i < o->key.known; i++) {
        const struct compare_fact *f = &o->key.at[i];
        if (i == 0 || strcmp(f->value, f[-1].value) != 0) {
            json_t *group = json_object();
            hosts = json_array();
            json_object_set_new(group, "value", json_text(f->value));
            json_object_set_new(group, "hosts", hosts);
            json_array_append_new(groups, group);
        }
        json_array_append_new(hosts, json_text(c->answer[f->host].host));
    }
    json_object_set_new(out, "groups", groups);
    return out;
}

static int print_json(const struct tool *t, const struct compare *c, json_t *rows)
{
    json_t *odd = json_array(), *missing = json_array();
    for (int i = 0; i < c->odds; i++)
        json_array_append_new(odd, odd_json(c, &c->odd[i]));
    for (int i = 0; i < c->n_missing; i++)
        json_array_append_new(missing, json_text(c->missing[i]));
    tool_print_unanswered(t, stderr, c->answer, c->answers);
    return json_compare(t, odd, missing, json_incref(rows));
}

/* ---- reading ---- */

static int read_files(const struct tool *t, int n, char **files, struct tool_answers *a)
{
    a->list = calloc((size_t)n, sizeof(*a->list));
    if (!a->list)
        return TOOL_INPUT;
    a->n = n;
    for (int i = 0; i < n; i++) {
        struct tool_answer *one = &a->list[i];
        struct pvn_topo_input in;
        one->host = files[i];
        if (tool_read(t, files[i], &in) != TOOL_OK) {
            snprintf(one->reason, sizeof(one->reason), "it cannot be read");
            snprintf(one->remedy, sizeof(one->remedy), "see above");
            continue;
        }
        one->doc = tool_parse_document((const char *)in.data, in.len, "check", one);
        pvn_topo_input_free(&in);
        const char *host = json_string_value(json_object_get(one->doc, "host"));
        one->host = host && host[0] ? host : files[i];
    }
    return TOOL_OK;
}

static int show(const struct tool *t, const struct tool_answers *a)
{
    struct compare c;
    int status = TOOL_OK;
    if (compare_make(a->list, a->n, &c) < 0) {
        tool_error("out of memory for the facts of %d hosts", a->n);
        compare_free(&c);
        return TOOL_INPUT;
    }
    json_t *rows = sum_up(&c);
    if (t->json)
        status = print_json(t, &c, rows);
    else
        print_all(t, &c, rows);
    if (status == TOOL_OK && (c.odds || count_level(rows, "FAIL")))
        status = TOOL_FOUND;
    for (int i = 0; i < a->n; i++)
        if (a->list[i].reason[0])
            status = TOOL_INPUT;
    json_decref(rows);
    compare_free(&c);
    return status;
}

int tool_compare(struct tool *t, int argc, char **argv)
{
    struct tool_answers a = {0};
    int status;
    if (t->hosts && argc > 0) {
        tool_error("check takes hosts (--hosts) or files, not both");
        return TOOL_USAGE;
    }
    status = t->hosts ? tool_hosts_read(t, &a) : read_files(t, argc, argv, &a);
    if (status == TOOL_OK && t->hosts)
        status = tool_query(t, "--json check", "check", &a);
    if (status == TOOL_OK)
        status = show(t, &a);
    tool_answers_free(&a);
    return status;
}

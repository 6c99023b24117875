/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --hosts: queries many hosts at a time. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "topo/tool/load/counters.h"
#include "topo/tool/stat/stat_grown.h"
#include "topo/tool/stat/stat_hidden.h"
#include "topo/tool/stat/stat_look.h"

int stat_look_hosts(const struct tool *t, struct tool_answers *a, struct stat_list *list)
{
    int status = tool_query(t, "--json stat", "stat", a);
    list->answer = a->list;
    list->answers = a->n;
    list->saved = list->twice_is_fine = true;
    for (int i = 0; status == TOOL_OK && i < a->n; i++) {
        int before = list->n;
        if (a->list[i].reason[0])
            list->unread++;
        if (a->list[i].doc && stat_add_document(list, a->list[i].host, a->list[i].doc) < 0)
            list->unread++;
        a->list[i].processes = list->n - before;
        /* Without this the host would seem to have no user of the plugin. */
        if (list->n == before && stat_hidden_in(a->list[i].doc) > 0)
            list->unread++;
    }
    return status;
}

/* Selects the hosts whose comms use adapters with counters. 0 or -ENOMEM. */
static int with_counters(const struct tool_answers *a, struct tool_answers *out)
{
    out->list = calloc((size_t)a->n + 1, sizeof(*out->list));
    out->hosts.name = calloc((size_t)a->n + 1, sizeof(*out->hosts.name));
    if (!out->list || !out->hosts.name)
        return -ENOMEM;
    for (int i = 0; i < a->n; i++) {
        if (!stat_grown_adapters(&a->list[i]))
            continue;
        out->hosts.name[out->hosts.n] = strdup(a->list[i].host);
        if (!out->hosts.name[out->hosts.n++])
            return -ENOMEM;
    }
    out->n = out->hosts.n;
    return 0;
}

/* Adds the growth on one host since the first snapshot to its answer. */
static void take_second(const struct tool_answer *second, struct tool_answers *a)
{
    for (int i = 0; i < a->n; i++) {
        json_t *now = stat_grown_adapters(second);
        if (strcmp(a->list[i].host, second->host) != 0 || !now)
            continue;
        stat_grown_since(now, stat_grown_adapters(&a->list[i]));
        json_object_set(a->list[i].doc, "adapters", now);
    }
}

/* Takes a second snapshot of the adapters' counters. Returns the seconds between both, or 0 if
 * there was only one. */
static double look_again(const struct tool *t, struct tool_answers *a, double began)
{
    struct tool_answers again = {0};
    double between = 0;
    if (t->interval_s > 0 && with_counters(a, &again) == 0 && again.n > 0) {
        tool_sleep(t->interval_s);
        if (tool_query(t, "--json stat", "stat", &again) == TOOL_OK)
            between = pvn_now_s() - began;
    }
    for (int i = 0; between > 0 && i < again.n; i++) {
        if (!again.list[i].doc)
            tool_error("%s: no second look at its adapters' counters: %s", again.list[i].host,
                       again.list[i].reason);
        take_second(&again.list[i], a);
    }
    tool_answers_free(&again);
    return between;
}

int stat_hosts(struct tool *t)
{
    struct tool_answers a = {0};
    struct stat_list list = {0};
    double began = pvn_now_s(), between;
    int status = tool_hosts_read(t, &a);
    if (status == TOOL_OK)
        status = stat_look_hosts(t, &a, &list);
    if (status == TOOL_OK) {
        between = look_again(t, &a, began);
        status = stat_show(t, &list, NULL);
        if (t->json)
            tool_print_unanswered(t, stderr, a.list, a.n);
        else if (between > 0)
            stat_print_grown(t, a.list, a.n, between);
    }
    stat_list_free(&list);
    tool_answers_free(&a);
    return status;
}

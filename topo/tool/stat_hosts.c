/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --hosts: what each of many hosts has, at a time. */
#include "topo/tool/stat_look.h"

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
    }
    return status;
}

int stat_hosts(struct tool *t)
{
    struct tool_answers a = {0};
    struct stat_list list = {0};
    int status = tool_hosts_read(t, &a);
    if (status == TOOL_OK)
        status = stat_look_hosts(t, &a, &list);
    if (status == TOOL_OK) {
        status = stat_show(t, &list, NULL);
        if (t->json)
            tool_print_unanswered(t, stderr, a.list, a.n);
    }
    stat_list_free(&list);
    tool_answers_free(&a);
    return status;
}

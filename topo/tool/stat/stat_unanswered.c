/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --hosts: hosts that gave no answer, and those with nothing to show. */
#include <stdlib.h>

#include "topo/tool/load/query.h"
#include "topo/tool/stat/stat_hidden.h"

void stat_print_hosts(const struct tool *t, const struct stat_list *list)
{
    const char **idle = calloc((size_t)list->answers + 1, sizeof(*idle));
    char names[600];
    int n = 0;
    for (int i = 0; idle && i < list->answers; i++)
        if (list->answer[i].doc && list->answer[i].processes == 0 &&
            stat_hidden_in(list->answer[i].doc) == 0)
            idle[n++] = list->answer[i].host;
    int bad = tool_print_unanswered(t, t->out, list->answer, list->answers);
    if (n > 0)
        fprintf(t->out, "no process uses the plugin on %s\n",
                pvn_topo_hosts_fold(idle, n, names, sizeof(names)));
    bad += stat_print_hidden_hosts(t, list->answer, list->answers);
    if (bad + n > 0)
        fputc('\n', t->out);
    free(idle);
}

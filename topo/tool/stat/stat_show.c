/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: shows the list in the requested form. */
#include "topo/tool/stat/stat_adapters.h"

static bool anything_wrong(const struct stat_list *list)
{
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < list->file[i].nrows; k++)
            if (stat_trouble(&list->file[i], &list->file[i].row[k]) != STAT_FINE)
                return true;
    }
    return false;
}

int stat_status(const struct stat_list *list)
{
    return list->unread ? TOOL_INPUT : anything_wrong(list) ? TOOL_FOUND : TOOL_OK;
}

int stat_show(const struct tool *t, const struct stat_list *list, const char *sysfs)
{
    struct stat_adapters adapters = {0};
    int status = stat_status(list), rc;
    if (t->prom && list->saved) {
        tool_error(
            "--prom is for processes of this host: what was saved as JSON has no times of day");
        return TOOL_USAGE;
    }
    if (sysfs)
        stat_adapters_read(t, list, sysfs, &adapters);
    if (t->json) {
        rc = stat_print_json(t, list, NULL, json_adapters(adapters.topo, NULL, &adapters.look));
        status = rc == TOOL_OK ? status : rc;
    } else if (t->prom) {
        stat_print_prom(t, list);
        stat_print_prom_adapters(t, &adapters);
        status = list->unread ? TOOL_INPUT : TOOL_OK; /* the metrics show what is wrong */
    } else {
        stat_print(t, list);
        stat_print_adapters(t, &adapters);
    }
    stat_adapters_free(&adapters);
    return status;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A label and a heading in Prometheus's text exposition format. */
#include "topo/tool/stat/stat.h"

void stat_prom_label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

void stat_prom_heading(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP " STAT_PROM_PREFIX "%s %s\n# TYPE " STAT_PROM_PREFIX "%s %s\n", name, help,
            name, type);
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/hosts/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pvn_topo_text_put(struct pvn_topo_text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->out + t->len, t->cap - t->len, format, ap);
    va_end(ap);
    if (n < 0 || t->len + (size_t)n < t->cap) {
        t->len += n > 0 ? (size_t)n : 0;
        return;
    }
    t->len = t->cap - 1;
    if (t->cap > 4)
        memcpy(t->out + t->cap - 4, "...", 4);
}

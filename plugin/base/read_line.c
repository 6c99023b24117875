/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/read_line.h"

#include <stdio.h>
#include <string.h>

bool pvn_read_line(const char *path, char *buf, size_t cap)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(buf, (int)cap, f);

    if (f)
        fclose(f);
    if (!ok)
        buf[0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return ok;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "stats/stat_via.h"

#include <stdio.h>
#include <string.h>

static const struct {
    uint32_t bit;
    const char *name;
} transports[] = {{PVN_VIA_RDMA, "rdma"}, {PVN_VIA_TCP, "tcp"}, {PVN_VIA_OTHER, "other"}};

enum { TRANSPORTS = sizeof(transports) / sizeof(transports[0]) };

uint32_t pvn_via_of_lanes(const char *lanes)
{
    uint32_t via = 0;

    /* Lanes are separated by "; ", and each begins with the name of its transport. */
    while (*lanes) {
        size_t len = strcspn(lanes, " ;"), i;

        for (i = 0; i + 1 < TRANSPORTS; i++)
            if (strlen(transports[i].name) == len && strncmp(lanes, transports[i].name, len) == 0)
                break;
        via |= transports[i].bit;
        lanes += strcspn(lanes, ";");
        lanes += strspn(lanes, "; ");
    }
    return via;
}

const char *pvn_via_text(uint32_t via, char *out, size_t cap)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < TRANSPORTS; i++)
        if ((via & transports[i].bit) && at < cap)
            at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? "+" : "", transports[i].name);
    return out;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: NCCL_SOCKET_IFNAME on a machine with one interface of each kind. The chosen
 * interfaces are usable. If the list has no '^', the name of each one matches it. If none is
 * chosen, there is an error with a list. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/addr.h"
#include "base/dev_list.h"
#include "fuzz/fuzz.h"
#include "net-tcp/iface.h"
#include "net-tcp/iface_priv.h"

static void make_table(struct pvn_iface_table *table)
{
    static const char *const names[PVN_IFACE_KINDS] = {"eth0",  "bond0", "eth0.5", "mv0", "br0",
                                                       "veth7", "tun0",  "dummy0", "lo"};
    int i;

    memset(table, 0, sizeof(*table));
    for (i = 0; i < PVN_IFACE_KINDS; i++) {
        struct pvn_iface *iface = pvn_iface_append(table);
        struct sockaddr_storage ss;
        char text[32];

        snprintf(iface->name, sizeof(iface->name), "%s", names[i]);
        iface->ifindex = (unsigned)i + 1;
        iface->kind = (enum pvn_iface_kind)i;
        iface->up = true;
        iface->running = i != PVN_IFACE_BOND;
        snprintf(text, sizeof(text), "10.%d.0.1", i);
        pvn_addr_parse(text, &ss, NULL);
        snprintf(pvn_iface_add_addr(iface, (struct sockaddr *)&ss, 24, false, false)->label,
                 sizeof(iface->addrs[0].label), "%s", iface->name);
        snprintf(text, sizeof(text), "10.%d.1.1", i);
        pvn_addr_parse(text, &ss, NULL);
        snprintf(pvn_iface_add_addr(iface, (struct sockaddr *)&ss, 24, false, false)->label,
                 sizeof(iface->addrs[0].label), "%.13s:1", iface->name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pvn_iface_pick picks[4];
    struct pvn_iface_table table;
    struct pvn_err err = PVN_ERR_INIT;
    char ifname[512], left_out[64];
    int i, n;

    if (size >= sizeof(ifname))
        return 0;
    memcpy(ifname, data, size);
    ifname[size] = '\0';
    make_table(&table);
    n = pvn_iface_choose(&table, ifname, AF_UNSPEC, picks, 4, left_out, sizeof(left_out), &err);
    fuzz_require(n == -ENODEV || (n > 0 && n <= 4), "some picks or the one error");
    fuzz_require((n < 0) == (err.code != 0), "an error has its reason");
    fuzz_require(memchr(left_out, 0, sizeof(left_out)) != NULL, "texts are terminated");
    for (i = 0; i < n; i++) {
        fuzz_require(picks[i].iface->running, "nothing without a link");
        fuzz_require(pvn_dev_list_matches(ifname, picks[i].iface->name, 0) ||
                         (strchr(ifname, '^') && strchr(ifname, ':')),
                     "what was requested");
    }
    pvn_iface_free(&table);
    return 0;
}

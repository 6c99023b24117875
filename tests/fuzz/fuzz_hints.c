/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a hints file for a fixed guest. Besides not crashing: a refused file names its
 * line and changes nothing. An accepted file leaves a tree without loops and with distinct
 * addresses. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "topo/pvn_topo.h"

static const char guest_list[] = "0000:00:15.0\n   Device Class: 0x0604\n   Spawned Bus: 0x03\n"
                                 "0000:00:16.0\n   Device Class: 0x0604\n   Spawned Bus: 0x0b\n"
                                 "0000:03:00.0\n   Device Class: 0x0302\n   Vendor ID: 0x10de\n"
                                 "   Device ID: 0x20b2\n"
                                 "0000:0b:00.0\n   Device Class: 0x0207\n   Vendor ID: 0x15b3\n"
                                 "   Device ID: 0x101b\n"
                                 "0000:0b:00.1\n   Device Class: 0x0207\n   Vendor ID: 0x15b3\n"
                                 "   Device ID: 0x101b\n";
static const char host_list[] = "0000:3a:02.0\n   Device Class: 0x0604\n   Spawned Bus: 0x3b\n"
                                "0000:3b:00.0\n   Device Class: 0x0302\n   Vendor ID: 0x10de\n"
                                "   Device ID: 0x20b2\n   NUMA Node: 1\n"
                                "0000:af:00.0\n   Device Class: 0x0207\n   Vendor ID: 0x15b3\n"
                                "   Device ID: 0x101b\n";

static struct pvn_topo *machine(const char *list)
{
    struct pvn_topo_err err = {""};
    struct pvn_topo *t = NULL;

    fuzz_require(pvn_topo_load_esxcli(list, strlen(list), "list", &t, &err) == 0, "a machine");
    return t;
}

static void check_tree(const struct pvn_topo *t)
{
    for (int i = 0; i < t->npci; i++) {
        int depth = 0;

        for (int up = t->pci[i].parent; up >= 0; up = t->pci[up].parent)
            fuzz_require(++depth <= t->npci, "parents do not close to a loop");
        fuzz_require(depth == t->pci[i].depth, "the depth is the number of bridges above");
        fuzz_require(t->pci[i].root >= 0 && t->pci[i].root < t->nroots, "a place has a root");
        if ((t->pci[i].flags & PVN_TOPO_PCI_INVENTED) == 0)
            continue;
        fuzz_require(pvn_topo_link_mbytes(t->pci[i].link.speed_max_mts, t->pci[i].link.width_max) >
                         0,
                     "an invented bridge has a link");
        fuzz_require(pvn_topo_find_pci(t, t->pci[i].bdf) == i, "addresses are distinct");
    }
}

static void check_result(struct pvn_topo *t, int before, int rc, const struct pvn_topo_err *err)
{
    if (rc != 0) {
        fuzz_require(err->text[0] != '\0', "an error has its reason");
        fuzz_require(t->npci == before && t->merged == 0, "and changes nothing");
    } else {
        fuzz_require(t->merged != 0, "what was merged is marked");
    }
    check_tree(t);
    pvn_topo_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct pvn_topo *guest = machine(guest_list), *host = machine(host_list);
    struct pvn_topo_err err = {""};
    int before = guest->npci;
    int rc = pvn_topo_apply_hints(guest, text, size, "fuzz.hints", &err);

    fuzz_require(rc == 0 || (rc == -EINVAL && strncmp(err.text, "fuzz.hints:", 11) == 0),
                 "a refused file is named with its line");
    check_result(guest, before, rc, &err);

    guest = machine(guest_list);
    rc = pvn_topo_merge_host(guest, host, text, size, "fuzz.hints", &err);
    fuzz_require(rc == 0 || rc == -EINVAL || rc == -ENOENT, "no other result");
    check_result(guest, before, rc, &err);
    pvn_topo_free(host);
    return 0;
}

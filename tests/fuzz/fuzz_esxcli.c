/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the output of `esxcli hardware pci list`. Besides not crashing: the tree has no
 * loop, every function has a root, an error names its line, and the model merges into a copy of
 * itself. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "topo/pvn_topo.h"

static struct pvn_topo *load(const uint8_t *data, size_t size)
{
    struct pvn_topo_err err = {""};
    struct pvn_topo *t = NULL;
    int rc = pvn_topo_load_esxcli((const char *)data, size, "fuzz.txt", &t, &err);

    fuzz_require((rc == 0) == (t != NULL), "a model or an error");
    fuzz_require(rc == 0 || strncmp(err.text, "fuzz.txt:", 9) == 0, "the error names its line");
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pvn_topo *t = load(data, size), *guest = load(data, size);
    struct pvn_topo_err err = {""};
    int rc;

    if (t == NULL)
        return 0;
    for (int i = 0; i < t->npci; i++) {
        int depth = 0;

        for (int up = t->pci[i].parent; up >= 0; up = t->pci[up].parent)
            fuzz_require(++depth <= t->npci, "parents do not close to a loop");
        fuzz_require(depth == t->pci[i].depth, "the depth is the number of bridges above");
        fuzz_require(t->pci[i].root >= 0 && t->pci[i].root < t->nroots, "a place has a root");
    }
    rc = pvn_topo_merge_host(guest, t, NULL, 0, "", &err);
    fuzz_require(rc == 0 || rc == -ENOENT, "it merges, or has no device");
    pvn_topo_free(guest);
    pvn_topo_free(t);
    return 0;
}

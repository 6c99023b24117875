/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: descriptions by other tools (hwloc's XML, lspci's text, rdma_topo's dump, NCCL's
 * XML as a host). Each recogniser and each reader gets the bytes, whichever format they look
 * like. Besides not crashing: the result is a model or an error that names the file, the model
 * has no loop, and every parent exists. */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "topo/input/input.h"

static void look_at(const struct pvn_topo *t)
{
    for (int i = 0; i < t->npci; i++) {
        int depth = 0;
        for (int up = t->pci[i].parent; up >= 0; up = t->pci[up].parent)
            fuzz_require(++depth <= t->npci, "parents do not close to a loop");
    }
    for (int i = 0; i < t->nnets; i++)
        fuzz_require(t->nets[i].pci < t->npci, "an interface's function is there");
    for (int i = 0; i < t->nrdmas; i++)
        fuzz_require(t->rdmas[i].pci < t->npci, "an RDMA device's function is there");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const readers[])(const char *, size_t, const char *, struct pvn_topo **,
                                  struct pvn_topo_err *) = {
        pvn_topo_load_hwloc, pvn_topo_load_lspci, pvn_topo_load_rdma_topo, pvn_topo_load_nccl};
    char text[32768];
    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    pvn_topo_input_recognise(text, size);
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        struct pvn_topo_err err = {""};
        struct pvn_topo *t = NULL;
        int code = readers[i](text, size, "fuzz", &t, &err);
        fuzz_require((code == 0) == (t != NULL), "a model or an error");
        fuzz_require(code == 0 || strncmp(err.text, "fuzz:", 5) == 0, "the error names the file");
        if (t)
            look_at(t);
        pvn_topo_free(t);
    }
    return 0;
}

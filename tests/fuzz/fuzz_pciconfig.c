/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bytes of PCI configuration space. The first two bytes say how many can be read.
 * Besides not crashing: the decoder ends, and reports nothing about bytes that it could not
 * read. */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "fuzz/hex.h"
#include "topo/reader.h"

struct source {
    const uint8_t *data;
    size_t size, readable;
    int reads;
};

static ssize_t read_bytes(void *ctx, size_t at, void *buf, size_t len)
{
    struct source *s = ctx;
    size_t n;

    fuzz_require(at < 4096 && at + len <= 4096 + 64, "reads stay in the space");
    fuzz_require(++s->reads < 2000, "the walk ends");
    if (at >= s->readable)
        return 0;
    n = s->readable - at < len ? s->readable - at : len;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)buf)[i] = at + i < s->size ? s->data[at + i] : 0;
    return (ssize_t)n;
}

static void decode(const uint8_t *data, size_t size)
{
    struct source s = {0};
    struct pvn_topo_config_source src = {read_bytes, &s};
    struct pvn_topo_pci_config c;
    bool damaged;

    s.readable = (size_t)(data[0] | data[1] << 8) % 4097;
    s.data = data + 2;
    s.size = size - 2;
    pvn_topo_decode_config(&c, &src, &damaged);
    fuzz_require((size_t)c.bytes <= (s.readable < 64 ? 0 : 4096), "short space is not decoded");
    fuzz_require(c.acs != PVN_TOPO_CAP_PRESENT || s.readable > 256, "ACS is beyond 256 bytes");
    fuzz_require(c.ats != PVN_TOPO_CAP_PRESENT || s.readable > 256, "ATS is beyond 256 bytes");
    fuzz_require(c.pcie == PVN_TOPO_CAP_PRESENT || (c.acs != PVN_TOPO_CAP_PRESENT && c.mps == 0),
                 "nothing is said without the Express capability");
    if (c.pcie == PVN_TOPO_CAP_PRESENT)
        fuzz_require(c.port_type >= 0 && c.port_type <= 15 && c.mps >= 128 && c.mps <= 16384,
                     "fields are in range");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n;
    uint8_t *bytes = fuzz_bytes(data, size, &n);

    if (n >= 2)
        decode(bytes, n);
    free(bytes);
    return 0;
}

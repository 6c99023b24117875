/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Capabilities in PCI configuration space. Layouts: PCI Local Bus Specification 3.0 chapter 6
 * (header, list), PCI Express Base Specification 6.0 sections 7.5.3 (Express), 7.7.11 (ACS), 10.5.1
 * (ATS), 7.9.3 (serial number); offsets as in linux/pci_regs.h. */
#include "topo/reader.h"

enum {
    STATUS = 0x06,
    STATUS_CAP_LIST = 0x10,
    CAP_POINTER = 0x34,
    HEADER_BYTES = 64,
    STANDARD_BYTES = 256,
    EXTENDED_BYTES = 4096,

    CAP_ID_EXP = 0x10,
    EXP_FLAGS = 0x02,
    EXP_DEVCAP = 0x04,
    EXP_DEVCTL = 0x08,
    EXP_LNKSTA = 0x12,
    EXP_BYTES = 0x14,
    DEVCTL_RELAXED = 0x0010,

    EXT_ID_DSN = 0x03,
    EXT_ID_ACS = 0x0d,
    EXT_ID_ATS = 0x0f,
    ACS_CAP = 0x04,
    ACS_CTL = 0x06,
    ATS_CTL = 0x06,
    ATS_ENABLE = 0x8000,
};

struct walk {
    const struct pvn_topo_config_source *src;
    struct pvn_topo_pci_config *c;
    bool *damaged;
};

static bool get(const struct walk *w, size_t at, uint8_t *buf, size_t len)
{
    return w->src->read(w->src->ctx, at, buf, len) == (ssize_t)len;
}

static uint16_t le16(const uint8_t *b)
{
    return (uint16_t)(b[0] | b[1] << 8);
}

static uint32_t le32(const uint8_t *b)
{
    return le16(b) | (uint32_t)le16(b + 2) << 16;
}

static void set_all(struct pvn_topo_pci_config *c, enum pvn_topo_cap to)
{
    c->pcie = c->acs = c->ats = c->dsn = to;
}

static int speed_of_code(unsigned code)
{
    switch (code) {
    case 1:
        return 2500;
    case 2:
        return 5000;
    case 3:
    case 4:
    case 5:
    case 6:
        return 8000 << (code - 3);
    default:
        return PVN_TOPO_UNKNOWN;
    }
}

static bool decode_express(const struct walk *w, size_t at)
{
    struct pvn_topo_pci_config *c = w->c;
    uint8_t b[EXP_BYTES];
    uint16_t devctl, lnksta;

    if (!get(w, at, b, sizeof(b)))
        return false;
    c->pcie = PVN_TOPO_CAP_PRESENT;
    c->port_type = le16(b + EXP_FLAGS) >> 4 & 0xf;
    c->mps_max = 128 << (le32(b + EXP_DEVCAP) & 7);
    devctl = le16(b + EXP_DEVCTL);
    c->mps = 128 << (devctl >> 5 & 7);
    c->mrrs = 128 << (devctl >> 12 & 7);
    c->relaxed_ordering = (devctl & DEVCTL_RELAXED) != 0;
    lnksta = le16(b + EXP_LNKSTA);
    c->lnk_speed_mts = speed_of_code(lnksta & 0xf);
    if (c->lnk_speed_mts != PVN_TOPO_UNKNOWN)
        c->lnk_width = lnksta >> 4 & 0x3f;
    return true;
}

/* Looks for the Express capability. Sets pcie if it is not present. */
static void walk_standard(const struct walk *w, uint8_t first)
{
    size_t at = first & ~3u;

    set_all(w->c, PVN_TOPO_CAP_ABSENT);
    /* The 192 bytes after the header hold at most 48 capabilities, so more steps mean a loop. */
    for (int steps = 0; at != 0; steps++) {
        uint8_t b[2];

        if (steps == 48 || at < HEADER_BYTES) {
            *w->damaged = true;
            set_all(w->c, PVN_TOPO_CAP_UNKNOWN);
            return;
        }
        if (!get(w, at, b, sizeof(b)) || (b[0] == CAP_ID_EXP && !decode_express(w, at))) {
            set_all(w->c, PVN_TOPO_CAP_NOT_READABLE);
            return;
        }
        w->c->bytes = STANDARD_BYTES;
        if (b[0] == CAP_ID_EXP)
            return;
        at = b[1] & ~3u;
    }
}

/* Sets capabilities that were not found to `as`: if the list breaks off, they may still exist. */
static void unfound(struct pvn_topo_pci_config *c, enum pvn_topo_cap as)
{
    c->acs = c->acs == PVN_TOPO_CAP_PRESENT ? c->acs : as;
    c->ats = c->ats == PVN_TOPO_CAP_PRESENT ? c->ats : as;
    c->dsn = c->dsn == PVN_TOPO_CAP_PRESENT ? c->dsn : as;
}

static void decode_extended(const struct walk *w, size_t at, uint16_t id)
{
    struct pvn_topo_pci_config *c = w->c;
    uint8_t b[12];

    if (id == EXT_ID_ACS && get(w, at, b, 8)) {
        c->acs = PVN_TOPO_CAP_PRESENT;
        c->acs_cap = le16(b + ACS_CAP);
        c->acs_ctl = le16(b + ACS_CTL);
    } else if (id == EXT_ID_ATS && get(w, at, b, 8)) {
        c->ats = PVN_TOPO_CAP_PRESENT;
        c->ats_enabled = (le16(b + ATS_CTL) & ATS_ENABLE) != 0;
    } else if (id == EXT_ID_DSN && get(w, at, b, 12)) {
        c->dsn = PVN_TOPO_CAP_PRESENT;
        c->serial = le32(b + 4) | (uint64_t)le32(b + 8) << 32;
    }
}

static void walk_extended(const struct walk *w)
{
    size_t at = STANDARD_BYTES;

    unfound(w->c, PVN_TOPO_CAP_ABSENT);
    /* A device without extended capabilities shows a zero header there. */
    for (int steps = 0; at != 0; steps++) {
        uint8_t b[4];
        uint32_t header;

        if (steps == (EXTENDED_BYTES - STANDARD_BYTES) / 8 || at < STANDARD_BYTES) {
            *w->damaged = true;
            unfound(w->c, PVN_TOPO_CAP_UNKNOWN);
            return;
        }
        /* A short read or all ones: the reader is not root, or a bridge above does not pass
         * extended accesses. */
        if (!get(w, at, b, sizeof(b)) || le32(b) == 0xffffffff) {
            unfound(w->c, PVN_TOPO_CAP_NOT_READABLE);
            return;
        }
        w->c->bytes = EXTENDED_BYTES;
        header = le32(b);
        decode_extended(w, at, (uint16_t)header);
        at = header >> 20 & ~3u;
    }
}

void pvn_topo_decode_config(struct pvn_topo_pci_config *c, const struct pvn_topo_config_source *src,
                            bool *damaged)
{
    const struct walk w = {src, c, damaged};
    uint8_t header[HEADER_BYTES];

    *damaged = false;
    *c = (struct pvn_topo_pci_config){.lnk_speed_mts = PVN_TOPO_UNKNOWN,
                                      .lnk_width = PVN_TOPO_UNKNOWN};
    if (!get(&w, 0, header, sizeof(header)))
        return;
    if (le32(header) == 0xffffffff) {
        c->all_ones = true;
        return;
    }
    c->bytes = HEADER_BYTES;
    if ((le16(header + STATUS) & STATUS_CAP_LIST) == 0) {
        set_all(c, PVN_TOPO_CAP_ABSENT);
        return;
    }
    walk_standard(&w, header[CAP_POINTER]);
    if (c->pcie == PVN_TOPO_CAP_PRESENT)
        walk_extended(&w);
}

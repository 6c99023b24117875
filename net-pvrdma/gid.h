/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of GIDs: a row of this port's table and a row of the peer's table.
 *
 * The choice is a pure function of both tables, in which the connector's table is always the first one. So
 * both ends choose the same pair without another message.
 */
#ifndef PVN_NET_PVRDMA_GID_H
#define PVN_NET_PVRDMA_GID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum pvn_gid_type { PVN_GID_IB, PVN_GID_ROCE_V1, PVN_GID_ROCE_V2 };

struct pvn_gid_row {
    uint8_t raw[16]; /* network byte order; an IPv4 address is ::ffff:a.b.c.d */
    uint8_t type;    /* enum pvn_gid_type */
    uint8_t index;   /* row of the port's table */
    uint8_t prefix;  /* length of the network prefix in bits, of 128 also for IPv4; 0: not known */
};

/* The rows of this end's tables that the user allows; see the parameters of these names. */
struct pvn_gid_policy {
    int index;        /* GID_INDEX: only this row of the table; -1: any */
    int roce_version; /* ROCE_VERSION_NUM: only this version, 1 or 2; 0: any, version 2 before 1 */
    int family;       /* AF_INET, AF_INET6 or AF_UNSPEC */
    char range[64];   /* ADDRESS/PREFIX; any other text: any address */
};

/* Removes the rows that the policy forbids and returns the number of the remaining rows, which are then
 * offered to the peer. text: receives the reason for each removed row; may be NULL with cap 0. */
int pvn_gid_filter(struct pvn_gid_row *rows, int n, const struct pvn_gid_policy *policy, char *text,
                   size_t cap);

struct pvn_gid_choice {
    int local, remote; /* indices into the two arrays; -1: none */
    char text[512];    /* the chosen pair, and why other pairs are impossible */
};

/* connector: `mine` is the connector's table. 0, or a negative errno with *err, which names both tables. */
int pvn_gid_choose(const struct pvn_gid_row *mine, int nmine, const struct pvn_gid_row *theirs,
                   int ntheirs, bool connector, struct pvn_gid_choice *out, struct pvn_err *err);

/* Writes the row as text, e.g. "::ffff:10.0.0.1 (RoCE v2)", and returns buf. May be called from any thread. */
const char *pvn_gid_text(const struct pvn_gid_row *row, char *buf, size_t cap);

#endif

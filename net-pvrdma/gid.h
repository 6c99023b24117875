/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GIDs: which row of this port's table meets which row of the peer's.
 *
 * The choice is a pure function of both tables and the policy, so both ends come to the same pair
 * without another message: the connector's table is always taken first.
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
    uint8_t prefix;  /* length of the address's network in bits, counted in 128; 0: not known */
};

/* The user's requests of our own rows; see the parameters of these names. */
struct pvn_gid_policy {
    int index;        /* GID_INDEX: only this row of the table; -1: any */
    int roce_version; /* ROCE_VERSION_NUM: only this version, 1 or 2; 0: any, version 2 before 1 */
    int family;       /* AF_INET, AF_INET6 or AF_UNSPEC */
    char range[64];   /* "": any; ADDRESS/PREFIX */
};

/* 0, or -EINVAL with *err when a range is not ADDRESS/PREFIX. Such
 * a range would allow everything. */
int pvn_gid_policy_check(const struct pvn_gid_policy *policy, struct pvn_err *err);

/* Keeps the rows that the policy allows, in place, and returns their number. text: why the others
 * were left out, a clause each; may be empty, or NULL with cap 0. The rest is then offered to the
 * peer. */
int pvn_gid_filter(struct pvn_gid_row *rows, int n, const struct pvn_gid_policy *policy, char *text,
                   size_t cap);

struct pvn_gid_choice {
    int local, remote; /* indices into the two arrays, -1: none */
    char text[512];    /* the chosen pair and why the others lost */
};

/* `connector`: mine is the connector's table. 0, or a negative
 * errno with *err naming both tables. */
int pvn_gid_choose(const struct pvn_gid_row *mine, int nmine, const struct pvn_gid_row *theirs,
                   int ntheirs, bool connector, struct pvn_gid_choice *out, struct pvn_err *err);

/* "::ffff:10.0.0.1 (RoCE v2)"; any thread. Returns buf. */
const char *pvn_gid_text(const struct pvn_gid_row *row, char *buf, size_t cap);

#endif

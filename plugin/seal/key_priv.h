/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A key's bytes, for the files that read and use it. */
#ifndef PVN_SEAL_KEY_PRIV_H
#define PVN_SEAL_KEY_PRIV_H

#include "seal/key.h"

struct pvn_key {
    size_t len;
    uint8_t bytes[PVN_KEY_MAX];
};

#endif

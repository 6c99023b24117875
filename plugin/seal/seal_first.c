/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Checks the first bytes of a handshake without OpenSSL. */
#include "config.h"
#include "seal/seal.h"

int pvn_seal_is_first(const uint8_t *b, size_t len)
{
    /* RFC 8446: record type handshake, legacy version 3.1 or 3.3, length, message ClientHello. */
    enum { HANDSHAKE = 22, CLIENT_HELLO = 1, LEAST = 64, MOST = 16384 };
    unsigned record = len > 4 ? (unsigned)b[3] << 8 | b[4] : LEAST;
    bool fits = (len < 1 || b[0] == HANDSHAKE) && (len < 2 || b[1] == 3) &&
                (len < 3 || b[2] == 1 || b[2] == 3) && record >= LEAST && record <= MOST &&
                (len < 6 || b[5] == CLIENT_HELLO);

    if (!fits)
        return -1;
    return len >= PVN_SEAL_FIRST_BYTES;
}

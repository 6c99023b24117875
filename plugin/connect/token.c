/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/token.h"

int pvn_token_of_control(const struct pvn_key *key, uint64_t session, uint64_t nonce,
                         uint8_t out[PVN_TOKEN_BYTES], struct pvn_err *err)
{
    return pvn_key_derive(key, "proof", session, nonce, out, PVN_TOKEN_BYTES, err);
}

/* Derives a secret of a data connection, for one use. */
static int of_stream(const uint8_t secret[PVN_SECRET_BYTES], const char *use, int lane, int stream,
                     uint8_t *out, size_t len, struct pvn_err *err)
{
    const uint8_t salt[] = {(uint8_t)lane, (uint8_t)stream, (uint8_t)(stream >> 8)};

    return pvn_key_expand(secret, PVN_SECRET_BYTES, use, salt, sizeof(salt), out, len, err);
}

int pvn_token_of_stream(const uint8_t secret[PVN_SECRET_BYTES], int lane, int stream,
                        uint8_t out[PVN_TOKEN_BYTES], struct pvn_err *err)
{
    return of_stream(secret, "stream", lane, stream, out, PVN_TOKEN_BYTES, err);
}

int pvn_token_seal_of_stream(const uint8_t secret[PVN_SECRET_BYTES], int lane, int stream,
                             uint8_t out[PVN_SECRET_BYTES], struct pvn_err *err)
{
    return of_stream(secret, "data", lane, stream, out, PVN_SECRET_BYTES, err);
}

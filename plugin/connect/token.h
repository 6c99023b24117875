/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens behind a preamble (wire.h), where there is a key: they show that who sends the preamble has the key, or is the end
 * of a sealed control connection. A token is sent in the clear and counts once: whoever repeats it has no handshake, or
 * comes after the connection that it was for.
 *
 * Threads: any. OpenSSL has been loaded.
 */
#ifndef PVN_CONNECT_TOKEN_H
#define PVN_CONNECT_TOKEN_H

#include <stdint.h>

#include "connect/wire.h"
#include "seal/key.h"

/* A control connection's. 0 or a negative errno with *err. */
int pvn_token_of_control(const struct pvn_key *key, uint64_t session, uint64_t nonce,
                         uint8_t out[PVN_TOKEN_BYTES], struct pvn_err *err);
/* A data connection's, from what its control connection's handshake gave both ends (struct pvn_conn, streams). */
int pvn_token_of_stream(const uint8_t secret[PVN_SECRET_BYTES], int lane, int stream,
                        uint8_t out[PVN_TOKEN_BYTES], struct pvn_err *err);
/* The secret by which both ends seal that connection, and which nobody else has; from the same. */
int pvn_token_seal_of_stream(const uint8_t secret[PVN_SECRET_BYTES], int lane, int stream,
                             uint8_t out[PVN_SECRET_BYTES], struct pvn_err *err);

#endif

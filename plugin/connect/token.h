/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens behind a preamble (wire.h), with a key only. A token shows that the sender of the preamble
 * has the key, or is the end of a sealed control connection. It is sent in the clear and counts
 * once: somebody who repeats it cannot do the handshake, or comes after the connection that it was
 * for.
 *
 * Threads: any. OpenSSL has been loaded.
 */
#ifndef PVN_CONNECT_TOKEN_H
#define PVN_CONNECT_TOKEN_H

#include <stdint.h>

#include "connect/wire.h"
#include "seal/key.h"

/* The token of a control connection. 0 or a negative errno with *err. */
int pvn_token_of_control(const struct pvn_key *key, uint64_t session, uint64_t nonce,
                         uint8_t out[PVN_TOKEN_BYTES], struct pvn_err *err);
/* The token of a data connection, derived from the secret that the handshake of its control
 * connection gave both ends (`streams` in struct pvn_conn). */
int pvn_token_of_stream(const uint8_t secret[PVN_SECRET_BYTES], int lane, int stream,
                        uint8_t out[PVN_TOKEN_BYTES], struct pvn_err *err);
/* The secret with which both ends seal that data connection, and which nobody else has. Derived
 * likewise. */
int pvn_token_seal_of_stream(const uint8_t secret[PVN_SECRET_BYTES], int lane, int stream,
                             uint8_t out[PVN_SECRET_BYTES], struct pvn_err *err);

#endif

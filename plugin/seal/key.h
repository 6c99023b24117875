/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's key: the bytes of NCCL_PVRDMA_KEY_FILE, the same at all ranks. Nothing is encrypted with the key itself; all
 * secrets come from it by HKDF-SHA256 with a label, the listener's session and a connection's nonce, so that no two
 * connections share one.
 *
 * The key is read once, when the plugin is loaded. If the file is replaced later, a running comm goes on, but makes no
 * connection in place of a lost one any more (pvn_seal_check_replaced): the old key is meant to be out of use.
 */
#ifndef PVN_SEAL_KEY_H
#define PVN_SEAL_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    PVN_KEY_MIN = 32, /* bytes of the file */
    PVN_KEY_MAX = 4096,
    PVN_KEY_TEXT = 48 /* room for a description */
};

struct pvn_key;

/* Reads a key file. Refuses one that is no regular file, has another size, may be read or written
 * by others than its owner, or belongs neither to this user nor to root. 0 with *out, or a negative
 * errno with *err, which has the remedy. Does not need OpenSSL. */
int pvn_key_read(const char *path, struct pvn_key **out, struct pvn_err *err);
void pvn_key_free(struct pvn_key *key);

/* Makes a file with a new key, 256 random bits as 64 hex digits, for its owner only. Does not
 * overwrite a file. 0 or a negative errno with *err. */
int pvn_key_make(const char *path, struct pvn_err *err);

/* Fills out[len] by HKDF with this label; its salt is these two numbers. pvn_ssl_load has
 * succeeded. 0 or a negative errno with *err, which is not expected. Any thread. */
int pvn_key_derive(const struct pvn_key *key, const char *label, uint64_t session, uint64_t nonce,
                   uint8_t *out, size_t len, struct pvn_err *err);
/* Describes a key by facts that are no secret, so that a person can compare two: "64 bytes, label
 * 1a2b3c4d". Returns buf, always terminated. pvn_ssl_load has succeeded. Any thread. */
const char *pvn_key_describe(const struct pvn_key *key, char buf[PVN_KEY_TEXT]);
/* Like pvn_key_derive, from secret[secret_len] instead of a key, and with any salt. */
int pvn_key_expand(const uint8_t *secret, size_t secret_len, const char *label, const uint8_t *salt,
                   size_t salt_len, uint8_t *out, size_t len, struct pvn_err *err);
/* Compares a derived value with one that somebody sent. Takes equally long whether they are equal
 * or not. Any thread. */
bool pvn_key_is_equal(const uint8_t *a, const uint8_t *b, size_t len);
/* True if the two have the same bytes. Any thread. */
bool pvn_key_is_same(const struct pvn_key *a, const struct pvn_key *b);

#endif

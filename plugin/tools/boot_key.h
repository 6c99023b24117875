/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A rendezvous with a job's key (seal/key.h). The connecting end first sends a knock, unencrypted:
 * random numbers, and a token that cannot be computed without the key. Then both ends do a TLS 1.3
 * handshake with a secret of this connection, and all further data is sealed. Without a key none of
 * this is sent.
 *
 * One thread. No function waits.
 */
#ifndef PVN_TOOLS_BOOT_KEY_H
#define PVN_TOOLS_BOOT_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seal/key.h"
#include "seal/seal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_BOOT_NO_KEY "NCCL_PVRDMA_KEY_FILE for all or for none"
#define PVN_BOOT_OTHER  "all need the same NCCL_PVRDMA_KEY_FILE"

struct pvn_boot_key {
    struct pvn_key *key;
    /* the kind of meeting, at most 24 characters; each kind has secrets of its own */
    const char *label;
    double timeout;          /* seconds for the handshake, after the knock */
    char text[PVN_KEY_TEXT]; /* describes the key for people */
};

struct pvn_boot_knock {
    uint8_t nonce[16], token[16];
};

/* Reads the key of NCCL_PVRDMA_KEY_FILE. 1 if *k has it; 0 if there is none, and k->key is NULL; or
 * a negative errno with why: the caller must then send nothing unencrypted. */
int pvn_boot_key_load(struct pvn_boot_key *k, const char *label, char *why, size_t why_len);
void pvn_boot_key_free(struct pvn_boot_key *k);

/* Makes a knock. 0 or a negative errno with why. */
int pvn_boot_knock_make(const struct pvn_boot_key *k, struct pvn_boot_knock *out, char *why,
                        size_t why_len);
/* True if the sender of the knock has the key, or has recorded this knock. */
bool pvn_boot_knock_proves(const struct pvn_boot_key *k, const struct pvn_boot_knock *knock);
/* Makes the stream for this knock, before its handshake (pvn_seal_free). The caller keeps fd. NULL
 * with why. */
struct pvn_seal *pvn_boot_key_seal(const struct pvn_boot_key *k, const struct pvn_boot_knock *knock,
                                   int fd, bool acceptor, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A meeting with a job's key (seal/key.h). Whoever connects sends a knock first, in the clear: random numbers, and a token
 * that nobody can make without the key. Only then do the two ends do a handshake of TLS 1.3, with a secret of this
 * connection, and all that follows is sealed. Without a key none of this is sent.
 *
 * One thread. Nothing here waits.
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
    const char *
        label; /* the kind of meeting, no longer than 24 characters: secrets are of one kind alone */
    double timeout;          /* seconds for the handshake, after the knock */
    char text[PVN_KEY_TEXT]; /* of the key, for people */
};

struct pvn_boot_knock {
    uint8_t nonce[16], token[16];
};

/* Reads the key of NCCL_PVRDMA_KEY_FILE. 1: *k has it; 0: there is none, and k->key is NULL; a negative errno with why,
 * and nothing may be sent in the clear instead. */
int pvn_boot_key_load(struct pvn_boot_key *k, const char *label, char *why, size_t why_len);
void pvn_boot_key_free(struct pvn_boot_key *k);

/* 0 or a negative errno with why. */
int pvn_boot_knock_make(const struct pvn_boot_key *k, struct pvn_boot_knock *out, char *why,
                        size_t why_len);
/* True if who sent it has the key, or has seen it sent. */
bool pvn_boot_knock_proves(const struct pvn_boot_key *k, const struct pvn_boot_knock *knock);
/* The stream behind this knock, before its handshake (pvn_seal_free); fd stays the caller's. NULL with why. */
struct pvn_seal *pvn_boot_key_seal(const struct pvn_boot_key *k, const struct pvn_boot_knock *knock,
                                   int fd, bool acceptor, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif

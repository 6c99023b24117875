/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/boot_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/random.h"
#include "seal/seal_begin.h"

static int say(const struct pvn_err *err, char *why, size_t why_len)
{
    char text[PVN_ERR_TEXT_LEN];

    pvn_err_format(err, text, sizeof(text));
    snprintf(why, why_len, "%s", text);
    return err->code ? err->code : -EIO;
}

int pvn_boot_key_load(struct pvn_boot_key *k, const char *label, char *why, size_t why_len)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_params_load(&err);
    const char *file = getenv("NCCL_PVRDMA_KEY_FILE");

    memset(k, 0, sizeof(*k));
    /* The plugin reports an invalid setting that does not concern the key. */
    if (rc && !(file && file[0]))
        return 0;
    if (rc == 0)
        rc = pvn_seal_take_key(pvn_params_get(), &k->key, &err);
    k->label = label;
    k->timeout = (double)pvn_params_get()->seal_timeout / 1e9;
    if (k->key)
        pvn_key_describe(k->key, k->text);
    pvn_params_unload();
    return rc ? say(&err, why, why_len) : k->key != NULL;
}

void pvn_boot_key_free(struct pvn_boot_key *k)
{
    pvn_key_free(k->key);
    k->key = NULL;
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* Derives a secret for this kind of meeting, connection and use. */
static int derive(const struct pvn_boot_key *k, const char *use, const uint8_t nonce[16],
                  uint8_t *out, size_t len, struct pvn_err *err)
{
    char label[40];

    snprintf(label, sizeof(label), "%s %s", use, k->label);
    return pvn_key_derive(k->key, label, get64(nonce), get64(nonce + 8), out, len, err);
}

int pvn_boot_knock_make(const struct pvn_boot_key *k, struct pvn_boot_knock *out, char *why,
                        size_t why_len)
{
    struct pvn_err err = PVN_ERR_INIT;

    put64(out->nonce, pvn_random64());
    put64(out->nonce + 8, pvn_random64());
    return derive(k, "proof", out->nonce, out->token, sizeof(out->token), &err)
               ? say(&err, why, why_len)
               : 0;
}

bool pvn_boot_knock_proves(const struct pvn_boot_key *k, const struct pvn_boot_knock *knock)
{
    uint8_t token[sizeof(knock->token)];

    return derive(k, "proof", knock->nonce, token, sizeof(token), NULL) == 0 &&
           pvn_key_is_equal(token, knock->token, sizeof(token));
}

struct pvn_seal *pvn_boot_key_seal(const struct pvn_boot_key *k, const struct pvn_boot_knock *knock,
                                   int fd, bool acceptor, char *why, size_t why_len)
{
    uint8_t secret[PVN_SEAL_SECRET];
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_seal *seal = NULL;

    if (derive(k, "seal", knock->nonce, secret, sizeof(secret), &err) == 0)
        seal = pvn_seal_new(fd, acceptor, secret, &err);
    explicit_bzero(secret, sizeof(secret));
    if (!seal)
        say(&err, why, why_len);
    return seal;
}

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* HKDF-SHA256 (RFC 5869), by libcrypto. */
#include "config.h"
#include "seal/key_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/params.h>

#include "seal/ssl_dl.h"

/* All labels begin with this, so that another program's use of the same file gives other
 * secrets. */
#define PREFIX "nccl-net-pvrdma 1 "

int pvn_key_expand(const uint8_t *secret, size_t secret_len, const char *label, const uint8_t *salt,
                   size_t salt_len, uint8_t *out, size_t len, struct pvn_err *err)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    char info[64] = PREFIX;
    size_t used = strlen(PREFIX), n = strnlen(label, sizeof(info) - used);
    OSSL_PARAM params[] = {
        OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", sizeof("SHA256") - 1),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, (uint8_t *)secret, secret_len),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_SALT, (uint8_t *)salt, salt_len),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_INFO, info, used + n), OSSL_PARAM_END};
    EVP_KDF *kdf = s ? s->EVP_KDF_fetch(s->ctx, "HKDF", NULL) : NULL;
    EVP_KDF_CTX *ctx = kdf ? s->EVP_KDF_CTX_new(kdf) : NULL;
    int rc = 0;

    memcpy(info + used, label, n);
    if (!ctx || s->EVP_KDF_derive(ctx, out, len, params) != 1)
        rc = pvn_err_set(err, -EIO, "OpenSSL cannot derive a key (HKDF-SHA256)");
    if (ctx)
        s->EVP_KDF_CTX_free(ctx);
    if (kdf)
        s->EVP_KDF_free(kdf);
    if (rc && s)
        s->ERR_clear_error();
    return rc;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

int pvn_key_derive(const struct pvn_key *key, const char *label, uint64_t session, uint64_t nonce,
                   uint8_t *out, size_t len, struct pvn_err *err)
{
    uint8_t salt[16];

    put64(salt, session);
    put64(salt + 8, nonce);
    return pvn_key_expand(key->bytes, key->len, label, salt, sizeof(salt), out, len, err);
}

const char *pvn_key_describe(const struct pvn_key *key, char buf[PVN_KEY_TEXT])
{
    uint8_t label[4];

    if (pvn_key_derive(key, "label", 0, 0, label, sizeof(label), NULL) != 0)
        snprintf(buf, PVN_KEY_TEXT, "%zu bytes", key->len);
    else
        snprintf(buf, PVN_KEY_TEXT, "%zu bytes, label %02x%02x%02x%02x", key->len, label[0],
                 label[1], label[2], label[3]);
    return buf;
}

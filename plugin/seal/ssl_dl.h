/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The functions of OpenSSL 3 (libssl and libcrypto) that we use, in one table. Loaded at run time,
 * with a key only. */
#ifndef PVN_SEAL_SSL_DL_H
#define PVN_SEAL_SSL_DL_H

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

#include "base/err.h"

/* Name and type of each come from OpenSSL's own headers, so that a changed prototype does not compile. */
#define PVN_SSL_FUNCTIONS(F)                                                                       \
    F(BIO_clear_flags)                                                                             \
    F(BIO_get_data)                                                                                \
    F(BIO_meth_free)                                                                               \
    F(BIO_meth_new)                                                                                \
    F(BIO_meth_set_ctrl)                                                                           \
    F(BIO_meth_set_read)                                                                           \
    F(BIO_meth_set_write)                                                                          \
    F(BIO_new)                                                                                     \
    F(BIO_set_data)                                                                                \
    F(BIO_set_flags)                                                                               \
    F(BIO_set_init)                                                                                \
    F(ERR_clear_error)                                                                             \
    F(ERR_peek_error)                                                                              \
    F(ERR_reason_error_string)                                                                     \
    F(EVP_KDF_CTX_free)                                                                            \
    F(EVP_KDF_CTX_new)                                                                             \
    F(EVP_KDF_derive)                                                                              \
    F(EVP_KDF_fetch)                                                                               \
    F(EVP_KDF_free)                                                                                \
    F(OPENSSL_init_ssl)                                                                            \
    F(OSSL_LIB_CTX_free)                                                                           \
    F(OSSL_LIB_CTX_new)                                                                            \
    F(OpenSSL_version)                                                                             \
    F(SSL_CIPHER_find)                                                                             \
    F(SSL_CIPHER_get_name)                                                                         \
    F(SSL_CTX_clear_options)                                                                       \
    F(SSL_CTX_ctrl)                                                                                \
    F(SSL_CTX_free)                                                                                \
    F(SSL_CTX_new_ex)                                                                              \
    F(SSL_CTX_set_ciphersuites)                                                                    \
    F(SSL_CTX_set_keylog_callback)                                                                 \
    F(SSL_CTX_set_max_early_data)                                                                  \
    F(SSL_CTX_set_num_tickets)                                                                     \
    F(SSL_CTX_set_options)                                                                         \
    F(SSL_CTX_set_psk_find_session_callback)                                                       \
    F(SSL_CTX_set_psk_use_session_callback)                                                        \
    F(SSL_CTX_set_recv_max_early_data)                                                             \
    F(SSL_CTX_set_security_level)                                                                  \
    F(SSL_CTX_set_session_id_context)                                                              \
    F(SSL_CTX_set_verify)                                                                          \
    F(SSL_SESSION_free)                                                                            \
    F(SSL_SESSION_new)                                                                             \
    F(SSL_SESSION_set1_id_context)                                                                 \
    F(SSL_SESSION_set1_master_key)                                                                 \
    F(SSL_SESSION_set_cipher)                                                                      \
    F(SSL_SESSION_set_protocol_version)                                                            \
    F(SSL_do_handshake)                                                                            \
    F(SSL_export_keying_material)                                                                  \
    F(SSL_free)                                                                                    \
    F(SSL_get_current_cipher)                                                                      \
    F(SSL_get_error)                                                                               \
    F(SSL_get_ex_data)                                                                             \
    F(SSL_has_pending)                                                                             \
    F(SSL_key_update)                                                                              \
    F(SSL_new)                                                                                     \
    F(SSL_read_ex)                                                                                 \
    F(SSL_rstate_string)                                                                           \
    F(SSL_session_reused)                                                                          \
    F(SSL_set_accept_state)                                                                        \
    F(SSL_set_bio)                                                                                 \
    F(SSL_set_connect_state)                                                                       \
    F(SSL_set_default_read_buffer_len)                                                             \
    F(SSL_set_ex_data)                                                                             \
    F(SSL_set_read_ahead)                                                                          \
    F(SSL_write_ex)                                                                                \
    F(TLS_method)

struct pvn_ssl {
#define PVN_SSL_MEMBER(name) __typeof__(&name) name;
    PVN_SSL_FUNCTIONS(PVN_SSL_MEMBER)
#undef PVN_SSL_MEMBER
    /* Our own context: the process's settings for its own use of OpenSSL do not change it. */
    OSSL_LIB_CTX *ctx;
};

/* Loads `library` (libssl, which brings libcrypto with it) once per process, and never unloads it.
 * NULL with *err, which has the library, the loader's reason or the missing function, and the
 * package to install. Any thread. */
const struct pvn_ssl *pvn_ssl_load(const char *library, struct pvn_err *err);

/* Frees the context; the next load makes another one. The library stays. Nobody may use what came
 * from the table. */
void pvn_ssl_forget(void);
/* In a forked child: see pvn_seal_after_fork. */
void pvn_ssl_after_fork(void);

/* The loaded table; NULL before that. Any thread. */
const struct pvn_ssl *pvn_ssl_get(void);

#endif

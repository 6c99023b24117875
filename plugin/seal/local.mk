# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/seal: a job's key, and streams that are sealed with secrets from it (TLS 1.3 by OpenSSL, loaded at run time).
libpvn_core_la_SOURCES += \
    plugin/seal/key.c \
    plugin/seal/key.h \
    plugin/seal/key_priv.h \
    plugin/seal/plain.c \
    plugin/seal/plain.h \
    plugin/seal/seal.h \
    plugin/seal/seal_begin.c \
    plugin/seal/seal_begin.h \
    plugin/seal/seal_first.c \
    plugin/seal/sockio.c \
    plugin/seal/sockio.h
if HAVE_OPENSSL
libpvn_core_la_SOURCES += \
    plugin/seal/kernel_tls.c \
    plugin/seal/kernel_tls.h \
    plugin/seal/key_derive.c \
    plugin/seal/seal.c \
    plugin/seal/seal_kernel.c \
    plugin/seal/seal_priv.h \
    plugin/seal/ssl_dl.c \
    plugin/seal/ssl_dl.h
else
libpvn_core_la_SOURCES += plugin/seal/without.c
endif

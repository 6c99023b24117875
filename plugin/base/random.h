/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Cryptographically secure random numbers. */
#ifndef PVN_BASE_RANDOM_H
#define PVN_BASE_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 64 random bits for sessions, nonces and cookies. Never 0. May be called from any thread. */
uint64_t pvn_random64(void);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Connects two ends of the plugin in this process, in memory that the caller provides. */
#ifndef PVN_TESTS_STAGING_NET_H
#define PVN_TESTS_STAGING_NET_H

#include <stddef.h>

struct st_net;

/* Loads the plugin and connects its first device to itself. Returns NULL with the reason in why
 * if that fails. */
struct st_net *st_net_open(const char *plugin, char *why, size_t why_len);
/* Sends the first half of the memory into the second, message by message. Returns the GB/s of the
 * fastest round, or a negative number with the reason in why. */
double st_net_rate(struct st_net *n, void *mem, size_t bytes, char *why, size_t why_len);
void st_net_close(struct st_net *n);

#endif

/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Inside the double of NCCL: trying the network plugin. */
#ifndef PVN_TESTS_FAKENCCL_H
#define PVN_TESTS_FAKENCCL_H

#include <stdbool.h>
#include <stdio.h>

/* Loads `name` (as NCCL_NET_PLUGIN) and moves some bytes by it; without a plugin of that name it
 * logs "Socket". False: the plugin is there and does not work. Not thread-safe. */
bool fakenccl_try_network(FILE *log, const char *name);

#endif

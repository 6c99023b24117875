/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The part of NCCL's double that tries the network plugin. */
#ifndef PVN_TESTS_FAKENCCL_H
#define PVN_TESTS_FAKENCCL_H

#include <stdbool.h>
#include <stdio.h>

/* Loads plugin `name` (a value of NCCL_NET_PLUGIN) and moves some bytes with it. If no such
 * plugin exists, it logs "Socket". False if the plugin exists and does not work. Not
 * thread-safe. */
bool fakenccl_try_network(FILE *log, const char *name);

#endif
